"""`Result`: what a fit returns."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from natmix.checks import as_int
from natmix.diagnostics.draws import EvaluatedDraws
from natmix.diagnostics.elbo import Elbo
from natmix.diagnostics.verification import Verification
from natmix.estimate import Estimate
from natmix.gmmvi import GMMVI
from natmix.mixture import Mixture
from natmix.models import AbstractModel
from natmix.models.base import Points
from natmix.random_keys import run_key
from natmix.targets import AbstractTarget

if TYPE_CHECKING:
    import pandas

    from natmix.diagnostics import Diagnosis
    from natmix.plot import FitAxes
    from natmix.result.distribution import Distribution
    from natmix.result.named_coordinates import NamedCoordinates
    from natmix.result.sampler_start import SamplerStart


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of a fit; evaluations are exact and include every call of the target.

    Attributes:
        iterations: of the algorithm.
        training_evaluations: of the target, for the updates.
        elbo_evaluations: of the target, for the final ELBO.
        probe_evaluations: of the target, to detect what kind of function it is and to check its gradient.
        start_evaluations: of the target, for the initialisation.
        zeros: training evaluations with log density -inf.
        invalid: training evaluations with NaN, +inf or a gradient that is not finite.
        failed_updates: component updates that failed numerically and were skipped.
        added: components added.
        deleted: components deleted.
        left_out: components of negligible weight at the end, not part of the returned mixture.
        verification_evaluations: of the target, by searches outside of the mixture's samples during the fit.
        refuted_evaluations: of the target, at samples that did not confirm that the mixture is accurate.
    """

    iterations: int
    training_evaluations: int
    elbo_evaluations: int
    probe_evaluations: int
    start_evaluations: int
    zeros: int
    invalid: int
    failed_updates: int
    added: int
    deleted: int
    left_out: int
    verification_evaluations: int = 0
    refuted_evaluations: int = 0

    @property
    def first_evaluations(self) -> int:
        """Evaluations of the target before the first iteration."""
        return self.probe_evaluations + self.start_evaluations

    @property
    def evaluations(self) -> int:
        """All evaluations of the target."""
        searched = self.elbo_evaluations + self.verification_evaluations + self.refuted_evaluations
        return self.first_evaluations + self.training_evaluations + searched


@dataclasses.dataclass(frozen=True)
class Timings:
    """Seconds spent; ``total`` is about the sum of the others.

    Attributes:
        compilation: tracing and compiling the algorithm.
        iterations: running the algorithm, the target included.
        elbo: the final ELBO, with its own compilation.
        total: everything from call to return.
        start: before the first iteration: reading the model, probing the target and initialising, with the
            compilation that these need.
        verification: searches outside of the mixture's samples, with their own compilation.
    """

    compilation: float
    iterations: float
    elbo: float
    total: float
    start: float = 0.0
    verification: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """A fitted mixture with its ELBO, diagnosis and history.

    Attributes:
        mixture: the approximation.
        elbo: its evidence lower bound, with standard error.
        trajectory: every metric of `natmix.Info` as an array over the iterations, and ``seconds``,
            ``total_evaluations`` (those before the first iteration included) and ``objective``.
        counts: iterations and exact numbers of evaluations.
        timings: in seconds, compilation separately.
        stopped: why the fit ended: "converged", "max_iterations", "max_evaluations", "max_seconds",
            "callback", "interrupted", or "failed" in the result that a `TargetError` carries.
        algorithm: the algorithm that ran.
        settings: everything needed to repeat the fit, as plain Python (of an ``init_mixture`` only that there
            was one, of ``init_draws`` their number and SHA-256, as float64 vectors).
        notes: choices made for the user, and what they should know.
        draws: the samples behind ``elbo``, with the log densities of mixture and target; None if their
            evaluation was interrupted.
        target: what was fitted.
        start: one Gaussian, the initial region: candidates for new components were drawn from it.
        model: whose variables the mixture's coordinates are, if they have names; the mixture is then in
            unconstrained coordinates.
        verification: what the searches of the fit outside of the mixture's samples found, and what was
            repaired; None without ``verify``.
    """

    mixture: Mixture
    elbo: Elbo
    trajectory: dict[str, np.ndarray]
    counts: Counts
    timings: Timings
    stopped: str
    algorithm: GMMVI
    settings: dict[str, Any]
    notes: tuple[str, ...]
    draws: EvaluatedDraws | None = dataclasses.field(default=None, repr=False)
    target: AbstractTarget | None = dataclasses.field(default=None, repr=False)
    start: Mixture | None = dataclasses.field(default=None, repr=False)
    model: AbstractModel | None = dataclasses.field(default=None, repr=False)
    verification: Verification | None = dataclasses.field(default=None, repr=False)

    @functools.cached_property
    def diagnosis(self) -> "Diagnosis | None":
        """The diagnosis with default settings, made once; None without samples behind the ELBO.

        It has the searches that the fit has made. After ``fit(verify=False)`` its mode search and its Markov
        chains evaluate the target, each at most a tenth as often as the fit.
        """
        return None if self.draws is None or len(self.draws) < 2 else self.diagnose()

    def diagnose(
        self,
        samples: int = 0,
        *,
        search: "int | Literal['auto']" = "auto",
        explore: "int | Literal['auto']" = "auto",
        seed: int = 0,
    ) -> "Diagnosis":
        """Judge the fit by the samples behind the ELBO, or more, and by searches outside of them.

        Args:
            samples: fresh samples to evaluate in addition to those behind the ELBO.
            search: the number of L-BFGS runs that search for missed modes. They start from samples of the
                initial region, made 1, 3, 10, 30 and 100 times as wide, and from around the known modes; 16
                single evaluations for each run look for places that no known mode explains. 32 runs find
                modes as wide as the region nearly always up to 100 of its widths away and not at 500;
                narrower ones seldom. Without gradients a population of points searches instead, with 100
                evaluations for each run asked for. "auto": what the fit has searched already; after
                ``fit(verify=False)`` 10 to 32 runs, within a tenth of the fit's evaluations and of its
                seconds (or three seconds), none if 10 would cost more. 0 or False: none.
            explore: the number of short Markov chains from samples of the mixture that search for mass next
                to them that it does not cover, such as the neck of a funnel or a heavy tail. Each takes 320
                evaluations (of gradients too, if there are any) and 10 samples of the mixture; 1000 chains
                detect one percent. "auto": 200 to 1000 chains of 80 evaluations, within a tenth of the fit's
                evaluations; none if 200 would cost more, if the target has no gradients or random values, or
                after a fit that was interrupted or failed (the diagnosis says why). 0 or False: none.
            seed: of all random numbers.
        """
        from natmix.result.diagnosing import diagnose_result, number_of_chains, number_of_runs

        samples = as_int(samples, "samples", 0)
        runs, chains = number_of_runs(search), number_of_chains(explore)
        if samples or runs or chains:
            self._check_target("diagnose()")
        return diagnose_result(self, samples, runs, chains, seed)

    def bridge(self, draws: Any, *, samples: int = 0, seed: int = 0) -> Estimate:
        """The log evidence by bridge sampling, with draws of the target from a sampler such as NUTS.

        Unlike importance sampling it does not need a mixture that covers the target's tails. Draws of
        `resample` are not suitable.

        Args:
            draws: the model's variables by name, as `numpyro.infer.MCMC.get_samples` or `pymc.sample` returns
                them; for a function of vectors, vectors [N, D], within its bounds if it has any, as `sample`
                returns them. An array for a model with names is in the mixture's (unconstrained) coordinates.
                Several chains as [C, N, ...].
            samples: fresh samples of the mixture to evaluate in addition to those behind the ELBO.
            seed: of these samples.
        """
        from natmix.result.bridge import bridge

        self._check_target("bridge()")
        return bridge(self, draws, as_int(samples, "samples", 0), seed)

    def sample(self, n: int = 1, *, seed: int = 0) -> Any:
        """``n`` samples of the mixture, [n, D]; for a model its own variables, constrained, samples first."""
        return self._named(self.mixture.sample(as_int(n, "n"), key=seed))

    def predict(
        self, n: int, /, *model_args: Any, seed: int = 0, **model_kwargs: Any
    ) -> dict[str, np.ndarray]:
        """Posterior predictive samples of a PyMC model's observed variables, or of a NumPyro model.

        Without arguments a NumPyro model's observed variables are drawn with the arguments of the fit. With
        arguments (those of the fit without the data, or with new inputs) the model is called with these, and
        all variables that it then draws are returned, with its deterministics.
        """
        if self.model is None:
            raise ValueError("predict() needs a NumPyro or PyMC model, which can draw data.")
        run_key(seed)
        return self.model.predict(int(seed), self.sample(n, seed=seed), model_args, model_kwargs)

    @functools.cached_property
    def _names(self) -> "NamedCoordinates":
        from natmix.result.named_coordinates import NamedCoordinates

        return NamedCoordinates(self.model, self.mixture.dim)

    def _distribution(self) -> "Distribution":
        from natmix.result.distribution import whole_distribution

        return whole_distribution(self._names, self.mixture)

    def marginal(self, *names: str) -> "Distribution":
        """The distribution of some variables, by name, in the model's own (constrained) coordinates.

        It has ``sample``, ``log_prob`` and ``pdf``; that of one number also the methods of SciPy's
        distributions (``cdf``, ``ppf``, ``interval``, ``mean``, ...). It is in closed form, for variables
        whose entries are each a function of one unconstrained coordinate: unbounded ones and those with
        bounds. Of others (a simplex, a covariance, an ordered vector, most deterministics) take draws:
        `sample`, `prob`.

        Args:
            *names: of variables (``"theta"``), or of entries (``"theta[0]"``). A function of vectors has
                ``"x"`` and ``"x[0]"``.
        """
        return self._distribution().marginal(*names)

    def condition(self, given: Mapping[str, Any]) -> "Distribution":
        """The distribution of the other variables where these have the given (constrained) values.

        ``result.condition({"sigma": 0.5}).marginal("mu")``. It is in closed form: a conditional of the
        mixture. The variables given must be such as `marginal` takes.
        """
        return self._distribution().condition(given)

    def prob(
        self,
        event: Callable[[dict[str, np.ndarray]], Any] | Mapping[str, Any],
        n: int | None = None,
        *,
        corrected: bool = False,
        seed: int = 0,
    ) -> Estimate:
        """The probability of an event, with its standard error; 0 means exact.

        Args:
            event: a function of draws by name that returns an array of truth values,
                ``lambda d: d["mu"] > 0``; or bounds by name, ``{"mu": (0, None)}``. Bounds of one number, or
                of a mixture with diagonal covariances, give the exact probability, others one by quasi-Monte
                Carlo (Genz's separation of variables).
            n: the number of draws; 100,000 if left out, and with ``corrected`` those behind the ELBO.
            corrected: weight the draws by their importance weights, as the target has it. ``n`` draws are
                then evaluated; a warning says if the weights are not reliable.
            seed: of the draws.
        """
        if corrected:
            from natmix.result.corrected_probability import corrected_probability

            return corrected_probability(self, event, n, seed)
        found = self._distribution()
        return found.prob(event, seed=seed) if n is None else found.prob(event, n, seed=seed)

    def _check_target(self, what: str) -> None:
        if self.target is None:
            raise ValueError(
                f"This result does not know its target, which {what} has to evaluate: load it with its "
                "model, natmix.Result.load(path, model=model)."
            )

    def _named(self, x: Points) -> Any:
        return x if self.model is None else self.model.constrain(x)

    def resample(self, n: int, *, pool: int | None = None, seed: int = 0) -> Any:
        """Samples corrected by importance weights (Pareto smoothed importance resampling).

        ``pool`` fresh samples of the mixture (5 n if left out, but at least 1000) are evaluated, their
        weights Pareto smoothed, and n of them drawn by these weights. Some occur twice or more if the
        effective sample size of the pool is small. A warning says if the weights are not reliable or too
        few to judge, and if samples were left out because their log density is NaN or +inf.
        """
        from natmix.result.resampling import MIN_POOL, resample

        self._check_target("resample()")
        usual = max(5 * as_int(n, "n"), MIN_POOL)
        return self._named(resample(self, n, usual if pool is None else pool, seed))

    def save(self, path: str | Path) -> None:
        """Write everything but the target's code to a safetensors file, as `Mixture.save` does.

        It holds the mixture, the samples behind the ELBO with both log densities (and the model's own
        variables there), trajectory, counts, settings, names, shapes and bounds of the variables, and
        versions. It also holds the data of NumPyro, PyMC and Stan models, and what mode search and Markov
        chains found if the diagnosis has been made.
        """
        from natmix.result.files import save_result

        save_result(self, path)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: Any = None,
        *,
        model_args: tuple[Any, ...] | None = None,
        model_kwargs: dict[str, Any] | None = None,
        position: Any = None,
        bounds: Any = None,
        dtype: Any = None,
    ) -> "Result":
        """Read a file written by `save`.

        Without the model a result can do everything that needs no evaluation of the target: `sample` (for
        vectors, bounds and pytrees; for other models `to_arviz` has the saved ones), `summary`, `diagnosis`,
        `plot`.

        Args:
            path: the file.
            model: what was given to `natmix.fit`, to be evaluated again by `resample`, `diagnose`, `bridge`
                and `predict`. Position and bounds of a pytree are in the file.
            model_args: as in `natmix.fit`; likewise the next three.
            model_kwargs: as in `natmix.fit`.
            position: as in `natmix.fit`; needed only for a pytree with classes of your own.
            bounds: as in `natmix.fit`.
            dtype: float32 or float64; that of the file if left out.
        """
        from natmix.result.files import load_result
        from natmix.result.saved_model import GivenModel

        return load_result(path, GivenModel(model, model_args, model_kwargs, position, bounds), dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Result":
        """Copies of all arrays; target, model and algorithm are code, and shared."""
        kept = ("target", "model", "algorithm")
        names = [f.name for f in dataclasses.fields(self) if f.name not in kept]
        copied: Result = dataclasses.replace(
            self, **{name: copy.deepcopy(getattr(self, name), memo) for name in names}
        )
        copied.__dict__.update(copy.deepcopy(self._cached(), memo))
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        from natmix.result.pickling import check_code

        check_code(self)
        return Result, tuple(getattr(self, f.name) for f in dataclasses.fields(self)), self._cached()

    def _cached(self) -> "dict[str, Diagnosis]":
        """Cached properties computed so far, for copies."""
        return {name: self.__dict__[name] for name in ("diagnosis",) if name in self.__dict__}

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the fit."""
        return self.stopped == "interrupted"

    @property
    def converged(self) -> bool:
        """Whether the fit ended because the ELBO no longer improved."""
        return self.stopped == "converged"

    def plot(self, **options: Any) -> "FitAxes":
        """Marginals, pairs of coordinates with the components' ellipses, ELBO and number of components.

        ``result.plot().figure.savefig("fit.png")``; the options are those of `natmix.plot.plot_fit`.
        """
        from natmix.plot import plot_fit

        return plot_fit(self, **options)

    def report(self, path: str | Path, *, title: str = "") -> Path:
        """Write one HTML file about the fit, to be read in any browser and sent to others; returns its path.

        It has the verdict in words, pairs of variables with draws, components and contours to look into,
        modes, moments, importance weights, traces, costs, settings, and the call that repeats the fit.
        Nothing in it comes from a network. The target is not evaluated: after ``fit(verify=False)`` ask for
        ``diagnosis`` first. It works for a loaded result too, and says what is missing. It holds the draws
        behind the ELBO and the variables' names, but no data and no code.

        Args:
            path: of the file, such as ``"fit.html"``; it is replaced in one step.
            title: the headline; the names of variables if left out.
        """
        from natmix.report import write_report

        return write_report(self, path, title)

    def to_arviz(
        self,
        *,
        draws: int | None = None,
        predictive: bool = False,
        log_likelihood: bool = False,
        corrected: bool = False,
        seed: int = 0,
    ) -> Any:
        """Samples of the mixture for ArviZ: its InferenceData, or DataTree from version 1 on.

        Groups: ``posterior`` (the model's variables: raw draws of the mixture, without importance weights),
        ``sample_stats`` (``lp``, the target's log density; ``log_mixture``; ``log_weight``, smoothed and
        normalised importance weights), ``observed_data`` of a model that knows its data, and
        ``constant_data`` of a PyMC model's `pymc.Data`. Axes have the names and labels of a PyMC model's dims
        and coords, and the names of a NumPyro model's plates. The draws are independent; they are
        stored as four chains so that plots and diagnostics of chains work, or as three, two or one if the
        number of draws (``elbo_samples``) is not divisible by more.

        Variables are in the order of the model, the latent ones first.

        Args:
            draws: how many; those behind the ELBO (``elbo_samples``) if left out. The target is evaluated at
                the samples beyond these.
            predictive: add ``posterior_predictive``, data drawn by a NumPyro or PyMC model.
            log_likelihood: add ``log_likelihood``, of each observation; of a Stan program its generated
                quantity ``log_lik``.
            corrected: resample the draws by their importance weights, some twice or more; a warning says if
                the weights are not reliable. `resample` has a larger pool to draw from.
            seed: of the data drawn, and of the resampling.
        """
        from natmix.result.to_arviz import to_arviz

        run_key(seed)
        return to_arviz(self, draws, predictive, log_likelihood, corrected, int(seed))

    def to_pandas(self, n: int = 10_000, *, seed: int = 0) -> "pandas.DataFrame":
        """Mean, standard deviation and quantiles of every variable, from samples of the mixture."""
        from natmix.result.export import to_pandas

        return to_pandas(self, n, seed)

    def to_numpyro_guide(self) -> Callable[..., Any]:
        """A guide for the NumPyro model that was fitted, as `numpyro.infer` takes it."""
        if self.model is None:
            raise ValueError("to_numpyro_guide() needs a NumPyro model, and this is the fit of a function.")
        return self.model.guide(self.mixture)

    def sampler_start(self, chains: int = 4, *, seed: int = 0) -> "SamplerStart":
        """Initial points and an inverse mass matrix for NUTS, in unconstrained coordinates and by name.

        ``start = result.sampler_start(4)``, then in NumPyro ``NUTS(model, dense_mass=True,
        inverse_mass_matrix=start.inverse_mass_matrix)`` and ``MCMC(...).run(key, ...,
        init_params=start.by_name)``; in PyMC ``pm.sample(chains=4, initvals=start.initvals)``; in BlackJAX
        ``start.positions`` with ``result.model.log_density``.
        """
        from natmix.result.sampler_start import sampler_start

        return sampler_start(self, chains, seed)

    def summary(self) -> str:
        """The fit in words and numbers, with its diagnosis."""
        from natmix.result.summary import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from natmix.result.notebook import result_html

        return result_html(self)

    def __repr__(self) -> str:
        return f"Result({self.mixture!r}, ELBO {self.elbo}, {self.stopped})"
