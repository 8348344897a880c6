"""Tests of uniformity, symmetry and width of ranks."""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

_SERIES_END = 8.0


class RankTest(NamedTuple):
    """A test's statistic and p-value."""

    statistic: float
    p_value: float


def ranks_among(
    truth: Float[np.ndarray, " P"], draws: Float[np.ndarray, "N P"], rng: np.random.Generator
) -> Int[np.ndarray, " P"]:
    """How many draws are smaller than the truth, 0 to N; ties are broken at random."""
    equal = np.sum(draws == truth, axis=0)
    return np.sum(draws < truth, axis=0) + rng.integers(0, equal + 1)


def anderson_darling(u: Float[np.ndarray, " N"]) -> RankTest:
    """Whether numbers between 0 and 1 are uniform, with weight on both ends.

    A^2 = -n - 1/n sum_i (2i - 1) (log u_(i) + log(1 - u_(n+1-i))). The p-value is that of many numbers
    (G. Marsaglia, J. Marsaglia: Evaluating the Anderson-Darling distribution, J. Stat. Software 2004); from
    five numbers on it is right to a tenth of itself.
    """
    x = np.sort(u)
    n = len(x)
    odd = 2 * np.arange(1, n + 1) - 1
    statistic = float(-n - np.mean(odd * (np.log(x) + np.log1p(-x[::-1]))))
    return RankTest(statistic, anderson_darling_tail(statistic))


def anderson_darling_tail(z: float) -> float:
    """The probability that A^2 of infinitely many uniform numbers exceeds z."""
    if z <= 0:
        return 1.0
    if z < 2:
        series = (2.00012, 0.247105, -0.0649821, 0.0347962, -0.011672, 0.00168691)
        return float(1 - np.exp(-1.2337141 / z) / np.sqrt(z) * np.polynomial.polynomial.polyval(z, series))
    if z > _SERIES_END:  # the series falls too fast there
        return anderson_darling_tail(_SERIES_END) * float(np.exp(_SERIES_END - z))
    series = (1.0776, -2.30695, 0.43424, -0.082433, 0.008056, -0.0003146)
    return float(-np.expm1(-np.exp(np.polynomial.polynomial.polyval(z, series))))


def symmetry(u: Float[np.ndarray, " N"]) -> RankTest:
    """Whether numbers between 0 and 1 are symmetric about 1/2: Wilcoxon's signed-rank test."""
    from scipy import stats  # slow to import

    found = stats.wilcoxon(u - 0.5)
    return RankTest(float(found.statistic), float(found.pvalue))


def width(u: Float[np.ndarray, " N"]) -> RankTest:
    """Whether numbers between 0 and 1 have the variance of uniform ones, whatever their mean.

    Of their normal quantiles, (n - 1) times the variance has the chi-squared distribution with n - 1
    degrees of freedom.
    """
    freedom = len(u) - 1
    statistic = float(freedom * np.var(scipy.special.ndtri(u), ddof=1))
    tails = (scipy.special.chdtr(freedom, statistic), scipy.special.chdtrc(freedom, statistic))
    return RankTest(statistic, float(2 * min(tails)))


def holm(p_values: Float[np.ndarray, " T"], level: float) -> Bool[np.ndarray, " T"]:
    """Which hypotheses to reject, with a family-wise error rate of at most ``level``.

    S. Holm: A simple sequentially rejective multiple test procedure, Scand. J. Statist. 1979. It holds
    whatever the dependence between the tests.
    """
    order = np.argsort(p_values, kind="stable")
    small = p_values[order] <= level / np.arange(len(p_values), 0, -1)
    rejected = np.zeros(len(p_values), bool)
    rejected[order] = np.logical_and.accumulate(small)
    return rejected
