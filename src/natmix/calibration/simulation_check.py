"""Does a fit find the parameters that the data were drawn with?

Parameters are drawn from the prior, data from the model, and the rank of each parameter among draws of its
posterior is uniform if the posterior is right: S. Talts, M. Betancourt, D. Simpson, A. Vehtari, A. Gelman:
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

from natmix.calibration.progress import SimulationProgress
from natmix.calibration.simulators import as_simulator
from natmix.calibration.simulators.base import Simulated
from natmix.calibration.uniformity import anderson_darling, holm, ranks_among, symmetry, width
from natmix.engine.limits import is_number
from natmix.estimate import Estimate
from natmix.initialization.arguments import run_key
from natmix.models.base import coordinate_names
from natmix.models.structure import leaf_name
from natmix.result.diagnosing import by_samples
from natmix.result.result import Result

if TYPE_CHECKING:
    from natmix.calibration.simulators import AbstractSimulator

FEWEST_FITS = 5
"""Ranks of fewer are not tested."""
_HOPELESS = 3
"""Failures before the first success after which the check gives up."""


class ParameterCheck(NamedTuple):
    """The ranks of one parameter in numbers.

    Attributes:
        name: of the parameter.
        uniformity: p-value of Anderson and Darling's test that the ranks are uniform.
        symmetry: p-value of Wilcoxon's signed-rank test that they lie evenly on both sides of the middle, as
            they do without a bias. (Yao et al. compare u and 1 - u by Kolmogorov and Smirnov's distance.)
        width: p-value of the chi-squared test that they scatter as they should.
        bias: how far truths lie above the draws on average, in standard deviations of the posterior: the mean
            of z, the normal quantiles of the ranks. Right is 0.
        spread: the standard deviation of z. Right is 1; larger if the approximation is too narrow.
        biased: whether the symmetry is rejected.
        mistaken_width: whether the width is rejected.
        misshapen: whether the uniformity is rejected.
    """

    name: str
    uniformity: float
    symmetry: float
    width: float
    bias: Estimate
    spread: Estimate
    biased: bool
    mistaken_width: bool
    misshapen: bool

    @property
    def flagged(self) -> bool:
        """Whether anything is wrong."""
        return self.biased or self.mistaken_width or self.misshapen

    @property
    def p_value(self) -> float:
        """The least of the three."""
        return min(self.uniformity, self.symmetry, self.width)


@dataclasses.dataclass(frozen=True)
class SimulationCheck:
    """Ranks of true parameters among draws of the posteriors fitted to their data.

    Attributes:
        names: of the parameters, entries of arrays one by one, deterministics too.
        ranks: 0 to ``draws``, one row per fit.
        places: (rank + u) / (draws + 1) with u uniform between 0 and 1: exactly uniform if all is right.
        draws: of each posterior.
        level: probability of a false alarm about any parameter, at most.
        k_hats: of every fit, NaN where unknown.
        failures: what was wrong with fits that gave no ranks.
        asked: how many fits were wanted.
    """

    names: tuple[str, ...]
    ranks: Int[np.ndarray, "F P"]
    places: Float[np.ndarray, "F P"]
    draws: int
    level: float
    k_hats: Float[np.ndarray, " F"]
    failures: tuple[str, ...]
    asked: int

    @property
    def fits(self) -> int:
        """Fits with ranks."""
        return len(self.ranks)

    @functools.cached_property
    def parameters(self) -> tuple[ParameterCheck, ...]:
        """Every parameter's numbers; the tests are corrected for their number by Holm's procedure."""
        if self.fits < FEWEST_FITS:
            raise ValueError(f"There are ranks of {self.fits} fits; tests need at least {FEWEST_FITS}.")
        columns = self.places.T
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
                mistaken_width=bool(rejected[2, i]),
                misshapen=bool(rejected[0, i]),
            )
            for i, name in enumerate(self.names)
        )

    @property
    def flagged(self) -> tuple[ParameterCheck, ...]:
        """Parameters with something wrong, the worst first."""
        wrong = [p for p in self.parameters if p.flagged]
        return tuple(sorted(wrong, key=lambda p: p.p_value))

    @property
    def passed(self) -> bool:
        """Whether nothing wrong was seen."""
        return not self.flagged

    @property
    def visible_bias(self) -> float:
        """Standard deviations of bias that are seen with probability 0.8 or more."""
        # Wilcoxon's test needs pi / 3 times the numbers that a test of the mean would need.
        quantile = scipy.special.ndtri(1 - self._strictest / 2)
        return float((quantile + scipy.special.ndtri(0.8)) / np.sqrt(self.fits * 3 / np.pi))

    @property
    def visible_spread(self) -> float:
        """The factor by which an approximation must be too narrow to be seen with probability 0.8 or more."""
        freedom = self.fits - 1
        return float(
            np.sqrt(scipy.special.chdtri(freedom, self._strictest / 2) / scipy.special.chdtri(freedom, 0.8))
        )

    @property
    def _strictest(self) -> float:
        """The level of each test that is enough to be rejected, however the others end."""
        return self.level / (3 * len(self.names))

    def plot(self, **options: Any) -> np.ndarray:
        """Histograms of the ranks, with what chance gives: `natmix.plot.plot_ranks`."""
        from natmix.plot import plot_ranks

        return plot_ranks(self, **options)

    def __str__(self) -> str:
        from natmix.calibration.wording import words

        return "\n".join(words(self))


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
    """Draw parameters and data, fit, and see where the true parameters lie among the posterior draws.

    It judges the fit as it is configured, on data as the prior expects them; not the model, and not the fit
    to one's own data (for which there is `Result.diagnose`). Data are arguments of the compiled programs, so
    only the first fits compile. Ctrl-C returns what is there.

    Args:
        model: a NumPyro or PyMC model, or with ``simulate`` a function of (parameters, data) that gives the
            log of prior times likelihood.
        model_args: of a NumPyro model, as for a fit: the observed values among them are replaced by simulated
            ones. Data that enter otherwise than as observed variables stay as they are.
        model_kwargs: its keyword arguments.
        observed: names of a NumPyro model's variables that are data; those that it observes if left out.
        simulate: a function of a key (`jax.random`) that returns (parameters, data), pytrees of arrays.
        bounds: of these parameters, as `natmix.fit` takes them.
        fits: how many simulations.
        draws: of each posterior; ranks are 0 to ``draws``.
        corrected: check the draws of `Result.resample` instead of the mixture's.
        level: probability of a false alarm about any parameter, at most.
        seed: every random number follows from it.
        fit: what to check instead of `natmix.fit`: called as ``fit(model, seed=..., **options)`` with a
            `natmix.models.AbstractModel` (its data are ``model.observed``), it returns something with a
            method ``sample(n, seed=...)``.
        progress: show a live line; only on a terminal if left out.
        **options: of the fits, for example ``max_evaluations=20_000`` to be quick.

    Raises:
        ValueError: an argument cannot be used, or the first three simulations all fail.
    """
    for name, value, low in (("fits", fits, FEWEST_FITS), ("draws", draws, 9)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
            raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if not (is_number(level) and 0 < level < 1):
        raise ValueError(f"level must lie between 0 and 1, got {level!r}.")
    key = run_key(seed)
    simulator = as_simulator(model, model_args, model_kwargs, observed, simulate, bounds)
    look = _Look(fit or _natmix_fit, options, draws, corrected, np.random.default_rng(seed))
    with SimulationProgress(fits, progress) as shown:
        _look_at_all(look, simulator, key, fits, shown)
    if not look.rows:
        if not look.failures:
            raise KeyboardInterrupt  # before the first fit was ready
        raise ValueError(f"No simulation could be fitted: {look.failures[0]}")
    ranks = np.stack(look.rows)
    places = (ranks + look.rng.random(ranks.shape)) / (draws + 1)
    found = (draws, level, np.array(look.k_hats), tuple(look.failures), fits)
    return SimulationCheck(look.names, ranks, places, *found)


def _look_at_all(
    look: "_Look", simulator: "AbstractSimulator", key: Any, fits: int, shown: SimulationProgress
) -> None:
    try:
        for i, simulated in enumerate(simulator.simulations(key, fits)):
            if not look.saw(simulated, i):
                break
            shown.done(i + 1, len(look.failures))
            if not look.rows and len(look.failures) >= _HOPELESS:
                break
    except KeyboardInterrupt:
        if not look.rows:
            raise


@dataclasses.dataclass
class _Look:
    """Fits simulations and keeps the ranks."""

    fit: Callable[..., Any]
    options: dict[str, Any]
    draws: int
    corrected: bool
    rng: np.random.Generator
    names: tuple[str, ...] = ()
    rows: list[np.ndarray] = dataclasses.field(default_factory=list)
    k_hats: list[float] = dataclasses.field(default_factory=list)
    failures: list[str] = dataclasses.field(default_factory=list)

    def saw(self, simulated: Simulated, number: int) -> bool:
        """Fit one more; False if Ctrl-C ended it."""
        seed = int(self.rng.integers(2**31))
        try:
            result = self.fit(simulated.model, seed=seed, **self.options)
            if getattr(result, "interrupted", False):
                return False
            sample = result.resample if self.corrected else result.sample
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "k-hat is")  # told at the end, for all fits
                names, draws = _columns(sample(self.draws, seed=seed), self.draws)
        except Exception as error:  # one fit in fifty must not lose the others
            if number == 0 and isinstance(error, (TypeError, ValueError)):
                raise  # most likely an argument that no fit can use
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
        self.rows.append(ranks_among(truth[0], draws, self.rng))
        # By its samples: climbs and chains would cost as much as many fits and do not change k-hat.
        diagnosis = by_samples(result) if isinstance(result, Result) else getattr(result, "diagnosis", None)
        self.k_hats.append(np.nan if diagnosis is None else float(diagnosis.k_hat))
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
