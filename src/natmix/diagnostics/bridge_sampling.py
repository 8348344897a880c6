"""The log evidence by bridge sampling, between a mixture and draws of the target itself.

X.-L. Meng, W. H. Wong: Simulating ratios of normalizing constants via a simple identity, Statistica Sinica
1996; the error as in S. Frühwirth-Schnatter: Estimating marginal likelihoods for mixture and Markov switching
models using bridge sampling techniques, Econometrics Journal 2004.

It needs draws of the target that do not come from the mixture, from NUTS for example. Draws of
`Result.resample` are not suitable: they are the mixture's own samples, and say no more than importance
sampling.
"""

import numpy as np
import scipy
from jaxtyping import Float

from natmix.estimate import Estimate

MIN_DRAWS = 10
"""Of the target, and of the mixture: the error of fewer cannot be estimated."""


def bridge_estimate(at_target: Float[np.ndarray, "C N"], at_mixture: Float[np.ndarray, " M"]) -> Estimate:
    """Log Z with the optimal bridge function.

    With w = p~ / q and a = log w - log Z + log(s_1 / s_2), Z solves s_2 mean_q[expit(a)] = s_1
    mean_p[expit(-a)]. The shares are s_1 ~ n / tau and s_2 ~ m, tau the autocorrelation time of the chains.
    RE^2 = var_q / (m mean_q^2) + tau var_p / (n mean_p^2), of the same terms.

    Args:
        at_target: log p~ - log q at draws of the target, one row per chain.
        at_mixture: the same at samples of the mixture.
    """
    n, m = at_target.size, at_mixture.size
    tau = 1.0
    for _ in range(3):  # the terms, and with them tau, depend only weakly on the shares
        share = n / tau / (n / tau + m)
        shift = float(np.log(share) - np.log1p(-share))
        log_z = _solve(at_target, at_mixture, share, shift)
        up, down = (
            scipy.special.expit(at_mixture - log_z + shift),
            scipy.special.expit(log_z - shift - at_target),
        )
        tau = autocorrelation_time(down)
    variance = up.var(ddof=1) / (m * up.mean() ** 2) + tau * down.var(ddof=1) / (n * down.mean() ** 2)
    return Estimate(log_z, float(np.sqrt(variance)))


def _solve(at_target: np.ndarray, at_mixture: np.ndarray, share: float, shift: float) -> float:
    from scipy.optimize import brentq

    def excess(log_z: float) -> float:
        """Falls as log Z rises."""
        up, down = (
            scipy.special.expit(at_mixture - log_z + shift),
            scipy.special.expit(log_z - shift - at_target),
        )
        return float((1 - share) * up.mean() - share * down.mean())

    both = np.concatenate([at_target.ravel(), at_mixture])
    known = both[np.isfinite(both)]
    margin = 40 + abs(shift) + np.log(both.size)
    return float(brentq(excess, known.min() - margin, known.max() + margin, xtol=1e-12))


def autocorrelation_time(chains: Float[np.ndarray, "C N"]) -> float:
    """1 + 2 sum of the autocorrelations, at least 1, by Geyer's initial monotone sequence.

    Deviations are from the mean of all chains: chains that disagree count as correlated.
    """
    x = chains - chains.mean()
    n = x.shape[1]
    variance = np.mean(x * x)
    if variance == 0 or n < 4:
        return 1.0
    spectrum = np.fft.rfft(x, 2 * n)
    correlation = np.fft.irfft(np.abs(spectrum) ** 2)[:, :n].mean(axis=0) / (n * variance)
    pairs = correlation[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    positive = pairs[: ends[0]] if ends.size else pairs
    return float(max(1.0, 2 * np.minimum.accumulate(positive).sum() - 1))
