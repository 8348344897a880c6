"""The weights of several mixtures put together, from samples with known target density.

Notation: the pooled samples x_n, n = 1..N, of F mixtures q_f with N_f samples each are samples of the
proposal r(x) = sum_f N_f / N q_f(x) (deterministic mixture sampling; the balance heuristic of Veach and
Guibas, 1995). The parts g_a(x), a = 1..A, are normalised densities, and q(x) = sum_a w_a g_a(x). With

    S_an = g_a(x_n) / (N r(x_n)), normalised to sum_n S_an = 1,  and  Q_n = sum_a w_a S_an

the ELBO of q is estimated by sum_n Q_n (log p~(x_n) - log(N r(x_n)) - log Q_n).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_TOLERANCE = 1e-4
"""In nats: the estimated ELBO is that close to its maximum over the weights."""
_MAX_STEPS = 5000
_SMALLEST_LOG = -700.0


class OptimalWeights(NamedTuple):
    """Weights of the parts.

    Attributes:
        weights: w.
        gap: the most by which the estimated ELBO could still rise, in nats.
        steps: how many were made.
    """

    weights: Float[np.ndarray, " A"]
    gap: float
    steps: int


def optimal_weights(
    log_parts: Float[np.ndarray, "N A"],
    log_proposal: Float[np.ndarray, " N"],
    log_target: Float[np.ndarray, " N"],
    initial: Float[np.ndarray, " A"],
) -> OptimalWeights:
    """Maximise the estimated ELBO over the simplex.

    The objective is concave, and the step w_a <- w_a exp(dELBO / dw_a), normalised, is a mirror ascent step
    of length 1. It never lowers the objective: KL between two mixtures of the same parts is at most that
    between their weights. For parts that do not overlap one step is exact. The largest partial derivative
    minus their mean bounds what is left to gain (the duality gap of Frank and Wolfe).

    Args:
        log_parts: log g_a(x_n).
        log_proposal: log r(x_n).
        log_target: log p~(x_n), finite.
        initial: the weights to start from, all positive.
    """
    log_s = log_parts - log_proposal[:, None]
    log_s -= log_s.max(axis=0)
    S = np.exp(log_s)
    S /= S.sum(axis=0)
    value = log_target - (log_proposal + np.log(len(log_proposal)))
    w = initial / initial.sum()
    gap = np.inf
    for step in range(_MAX_STEPS):
        with np.errstate(divide="ignore"):
            log_Q = np.maximum(np.log(S @ w), _SMALLEST_LOG)
        slope = (value - log_Q) @ S
        gap = float(slope.max() - slope @ w)
        if gap < _TOLERANCE:
            return OptimalWeights(w, gap, step)
        w = w * np.exp(slope - slope.max())
        w /= w.sum()
    return OptimalWeights(w, gap, _MAX_STEPS)
