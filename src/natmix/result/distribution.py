"""The distribution of some variables of a fit, in the model's own (constrained) coordinates."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from natmix.checks import as_int
from natmix.estimate import Estimate, counted
from natmix.mixture import Mixture
from natmix.models.scalar_maps import ScalarEntry
from natmix.random_keys import run_key
from natmix.result.named_coordinates import NamedCoordinates, Part
from natmix.result.probability import box_probability, event_probability, truth
from natmix.result.transformed_mixture import TransformedMixture
from natmix.text.suggestions import hint

EVENT_DRAWS = 100_000
"""Draws for the probability of an event."""


class Distribution:
    """A marginal or a conditional of a fit, with the model's names.

    Made by `natmix.Result.marginal` and `natmix.Result.condition`. That of one number has the methods of
    SciPy's continuous distributions.

    Attributes:
        mixture: of the unconstrained coordinates that these variables depend on.
        names: of the variables.
        given: the values conditioned on, by name.
    """

    def __init__(
        self,
        over: NamedCoordinates,
        mixture: Mixture,
        coordinates: tuple[int, ...],
        parts: tuple[Part, ...],
        fixed: Mapping[int, float],
        given: Mapping[str, Any],
        whole: bool,
    ) -> None:
        self._over, self._coordinates, self._parts = over, coordinates, parts
        self._fixed, self._whole = dict(fixed), whole
        self.mixture = mixture
        self.names = tuple(part.name for part in parts)
        self.given = dict(given)

    def __repr__(self) -> str:
        condition = ", ".join(f"{name} = {value}" for name, value in self.given.items())
        shown = ", ".join(self.names) + (f" | {condition}" if condition else "")
        return f"{type(self).__name__}({shown}; {counted(self.mixture.num_components, 'component')})"

    def sample(self, n: int = 1, *, seed: int = 0) -> dict[str, np.ndarray]:
        """``n`` samples by name, samples first.

        A conditional has all variables of the model: those given, and those computed from others.
        """
        z = np.asarray(self.mixture.sample(as_int(n, "n"), key=seed))
        if self._whole:
            return self._over.draws(self._vectors(z))
        place = {coordinate: i for i, coordinate in enumerate(self._coordinates)}
        out = {}
        for part in self._parts:
            columns = [e.map.constrain(z[:, place[e.coordinate]]) for e in _known(part)]
            out[part.name] = np.stack(columns, axis=1).astype(z.dtype).reshape(n, *part.shape)
        return out

    def log_prob(self, values: Any) -> Any:
        """Log density; -inf outside of the support.

        Args:
            values: by name, each with any axes of points before its own; or an array [..., M] of all numbers
                in the order of `names`; for one number an array of points.
        """
        y = self._columns(values)
        if y.shape[-1] == 1:
            return self._one.logpdf(y[..., 0])
        entries = [entry for part in self._parts for entry in self._density_entries(part)]
        place = {coordinate: i for i, coordinate in enumerate(self._coordinates)}
        z, log_slope = np.zeros((*y.shape[:-1], len(entries))), np.zeros(y.shape[:-1])
        for i, entry in enumerate(entries):
            at = np.asarray(entry.map.unconstrain(y[..., i]))
            z[..., place[entry.coordinate]] = at
            log_slope = log_slope + entry.map.log_slope(np.where(np.isfinite(at), at, 0.0))
        inside = np.all(np.isfinite(z), axis=-1)
        at_inside = jnp.asarray(np.where(inside[..., None], z, 0.0), self.mixture.dtype)
        log_q = np.asarray(self.mixture.log_prob(at_inside), float)
        out = np.where(inside, log_q - log_slope, -np.inf)
        return np.where(np.isnan(y).any(axis=-1), np.nan, out)[()]

    def pdf(self, values: Any) -> Any:
        """Density; see `log_prob`."""
        return np.exp(self.log_prob(values))

    def marginal(self, *names: str) -> "Distribution":
        """The distribution of some of these variables, in closed form; of one number with SciPy's methods."""
        if not names:
            raise ValueError(f"Name at least one variable. There are {', '.join(self.names)}.")
        parts = tuple(self._over.known_part(name) for name in names)
        owner: dict[int, str] = {}
        for part in parts:
            for label, entry in zip(part.labels, _known(part), strict=True):
                if entry.coordinate in self._fixed:
                    raise ValueError(f"{label} has no distribution here: its value is given.")
                if entry.coordinate not in self._coordinates:
                    raise ValueError(f"There is no variable {label!r} here. {hint(label, self.names)}")
                if entry.coordinate in owner:
                    raise ValueError(
                        f"{label} and {owner[entry.coordinate]} depend on the same coordinate, so they have "
                        "no joint density: ask for one of them."
                    )
                owner[entry.coordinate] = label
        dims = [self._coordinates.index(coordinate) for coordinate in owner]
        return Distribution(
            self._over, self.mixture.marginal(dims), tuple(owner), parts, {}, self.given, whole=False
        )

    def condition(self, given: Mapping[str, Any]) -> "Distribution":
        """The distribution of the other variables where these have the given (constrained) values.

        In closed form; the result knows the names of those that remain.
        """
        found = self._over.conditions(given)
        for coordinate in found:
            if coordinate not in self._coordinates:
                names = ", ".join(given)
                raise ValueError(f"{names} cannot be given here: the variables are {', '.join(self.names)}.")
        if len(found) == len(self._coordinates):
            raise ValueError("With all variables given nothing is left: leave out at least one.")
        mixture = self.mixture.condition({self._coordinates.index(d): z for d, z in found.items()})
        left = tuple(d for d in self._coordinates if d not in found)
        fixed = {**self._fixed, **found}
        if self._whole:
            parts = self._over.latent_parts(fixed)
        else:
            parts = tuple(part for whole in self._parts for part in _without(self._over, whole, set(found)))
        return Distribution(
            self._over, mixture, left, parts, fixed, {**self.given, **given}, whole=self._whole
        )

    def prob(
        self,
        event: Callable[[dict[str, np.ndarray]], Any] | Mapping[str, Any],
        n: int = EVENT_DRAWS,
        *,
        seed: int = 0,
    ) -> Estimate:
        """The probability of an event, with its standard error; see `natmix.Result.prob`."""
        if callable(event):
            n = as_int(n, "n", 2)
            run_key(seed)
            return event_probability(truth(event, self.sample(n, seed=seed), n), None)
        low, high = self._over.box(as_box(event))
        outside = [d for d, z in self._fixed.items() if not low[d] <= z <= high[d]]
        if outside:
            return Estimate(0.0, 0.0)
        bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high) | (low >= high))
        missing = [d for d in bounded if d not in self._coordinates and d not in self._fixed]
        if missing:
            raise ValueError(f"The bounds must be of {', '.join(self.names)}.")
        own = list(self._coordinates)
        return box_probability(self.mixture, low[own], high[own], seed)

    # One number, as SciPy's continuous distributions ----------------------------------------------

    @functools.cached_property
    def _one(self) -> TransformedMixture:
        entries = [entry for part in self._parts for entry in part.entries]
        if len(entries) != 1:
            raise ValueError(
                f"This method is for the distribution of one number, and {', '.join(self.names)} are "
                f"{len(entries)}: take .marginal({self._parts[0].labels[0]!r}) first."
            )
        (entry,) = self._density_entries(self._parts[0])
        return TransformedMixture(self.mixture, entry.map)

    def logpdf(self, x: Any) -> Any:
        """Log density; see `log_prob`."""
        return self.log_prob(x)

    def cdf(self, x: Any) -> Any:
        """P(X <= x)."""
        return np.exp(self.logcdf(x))

    def logcdf(self, x: Any) -> Any:
        """Log P(X <= x)."""
        return self._one.logcdf(x)

    def sf(self, x: Any) -> Any:
        """P(X > x)."""
        return np.exp(self.logsf(x))

    def logsf(self, x: Any) -> Any:
        """Log P(X > x)."""
        return self._one.logcdf(x, above=True)

    def ppf(self, q: Any) -> Any:
        """The quantile: x with P(X <= x) = q."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._one.quantile(np.log(np.asarray(q, float)))

    def isf(self, q: Any) -> Any:
        """The x with P(X > x) = q."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self._one.quantile(np.log(np.asarray(q, float)), above=True)

    def interval(self, confidence: Any) -> tuple[Any, Any]:
        """The ends of the interval with equal tails that has this probability."""
        tail = (1 - np.asarray(confidence, float)) / 2
        return self.ppf(tail), self.isf(tail)

    def support(self) -> tuple[float, float]:
        """The ends of the support."""
        return self._one.support

    def median(self) -> float:
        """The median."""
        return float(self.ppf(0.5))

    def mean(self) -> float:
        """The mean."""
        return self._one.moments()[0]

    def var(self) -> float:
        """The variance."""
        return self._one.moments()[1]

    def std(self) -> float:
        """The standard deviation."""
        return float(np.sqrt(self.var()))

    def rvs(self, size: int | tuple[int, ...] | None = None, random_state: Any = None) -> Any:
        """Samples of this shape; a number if it is left out."""
        rng = np.random.default_rng(random_state)
        shape = () if size is None else tuple(np.atleast_1d(size))
        return self._one.draws(int(np.prod(shape)), rng).reshape(shape)[()]

    # Coordinates ----------------------------------------------------------------------------------

    def _vectors(self, z: Float[np.ndarray, "N M"]) -> Float[np.ndarray, "N D"]:
        x = np.empty((len(z), self._over.dim), z.dtype)
        x[:, list(self._coordinates)] = z
        for coordinate, value in self._fixed.items():
            x[:, coordinate] = value
        return x

    def _density_entries(self, part: Part) -> list[ScalarEntry]:
        if any(entry is None for entry in part.entries):
            others = [p.name for p in self._parts if p is not part and None not in p.entries]
            instead = f".marginal({', '.join(map(repr, others))})" if others else ".sample(1000)"
            raise ValueError(
                f"{part.name} has no density in closed form: its entries depend on several coordinates, "
                f"so use {instead} instead."
            )
        return _known(part)

    def _columns(self, values: Any) -> Float[np.ndarray, "... M"]:
        """All numbers in the last axis."""
        numbers = sum(len(part.entries) for part in self._parts)
        if not isinstance(values, Mapping):
            array = np.asarray(values, float)
            if numbers == 1 and len(self._parts) == 1 and not self._parts[0].shape:
                return array[..., None]
            if not array.ndim or array.shape[-1] != numbers:
                raise ValueError(
                    f"Give values by name, or an array with {counted(numbers, 'number')} in its last axis "
                    f"({', '.join(self.names)}), got shape {list(array.shape)}."
                ) from None
            return array
        arrays = []
        for part in self._parts:
            if part.name not in values:
                raise ValueError(
                    f"The values do not have {part.name!r}; the names are {', '.join(self.names)}."
                )
            array = np.asarray(values[part.name], float)
            points = array.shape[: array.ndim - len(part.shape)]
            if array.shape[len(points) :] != part.shape:
                raise ValueError(
                    f"The values of {part.name} must end with the shape {list(part.shape)}, got "
                    f"{list(array.shape)}."
                )
            arrays.append(array.reshape(*points, len(part.entries)))
        lead = np.broadcast_shapes(*(array.shape[:-1] for array in arrays))
        return np.concatenate([np.broadcast_to(a, (*lead, a.shape[-1])) for a in arrays], axis=-1)


def whole_distribution(over: NamedCoordinates, mixture: Mixture) -> Distribution:
    """The distribution of all variables."""
    coordinates = tuple(range(mixture.dim))
    return Distribution(over, mixture, coordinates, over.latent_parts(()), {}, {}, whole=True)


def _known(part: Part) -> list[ScalarEntry]:
    return [entry for entry in part.entries if entry is not None]


def _without(over: NamedCoordinates, part: Part, lost: set[int]) -> list[Part]:
    """The part, or those of its entries that are left."""
    left = [label for label, e in zip(part.labels, _known(part), strict=True) if e.coordinate not in lost]
    return [part] if len(left) == len(part.labels) else [over.part(label) for label in left]


def as_box(event: Any) -> Mapping[str, Any]:
    """An event that is not a function: bounds by name."""
    if not isinstance(event, Mapping):
        raise ValueError(
            "An event is a function of the draws, such as lambda d: d['mu'] > 0, or bounds by name, such as "
            f"{{'mu': (0, None)}}; got {type(event).__name__}."
        )
    return event
