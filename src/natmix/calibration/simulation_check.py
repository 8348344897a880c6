"""Simulation-based calibration: whether fits recover the parameters of simulated data.

Parameters are drawn from the prior, data from the model, and the rank of each parameter among draws of its
posterior is uniform if the fits are correct: S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman:
Validating Bayesian inference algorithms with simulation-based calibration, 2018. Ranks that are not symmetric
show a bias: Y. Yao, A. Vehtari, D. Simpson, A. Gelman: Yes, but did it work? Evaluating variational
inference, ICML 2018.
"""

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Float, Int

from natmix.calibration.simulators import as_simulator
from natmix.calibration.simulators.base import Simulated
from natmix.calibration.uniformity import anderson_darling, holm, ranks_among, symmetry, width
from natmix.engine.fits_progress import FitsProgress
from natmix.engine.limits import is_number
from natmix.estimate import Estimate
from natmix.models.base import coordinate_names
from natmix.models.structure import leaf_name
from natmix.random_keys import run_key
from natmix.result.diagnosing import diagnose_samples
from natmix.result.result import Result
from natmix.text.html import preformatted

if TYPE_CHECKING:
    from natmix.calibration.simulators import AbstractSimulator

MIN_FITS = 5
"""Ranks of fewer fits are not tested."""
_MAX_FAILURES = 3
"""The check gives up after this many failures without a success."""


class ParameterCheck(NamedTuple):
    """Tests of the ranks of one parameter.

    Attributes:
        name: of the parameter.
        uniformity: p-value of Anderson and Darling's test that the ranks are uniform.
        symmetry: p-value of Wilcoxon's signed-rank test that the ranks are symmetric about the middle, as
            they are without bias. (Yao et al. compare u and 1 - u by the Kolmogorov-Smirnov distance.)
        width: p-value of the chi-squared test that the ranks have the variance they should have.
        bias: how far true values lie above the draws on average, in standard deviations of the posterior:
            the mean of z, the normal quantiles of the ranks. It should be 0.
        spread: the standard deviation of z. It should be 1, and is larger if the approximation is too narrow.
        biased: whether symmetry is rejected.
        wrong_width: whether the width is rejected.
        not_uniform: whether uniformity is rejected.
    """

    name: str
    uniformity: float
    symmetry: float
    width: float
    bias: Estimate
    spread: Estimate
    biased: bool
    wrong_width: bool
    not_uniform: bool

    @property
    def flagged(self) -> bool:
        """Whether any test is rejected."""
        return self.biased or self.wrong_width or self.not_uniform

    @property
    def p_value(self) -> float:
        """The smallest of the three."""
        return min(self.uniformity, self.symmetry, self.width)


@dataclasses.dataclass(frozen=True, repr=False)
class SimulationCheck:
    """Ranks of true parameters among posterior draws given their data; printing it shows the verdict.

    Attributes:
        names: of the parameters, entries of arrays one by one, deterministics included.
        ranks: 0 to ``draws``, one row per fit.
        pit_values: (rank + u) / (draws + 1) with u uniform between 0 and 1: exactly uniform if the fits are
            correct (randomised probability integral transform).
        draws: the number of draws of each posterior.
        level: the largest probability of a false alarm about any parameter.
        k_hats: k-hat of every fit, NaN where unknown.
        failures: error messages of the fits that failed.
        asked: the number of fits asked for.
    """

    names: tuple[str, ...]
    ranks: Int[np.ndarray, "F P"]
    pit_values: Float[np.ndarray, "F P"]
    draws: int
    level: float
    k_hats: Float[np.ndarray, " F"]
    failures: tuple[str, ...]
    asked: int

    @property
    def fits(self) -> int:
        """The number of successful fits."""
        return len(self.ranks)

    @functools.cached_property
    def parameters(self) -> tuple[ParameterCheck, ...]:
        """The tests of every parameter, corrected for multiple testing by Holm's procedure."""
        if self.fits < MIN_FITS:
            raise ValueError(f"There are ranks of {self.fits} fits; tests need at least {MIN_FITS}.")
        columns = self.pit_values.T
        tests = (anderson_darling, symmetry, width)
        p_values = np.array([[test(u).p_value for u in columns] for test in tests])
        rejected = holm(p_values.ravel(), self.level).reshape(p_values.shape)
        z = scipy.special.ndtri(columns)
        spread = z.std(axis=1, ddof=1)
        n = self.fits
        return tuple(
            ParameterCheck(
                name,
                float(p_values[0, i]),
                float(p_values[1, i]),
                float(p_values[2, i]),
                Estimate(float(z[i].mean()), float(spread[i] / np.sqrt(n))),
                Estimate(float(spread[i]), float(spread[i] / np.sqrt(2 * (n - 1)))),
                biased=bool(rejected[1, i]),
                wrong_width=bool(rejected[2, i]),
                not_uniform=bool(rejected[0, i]),
            )
            for i, name in enumerate(self.names)
        )

    @property
    def flagged(self) -> tuple[ParameterCheck, ...]:
        """Parameters with a rejected test, the smallest p-value first."""
        wrong = [p for p in self.parameters if p.flagged]
        return tuple(sorted(wrong, key=lambda p: p.p_value))

    @property
    def passed(self) -> bool:
        """Whether no test is rejected."""
        return not self.flagged

    @property
    def visible_bias(self) -> float:
        """A bias of this many standard deviations is detected with a power of 0.8."""
        # Wilcoxon's test has the power of a test of the mean with 3 / pi times as many fits.
        quantile = scipy.special.ndtri(1 - self._strictest / 2)
        return float((quantile + scipy.special.ndtri(0.8)) / np.sqrt(self.fits * 3 / np.pi))

    @property
    def visible_spread(self) -> float:
        """If an approximation is too narrow by this factor, it is detected with a power of 0.8."""
        freedom = self.fits - 1
        return float(
            np.sqrt(scipy.special.chdtri(freedom, self._strictest / 2) / scipy.special.chdtri(freedom, 0.8))
        )

    @property
    def _strictest(self) -> float:
        """The level at which a test is rejected whatever the others say."""
        return self.level / (3 * len(self.names))

    def plot(self, **options: Any) -> np.ndarray:
        """Histograms of the ranks, with the range expected by chance: `natmix.plot.plot_ranks`."""
        from natmix.plot import plot_ranks

        return plot_ranks(self, **options)

    def __str__(self) -> str:
        from natmix.calibration.wording import words

        return "\n".join(words(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def simulation_check(
    model: Any,
    *,
    model_args: tuple[Any, ...] | None = None,
    model_kwargs: dict[str, Any] | None = None,
    observed: Sequence[str] | None = None,
    simulate: Callable[[Any], tuple[Any, Any]] | None = None,
    bounds: Any = None,
    fits: int = 50,
    draws: int = 999,
    corrected: bool = False,
    level: float = 0.05,
    seed: int = 0,
    fit: Callable[..., Any] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> SimulationCheck:
    """Draw parameters and data, fit, and rank the true parameters among the posterior draws.

    This checks fits with the given settings on data from the prior predictive distribution. It does not check
    the model, nor the fit to your own data (see `Result.diagnose`). Data are arguments of the compiled
    programs, so only the first fits compile. Ctrl-C returns the check of the fits done so far.

    Args:
        model: a NumPyro or PyMC model, or with ``simulate`` a function of (parameters, data) that gives the
            log of prior times likelihood.
        model_args: of a NumPyro model, as for a fit; simulated values replace the observed ones. Data
            that are not observed variables stay as they are.
        model_kwargs: its keyword arguments.
        observed: names of a NumPyro model's variables that are data. Default: those that it observes.
        simulate: a function of a key (`jax.random`) that returns (parameters, data), pytrees of arrays.
        bounds: of these parameters, as `natmix.fit` takes them.
        fits: the number of simulations.
        draws: the number of draws of each posterior; ranks are 0 to ``draws``.
        corrected: check the draws of `Result.resample` instead of the mixture's.
        level: the largest probability of a false alarm about any parameter.
        seed: every random number follows from it.
        fit: a function to check instead of `natmix.fit`, called as ``fit(model, seed=..., **options)`` with a
            `natmix.models.AbstractModel` (its data are ``model.observed``). It returns an object with a
            method ``sample(n, seed=...)``.
        progress: show a live line. Default: only on a terminal and in a notebook.
        **options: of the fits, for example ``max_evaluations=20_000`` to be quick.

    Raises:
        ValueError: an argument cannot be used, or the first three simulations all fail.
    """
    for name, value, low in (("fits", fits, MIN_FITS), ("draws", draws, 9)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
            raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if not (is_number(level) and 0 < level < 1):
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    key = run_key(seed)
    simulator = as_simulator(model, model_args, model_kwargs, observed, simulate, bounds)
    recorder = _RankRecorder(fit or _natmix_fit, options, draws, corrected, np.random.default_rng(seed))
    with FitsProgress("simulation check", fits, progress) as shown:
        _check_all(recorder, simulator, key, fits, shown)
    if not recorder.ranks:
        if not recorder.failures:
            raise KeyboardInterrupt  # before the first fit ended
        raise ValueError(f"No simulation could be fitted: {recorder.failures[0]}")
    ranks = np.stack(recorder.ranks)
    pit_values = (ranks + recorder.rng.random(ranks.shape)) / (draws + 1)
    found = (draws, level, np.array(recorder.k_hats), tuple(recorder.failures), fits)
    return SimulationCheck(recorder.names, ranks, pit_values, *found)


def _check_all(
    recorder: "_RankRecorder", simulator: "AbstractSimulator", key: Any, fits: int, shown: FitsProgress
) -> None:
    try:
        for i, simulated in enumerate(simulator.simulations(key, fits)):
            if not recorder.record(simulated, i):
                break
            shown.done(i + 1, len(recorder.failures))
            if not recorder.ranks and len(recorder.failures) >= _MAX_FAILURES:
                break
    except KeyboardInterrupt:
        if not recorder.ranks:
            raise


@dataclasses.dataclass
class _RankRecorder:
    """Fits simulations and keeps the ranks."""

    fit: Callable[..., Any]
    options: dict[str, Any]
    draws: int
    corrected: bool
    rng: np.random.Generator
    names: tuple[str, ...] = ()
    ranks: list[np.ndarray] = dataclasses.field(default_factory=list)
    k_hats: list[float] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)

    def record(self, simulated: Simulated, number: int) -> bool:
        """Fit one more simulation; False if Ctrl-C ended it."""
        seed = int(self.rng.integers(2**31))
        try:
            result = self.fit(simulated.model, seed=seed, **self.options)
            if getattr(result, "interrupted", False):
                return False
            sample = result.resample if self.corrected else result.sample
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "k-hat is")  # reported at the end, for all fits
                names, draws = _columns(sample(self.draws, seed=seed), self.draws)
        except Exception as error:  # one failed fit must not lose the others
            if number == 0 and isinstance(error, (TypeError, ValueError)):
                raise  # most likely a bad argument, the same for all fits
            self.failures.append(f"fit {number}: {type(error).__name__}: {error}")
            return True
        own, truth = _columns(jax.tree.map(lambda a: np.asarray(a)[None], simulated.truth), 1)
        if set(names) != set(own):
            raise ValueError(
                f"The draws hold {', '.join(sorted(names))}, but the simulated parameters "
                f"{', '.join(sorted(own))}."
            )
        draws = draws[:, [names.index(name) for name in own]]
        if not np.isfinite(draws).all() or not np.isfinite(truth).all():
            self.failures.append(f"fit {number}: draws or true parameters are not finite")
            return True
        self.names = own
        self.ranks.append(ranks_among(truth[0], draws, self.rng))
        # By its samples alone: a mode search and chains would cost as much as many fits, for the same k-hat.
        judged = (
            diagnose_samples(result) if isinstance(result, Result) else getattr(result, "diagnosis", None)
        )
        self.k_hats.append(np.nan if judged is None else float(judged.k_hat))
        return True


def _columns(tree: Any, number: int) -> tuple[tuple[str, ...], Float[np.ndarray, "N P"]]:
    """Every entry of every variable as a column, with its name."""
    names: list[str] = []
    columns: list[np.ndarray] = []
    for path, value in jax.tree_util.tree_leaves_with_path(tree):
        array = np.asarray(value, float)
        names += coordinate_names(leaf_name(path) or "x", array.shape[1:])
        columns.append(array.reshape(number, -1))
    return tuple(names), np.concatenate(columns, axis=1)


def _natmix_fit(model: Any, *, seed: int, **options: Any) -> Any:
    from natmix.fit import fit

    with warnings.catch_warnings():
        # Said about the data of a target outside JAX, whose function is never compiled.
        warnings.filterwarnings("ignore", "A JAX array is being set as static")
        return fit(model, seed=seed, progress=False, **options)
