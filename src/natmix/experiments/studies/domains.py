"""What values a setting may take: ranges, lists, one value; and joint choices of several settings."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natmix.engine.limits import is_number
from natmix.experiments.studies.trial_runner import Setting


class FloatRange(NamedTuple):
    """Real numbers from ``low`` to ``high``, uniform in their logarithm if ``log``.

    Attributes:
        low: the least.
        high: the largest.
        log: whether the logarithm is uniform.
        points: how many a grid takes; None where it cannot.
    """

    low: float
    high: float
    log: bool = False
    points: int | None = None

    def draw(self, rng: np.random.Generator) -> float:
        """A random value."""
        share = rng.uniform()
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return min(max(value, self.low), self.high)

    def grid(self) -> list[float]:
        """Values at equal distances."""
        assert self.points is not None
        space = np.geomspace if self.log else np.linspace
        return [float(value) for value in space(self.low, self.high, self.points)]

    def ends(self) -> tuple[float, float]:
        """Values to check."""
        return self.low, self.high


class IntRange(NamedTuple):
    """Whole numbers from ``low`` to ``high``, both included; the rest as in `FloatRange`."""

    low: int
    high: int
    log: bool = False
    points: int | None = None

    def draw(self, rng: np.random.Generator) -> int:
        """A random value."""
        if not self.log:
            return int(rng.integers(self.low, self.high, endpoint=True))
        drawn = FloatRange(self.low - 0.5 if self.low > 0 else 0.5, self.high + 0.5, log=True).draw(rng)
        return min(max(round(drawn), self.low), self.high)

    def grid(self) -> list[int]:
        """Values at equal distances, each once."""
        values = FloatRange(self.low, self.high, self.log, self.points).grid()
        return list(dict.fromkeys(round(value) for value in values))

    def ends(self) -> tuple[int, int]:
        """Values to check."""
        return self.low, self.high


class Choice(NamedTuple):
    """One of a list of values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        """A random value."""
        return self.values[int(rng.integers(len(self.values)))]

    def grid(self) -> list[Any]:
        """All values."""
        return list(self.values)

    def ends(self) -> tuple[Any, ...]:
        """Values to check."""
        return self.values


Domain = FloatRange | IntRange | Choice

_RANGE_KEYS = ("low", "high", "log", "integer", "points")


def read_domain(value: Any) -> Domain | Setting:
    """A domain, or the one value, of an entry of a study file.

    Raises:
        ValueError: it is neither; the message has no subject.
    """
    if isinstance(value, Mapping):
        return _range(value)
    if isinstance(value, (list, tuple)):
        if not value or not all(is_setting(entry) for entry in value):
            raise ValueError("must be a list of at least one number, word or true and false")
        return Choice(tuple(value))
    if not is_setting(value):
        raise ValueError(f"must be a value, a list of values or {{low = ..., high = ...}}, got {value!r}")
    return value


def is_setting(value: Any) -> bool:
    """Whether it is a number, a word or a bool."""
    return isinstance(value, (str, bool)) or (is_number(value) and math.isfinite(value))


def _range(value: Mapping[str, Any]) -> FloatRange | IntRange:
    unknown = [key for key in value if key not in _RANGE_KEYS]
    if unknown:
        raise ValueError(f"has {unknown[0]!r}; a range has {', '.join(_RANGE_KEYS)}")
    low, high, log = value.get("low"), value.get("high"), value.get("log", False)
    integer, points = value.get("integer", False), value.get("points")
    if not (is_setting(low) and is_setting(high) and is_number(low) and is_number(high)):
        raise ValueError("must have low and high, which are numbers")
    assert low is not None
    assert high is not None
    if not isinstance(log, bool) or not isinstance(integer, bool):
        raise ValueError("must have true or false as log and integer")
    if not low < high:
        raise ValueError(f"must have low below high, got {low} and {high}")
    if log and low <= 0:
        raise ValueError(f"must have a positive low for a logarithmic range, got {low}")
    if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < 2):
        raise ValueError(f"must have at least 2 as points, got {points!r}")
    if not integer:
        return FloatRange(float(low), float(high), log, points)
    if int(low) != low or int(high) != high:
        raise ValueError(f"must have whole numbers as low and high, got {low} and {high}")
    return IntRange(int(low), int(high), log, points)


def grid_size(domains: Sequence[Domain]) -> int:
    """How many combinations there are."""
    return math.prod(len(domain.grid()) for domain in domains)
