r"""Exact, independent samples of the planar robot's target.

The target. An arm of N unit links has the joint angles x = (θ, φ), φ the N - 1 angles between links. Its end
is at distance r(φ) from the base, in direction θ + a(φ). The prior is N(θ; 0, s_1^2) N(φ; 0, s^2 I). There
are n goals at distance R in the directions β_g = 2πg/n, and the likelihood is that of the nearest goal,
max_g N(end; goal_g, σ^2 I).

What the first joint does. The squared distance to a goal is (r - R)^2 + 2rR (1 - cos(θ + a - β_g)), and the
nearest goal is the one nearest in direction. Every θ is θ = β_j - a + δ for exactly one whole number j (the
goals, and full turns of them) and one δ in (-π/n, π/n], so that, with κ = rR/σ^2, exactly

    p~(x) = N(φ; 0, s^2 I) exp(-(r - R)^2 / 2σ^2) / (2πσ^2) N(β_j - a + δ; 0, s_1^2) exp(-κ (1 - cos δ)).

Turning the first joint by 2π/n maps j to j + 1 and leaves φ and δ as they are: all goals share the same
shapes φ, and the prior of θ is what makes one j more probable than another.

The sampler. Rejection sampling, with a proposal that covers the target everywhere:

1. φ ~ N(0, (I/s^2 - tQ)^-1), where φ^T Q φ is the sum of squares of the centred absolute angles
   ψ_k = φ_1 + ... + φ_k of the links. Because cos(z) >= 1 - z^2/2, and because the arm is at least as long as
   its projection on the mean direction, r >= Σ_k cos(ψ_k - mean ψ) >= N - φ^T Q φ / 2. So a prior tilted by
   exp(t φ^T Q φ / 2) proposes bent arms more often, and the ratio to the prior stays bounded on them.
   t minimises the bound.
2. j with probability proportional to N(β_j - a; 0, s_1^2 + 1/κ'), then δ from the Gaussian proportional to
   N(β_j - a + δ; 0, s_1^2) exp(-κ' δ^2 / 2). Their normaliser is S(φ). Here κ' = bκ with
   b = 2 (1 - cos(π/n)) / (π/n)^2, for which 1 - cos δ >= b δ^2 / 2 on (-π/n, π/n].
3. Accept with the probability f_1 f_2 f_3 f_4, each of them at most one:
   f_1 = exp(-t (φ^T Q φ / 2 - (N - r))), f_2 = exp(-(r - R - tσ^2)^2 / 2σ^2), f_3 = S(φ) / max S,
   f_4 = exp(-κ (1 - cos δ) + κ' δ^2 / 2) if δ is in (-π/n, π/n], otherwise 0.

What is accepted are independent draws of p. No chain has to find anything: every goal, full turn, left or
right bend and shape appears with its probability, since each proposal is drawn afresh. Left out are only arms
that end more than 40 σ (or R/2, if that is less) short of the goals and first joints turned by more than
12 s_1; their probability is below the accuracy of float64. The mean acceptance probability gives Z.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

_BATCH = 2**17
_SHORT = 40.0
_TURNED = 12.0


@dataclass(frozen=True)
class Arm:
    """The target.

    Attributes:
        goals: n of them, evenly spread over the directions, the first at angle 0.
        links: N, each of length one.
        reach: R, the goals' distance.
        std: σ of the likelihood.
        first_scale: s_1, the prior's standard deviation of the first joint.
        scale: s, that of the others.
    """

    goals: int = 4
    links: int = 10
    reach: float = 7.0
    std: float = 0.01
    first_scale: float = 1.0
    scale: float = 0.2

    def __post_init__(self) -> None:
        if self.goals < 1 or self.links < 2:
            raise ValueError(f"An arm needs a goal and two links, got {self.goals} and {self.links}.")
        if not 0 < self.reach < self.links:
            raise ValueError(f"The goals must lie within reach, got {self.reach} for {self.links} links.")
        if not 0 < self.std <= self.reach / 16:
            raise ValueError(f"The likelihood must be narrower than reach / 16, got std {self.std}.")

    def log_density(self, x: Float[np.ndarray, "M N"]) -> Float[np.ndarray, " M"]:
        """The log of p~, straight from the definition."""
        end = np.exp(1j * np.cumsum(x, axis=1)).sum(axis=1)
        goals = self.reach * np.exp(2j * np.pi * np.arange(self.goals) / self.goals)
        nearest = np.min(np.abs(end[:, None] - goals) ** 2, axis=1)
        scales = np.array([self.first_scale] + [self.scale] * (self.links - 1))
        log_prior = -0.5 * np.sum((x / scales) ** 2 + np.log(2 * np.pi * scales**2), axis=1)
        return log_prior - 0.5 * nearest / self.std**2 - np.log(2 * np.pi * self.std**2)


class ArmSamples(NamedTuple):
    """Independent samples, and the log of the target's normaliser with its standard error."""

    samples: Float[np.ndarray, "M N"]
    log_evidence: float
    log_evidence_se: float
    proposals: int


def sample_arm(arm: Arm, count: int, seed: int) -> ArmSamples:
    """``count`` independent samples of the target."""
    rng = np.random.default_rng(seed)
    bend = Bend.of(arm)
    turn = Turn.of(arm)
    found: list[np.ndarray] = []
    bent: list[np.ndarray] = []
    turned: list[np.ndarray] = []
    while sum(map(len, found)) < count:
        phi, log_accept, r, a = bend.propose(rng)
        near = (r >= turn.shortest) & (log_accept > -60)  # beyond, the probability is below 1e-26
        accept = np.where(near, np.exp(log_accept), 0)
        accept[near] *= turn.share(r[near], a[near])
        bent.append(accept)
        rows = np.flatnonzero(rng.uniform(size=len(accept)) < accept)
        theta, share = turn.propose(rng, r[rows], a[rows])
        turned.append(share)
        kept = rng.uniform(size=len(rows)) < share
        found.append(np.column_stack([theta, phi[rows]])[kept])
    first, second = (_mean(np.concatenate(parts)) for parts in (bent, turned))
    log_z = bend.log_bound + turn.log_bound - np.log(2 * np.pi * arm.std**2)
    return ArmSamples(
        np.concatenate(found)[:count],
        float(log_z + np.log(first.value) + np.log(second.value)),
        float(np.hypot(first.relative_error, second.relative_error)),
        len(bent) * _BATCH,
    )


def shares(arm: Arm, x: Float[np.ndarray, "M N"]) -> dict[str, dict[str, float]]:
    """How often each mode appears.

    ``turn`` is j: goal j mod n, reached with the first joint turned the direct way or around. ``shape`` is
    the eigenvector of Q that contributes most to φ^T Q φ: "C" bends one way, "S" both ways, and so on, with
    the sign of the bend next to the base ("+" is to the left).
    """
    _, a = _reach(x[:, 1:])
    turn = np.rint((x[:, 0] + a) * arm.goals / (2 * np.pi)).astype(int)
    values, vectors = np.linalg.eigh(Bend.of(arm).Q)
    vectors = vectors * np.sign(vectors[0])
    along = x[:, 1:] @ vectors
    largest = np.argmax(values * along**2, axis=1)
    sign = np.sign(along[np.arange(len(x)), largest])
    order = len(values) - 1 - largest
    shape = [("C", "S", "W")[min(o, 2)] + ("+" if s > 0 else "-") for o, s in zip(order, sign, strict=True)]
    return {"turn": _counts(turn.tolist()), "shape": _counts(shape)}


def _counts(labels: list[Any]) -> dict[str, float]:
    names, counts = np.unique(labels, return_counts=True)
    return {str(n): int(c) / len(labels) for n, c in zip(names, counts, strict=True)}


def _reach(phi: Float[np.ndarray, "M J"]) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """The distance r and the direction a of the end, seen from the first link."""
    angles = np.cumsum(phi, axis=1)
    x, y = 1 + np.cos(angles).sum(axis=1), np.sin(angles).sum(axis=1)
    return np.hypot(x, y), np.arctan2(y, x)


class Bend(NamedTuple):
    """Step 1: the angles between the links."""

    arm: Arm
    Q: Float[np.ndarray, "J J"]
    t: float
    root: Float[np.ndarray, "J J"]
    """A matrix square root of the proposal's covariance."""
    log_bound: float

    @classmethod
    def of(cls, arm: Arm) -> "Bend":
        J = arm.links - 1
        sums = np.tril(np.ones((arm.links, J)), -1)
        centred = sums - sums.mean(axis=0)
        Q = centred.T @ centred
        values, vectors = np.linalg.eigh(Q)
        spread = arm.scale**2 * values
        t = _tilt(spread, arm)
        root = vectors * (arm.scale / np.sqrt(1 - t * spread))
        excess = t * (arm.links - arm.reach) - 0.5 * (t * arm.std) ** 2
        return cls(arm, Q, t, root, float(-0.5 * np.sum(np.log1p(-t * spread)) - excess))

    def propose(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """φ, log f_1 f_2, r and a."""
        arm = self.arm
        phi = rng.standard_normal((_BATCH, arm.links - 1)) @ self.root.T
        r, a = _reach(phi)
        square = np.sum((phi @ self.Q) * phi, axis=1)
        log_f1 = -self.t * (0.5 * square - (arm.links - r))
        log_f2 = -0.5 * ((r - arm.reach) / arm.std - self.t * arm.std) ** 2
        return phi, log_f1 + log_f2, r, a


def _tilt(spread: Float[np.ndarray, " J"], arm: Arm) -> float:
    """The t >= 0 that minimises log_bound, which is convex in t: bisection of its derivative."""
    low, high = 0.0, 1 / float(spread.max())
    for _ in range(60):
        t = 0.5 * (low + high)
        slope = 0.5 * np.sum(spread / (1 - t * spread)) - (arm.links - arm.reach) + t * arm.std**2
        low, high = (low, t) if slope > 0 else (t, high)
    return low


class Turn(NamedTuple):
    """Step 2: the first joint."""

    arm: Arm
    shortest: float
    narrower: float
    """b."""
    wraps: Int[np.ndarray, " K"]
    """Offsets of j that can matter."""
    log_bound: float
    """log max S."""

    @classmethod
    def of(cls, arm: Arm) -> "Turn":
        half = np.pi / arm.goals
        shortest = arm.reach - min(_SHORT * arm.std, 0.5 * arm.reach)
        b = 2 * (1 - np.cos(half)) / half**2
        most = int(np.ceil(_TURNED * arm.first_scale / (2 * half))) + 1
        wraps = np.arange(-most, most + 1)
        narrowest = arm.std**2 / (b * shortest * arm.reach)
        peak = _normal(2 * half * wraps, arm.first_scale**2).sum()
        bound = 0.5 * np.log(2 * np.pi * narrowest) + np.log(peak)
        return cls(arm, shortest, float(b), wraps, float(bound))

    def _pieces(
        self, r: Float[np.ndarray, " M"], a: Float[np.ndarray, " M"]
    ) -> tuple[Float[np.ndarray, "M K"], Float[np.ndarray, "M K"], Float[np.ndarray, " M"]]:
        """β_j - a and N(β_j - a; 0, s_1^2 + 1/κ') for all j that matter, and 1/κ'."""
        step = 2 * np.pi / self.arm.goals
        centre = step * (np.rint(a / step)[:, None] + self.wraps) - a[:, None]
        variance = self.arm.std**2 / (self.narrower * r * self.arm.reach)
        return centre, _normal(centre, self.arm.first_scale**2 + variance[:, None]), variance

    def share(self, r: Float[np.ndarray, " M"], a: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
        """f_3. The densities of all j sum to a periodic function of a that is largest at a = 0."""
        _, density, variance = self._pieces(r, a)
        return np.sqrt(2 * np.pi * variance) * density.sum(axis=1) / np.exp(self.log_bound)

    def propose(
        self, rng: np.random.Generator, r: Float[np.ndarray, " M"], a: Float[np.ndarray, " M"]
    ) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
        """θ and f_4."""
        centre, density, variance = self._pieces(r, a)
        sums = np.cumsum(density, axis=1)
        drawn = rng.uniform(size=(len(r), 1)) * sums[:, -1:]
        row = np.minimum((sums <= drawn).sum(axis=1), len(self.wraps) - 1)
        middle = centre[np.arange(len(r)), row]
        shrink = variance / (self.arm.first_scale**2 + variance)
        std = self.arm.first_scale * np.sqrt(shrink)
        delta = -shrink * middle + std * rng.standard_normal(len(r))
        kappa = r * self.arm.reach / self.arm.std**2
        log_f4 = -2 * kappa * np.sin(delta / 2) ** 2 + 0.5 * delta**2 / variance
        inside: Bool[np.ndarray, " M"] = np.abs(delta) <= np.pi / self.arm.goals
        return middle + delta, np.where(inside, np.exp(np.minimum(log_f4, 0.0)), 0.0)


class _Mean(NamedTuple):
    value: float
    relative_error: float


def _mean(values: Float[np.ndarray, " M"]) -> _Mean:
    value = float(values.mean())
    return _Mean(value, float(values.std(ddof=1) / (value * np.sqrt(values.size))))


def _normal(x: Float[np.ndarray, "..."], variance: Any) -> Float[np.ndarray, "..."]:
    return np.exp(-0.5 * x**2 / variance) / np.sqrt(2 * np.pi * variance)
