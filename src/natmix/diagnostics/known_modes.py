"""The modes that a search knows: those of the mixture, and those found outside of it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int

from natmix.diagnostics.host_density import HostDensity
from natmix.diagnostics.modes import mode_labels
from natmix.diagnostics.narrow_modes import REACH, Ellipses, cholesky
from natmix.initialization.pathfinder import PathGaussian, in_mode, same_end
from natmix.mixture import Mixture

_MISSED_DEFICIT, _LOW_DEFICIT = np.log(20), 1.0
"""Nats by which the mixture's log density must be too low: at the centre of a mode for it to count as missed,
and at the end of a run for that centre to be computed. Of a missed mode with a hundredth of the total mass
2000 samples of the mixture have one or none; with 2 nats a regression's third mode counted as missed although
the mixture's samples covered it."""
_MIN_SHARE = 0.01
"""The smallest share of the total mass of a missed mode."""
_MAX_PAIRS = 2**22
"""Log densities of so many pairs of a point and a component are computed at once."""


_DEGREES = (np.inf, 30.0, 10.0, 5.0, 3.0)
"""Degrees of freedom of the densities that may explain points in the tails; infinite is a Gaussian."""
_MATCHED = 0.25
"""The share of the points that must be matched."""
_HEAVIER = 0.5
"""Nats by which heavy tails must match them better than Gaussians do, to count as such."""


class MissedMode(NamedTuple):
    """A mode of the target where the mixture's density is far too low.

    Attributes:
        position: the mode's centre.
        share: of the total mass, by the ELBO of one Gaussian there: a lower bound.
        deficit: nats by which the mixture's log density is too low there.
        covariance: of that Gaussian; None if it is not known.
    """

    position: Float[np.ndarray, " D"]
    share: float
    deficit: float
    covariance: Float[np.ndarray, "D D"] | None = None


class _Outside(NamedTuple):
    """A Gaussian outside the mixture, and log p~ at its mean."""

    gaussian: PathGaussian
    log_density: float


class KnownModes:
    """The mixture's modes, numbered as `mode_labels` does, and after them those found outside.

    Attributes:
        outside: the Gaussians found outside of the mixture.
        hits: how many runs and probes ended in each mode, by its number.
        run_hits: the same for runs alone.
        dof: degrees of freedom of the tails, by the last points of `explain_with_tails`.
        labels: the mode of each of the mixture's components.
        own: the number of the mixture's modes.
    """

    def __init__(self, mixture: Mixture, log_evidence: float, narrow: float = 0.0) -> None:
        """Modes up to ``narrow`` times as wide as one that is near do not count in `major_hits`."""
        self._narrow = narrow
        self.outside: list[_Outside] = []
        self.dof = np.inf
        self.hits: dict[int, int] = {}
        self.run_hits: dict[int, int] = {}
        self._mixture, self._log_evidence = mixture, log_evidence
        self._density = HostDensity(mixture)
        self._ends: list[tuple[PathGaussian, int]] = []
        self.labels = mode_labels(mixture)
        self.own = int(self.labels.max()) + 1
        weights = np.asarray(mixture.weights, float)
        heaviest = [np.argmax(np.where(self.labels == m, weights, -1)) for m in range(self.own)]
        self._centres = np.asarray(mixture.means, float)[heaviest]
        self._own_shares = np.bincount(self.labels, weights) / weights.sum()
        self._own_ellipses = _moments(mixture, self.labels)

    @property
    def centres(self) -> Float[np.ndarray, "M D"]:
        """Of all modes: the mean of the heaviest component, or of the Gaussian."""
        return np.concatenate([self._centres, *(o.gaussian.mean[None] for o in self.outside)])

    def outside_are(self, gaussians: Sequence[PathGaussian]) -> None:
        """Let these be the modes outside of the mixture, for `explain` and `explain_with_tails`."""
        self.outside = [_Outside(gaussian, np.nan) for gaussian in gaussians]

    def hit(self, mode: int, times: int = 1) -> None:
        """Count runs or probes that ended in a mode."""
        self.hits[mode] = self.hits.get(mode, 0) + times

    def explain(self, x: Float[np.ndarray, "N D"]) -> tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        """Log (q + Gaussians outside) at these points, and the mode that contributes most."""
        log_q, mode = np.empty(len(x)), np.empty(len(x), int)
        step = max(1, _MAX_PAIRS // self._mixture.num_components)
        for i in range(0, len(x), step):
            rows = slice(i, i + step)
            joint = self._density.log_joint(x[rows])
            log_q[rows] = scipy.special.logsumexp(joint, axis=1)
            mode[rows] = self.labels[np.argmax(joint, axis=1)]
        for number in range(len(self.outside)):
            gaussian = self.outside[number].gaussian
            log_n = gaussian.elbo - self._log_evidence + _log_normal(x, gaussian)
            mode = np.where(log_n > log_q, self.own + number, mode)
            log_q = np.logaddexp(log_q, log_n)
        return log_q, mode

    def log_explained(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """The log of the unnormalised density that is known at these points."""
        return self.explain(x)[0] + self._log_evidence

    def explain_with_tails(
        self, x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"]
    ) -> tuple[Float[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        """`explain` by one elliptical density per mode, with the tails that match the target best.

        A Gaussian mixture explains no point in the tails of Student's t. Of the degrees of freedom in
        `_DEGREES` those are taken with which a quarter of the points is matched best; if they match worse
        than a nat, the mixture itself explains.
        """
        usable = np.isfinite(log_p)
        if not usable.any():
            return self.explain(x)
        distances, log_dets, log_shares = self._ellipses(x)
        D = x.shape[1]
        best: tuple[float, np.ndarray] | None = None
        gaussian = np.inf
        for nu in _DEGREES:
            joint = log_shares + _log_elliptical(distances, log_dets, D, nu)
            error = np.abs(log_p - self._log_evidence - scipy.special.logsumexp(joint, axis=1))[usable]
            match = float(np.quantile(error, _MATCHED))
            gaussian = match if np.isinf(nu) else gaussian
            if best is None or match < best[0] - 1e-3:
                best = match, joint
                heaviest = nu
        assert best is not None
        self.dof = heaviest if best[0] <= gaussian - _HEAVIER else np.inf
        if best[0] > 1.0:
            return self.explain(x)
        return scipy.special.logsumexp(best[1], axis=1), np.argmax(best[1], axis=1)

    def _ellipses(self, x: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Squared distances of points from all modes in their covariances, log determinants, log shares."""
        modes = self.ellipses()
        distances, log_dets = np.empty((len(x), len(modes.centres))), np.empty(len(modes.centres))
        for i, (centre, spread) in enumerate(zip(*modes, strict=True)):
            L = cholesky(spread)
            z = scipy.linalg.solve_triangular(L, (x - centre).T, lower=True, check_finite=False)
            distances[:, i] = np.sum(z * z, axis=0)
            log_dets[i] = np.sum(np.log(np.diag(L)))
        outside = [o.gaussian.elbo - self._log_evidence for o in self.outside]
        return distances, log_dets, np.concatenate([np.log(self._own_shares), outside])

    def ellipses(self) -> Ellipses:
        """Mean and covariance of every mode."""
        own = [(c, S) for c, S in zip(*self._own_ellipses, strict=True)]
        every = own + [(o.gaussian.mean, o.gaussian.covariance) for o in self.outside]
        return Ellipses(np.stack([c for c, _ in every]), np.stack([S for _, S in every]))

    def major_ellipses(self) -> Ellipses:
        """The same of the modes with a hundredth of the mass; of the heaviest one if there are none."""
        major = self._major() or [int(np.argmax(self._own_shares))]
        centres, covariances = self.ellipses()
        return Ellipses(centres[major], covariances[major])

    def distances(self, x: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, np.ndarray]:
        """From the nearest mode, in its widths, and the width of that mode."""
        distances, log_dets, _ = self._ellipses(x)
        nearest = np.argmin(distances, axis=1)
        return np.sqrt(distances[np.arange(len(x)), nearest]), np.exp(log_dets / x.shape[1])[nearest]

    def deficit(
        self, log_p: Float[np.ndarray, " N"], log_q: Float[np.ndarray, " N"]
    ) -> Float[np.ndarray, " N"]:
        """Nats by which what is known is too low; -inf where the target's density is not usable."""
        return np.where(np.isfinite(log_p), log_p - self._log_evidence - log_q, -np.inf)

    def unexplained(
        self, log_p: Float[np.ndarray, " N"], log_q: Float[np.ndarray, " N"]
    ) -> Int[np.ndarray, " U"]:
        """The points that belong to no known mode."""
        return np.flatnonzero(self.deficit(log_p, log_q) > _MISSED_DEFICIT)

    def mode_at(self, x: Float[np.ndarray, " D"], log_p: float) -> int | None:
        """The number of the known mode that a run ended in; None if it is a new one."""
        log_q, mode = self.explain(x[None])
        if self.deficit(np.array([log_p]), log_q)[0] <= _LOW_DEFICIT:
            return int(mode[0])
        for gaussian, number in self._ends:
            if same_end(x, gaussian):
                return number
        inside = (i for i, o in enumerate(self.outside) if in_mode(x, o.gaussian))
        return next((self.own + i for i in inside), None)

    def add(self, gaussian: PathGaussian, log_density: float, end: Float[np.ndarray, " D"]) -> int:
        """The number of the mode of a Gaussian that a run has found; it may be a new one.

        Args:
            gaussian: for the mode.
            log_density: log p~ at its mean.
            end: of the run; others that end there are in the same mode.
        """
        number = self._number_of(gaussian, log_density)
        self._ends.append((gaussian._replace(mean=end), number))
        return number

    def _number_of(self, gaussian: PathGaussian, log_density: float) -> int:
        log_q, mode = self.explain(gaussian.mean[None])
        low = self.deficit(np.array([log_density]), log_q)[0] > _MISSED_DEFICIT
        if not (low and np.isfinite(gaussian.elbo)):
            return int(mode[0])
        own = int(self.explained_by_tails(gaussian.mean[None], np.array([log_density]))[0])
        if own >= 0:
            return own
        for i, o in enumerate(self.outside):
            if in_mode(gaussian.mean, o.gaussian):
                if gaussian.elbo > o.gaussian.elbo:
                    self.outside[i] = _Outside(gaussian, log_density)
                return self.own + i
        self.outside.append(_Outside(gaussian, log_density))
        return self.own + len(self.outside) - 1

    def missed(self) -> tuple[MissedMode, ...]:
        """Modes outside of the mixture with at least a hundredth of the total mass, the largest first."""
        if not self.outside:
            return ()
        shares = self._shares()
        centres = np.stack([o.gaussian.mean for o in self.outside])
        log_q = self._density.log_prob(centres)
        deficits = self.deficit(np.array([o.log_density for o in self.outside]), log_q)
        found = [
            MissedMode(o.gaussian.mean, float(share), float(deficit), o.gaussian.covariance)
            for o, share, deficit in zip(self.outside, shares, deficits, strict=True)
            if share >= _MIN_SHARE
        ]
        return tuple(sorted(found, key=lambda m: -m.share))

    def explained_by_tails(
        self, x: Float[np.ndarray, "N D"], log_p: Float[np.ndarray, " N"]
    ) -> Int[np.ndarray, " N"]:
        """The mixture's mode that explains each point by the tails in ``dof``; -1 for none.

        Student's t has a high peak in many dimensions, in thirty 25 nats above the Gaussian with its
        covariance. A mixture lacks the peak, which has hardly any mass, but not the mode.
        """
        if np.isinf(self.dof):
            return np.full(len(x), -1)
        distances, log_dets, log_shares = self._ellipses(x)
        joint = log_shares + _log_elliptical(distances, log_dets, x.shape[1], self.dof)
        own = joint[:, : self.own]
        low = self.deficit(log_p, scipy.special.logsumexp(own, axis=1)) > _MISSED_DEFICIT
        return np.where(low, -1, np.argmax(own, axis=1))

    def without_peaks(self) -> None:
        """Let Gaussians outside that are peaks of the mixture's own modes be part of these."""
        if not self.outside:
            return
        centres = np.stack([o.gaussian.mean for o in self.outside])
        of = self.explained_by_tails(centres, np.array([o.log_density for o in self.outside]))
        kept = np.flatnonzero(of < 0)
        renumbered = np.where(of < 0, self.own + np.cumsum(of < 0) - 1, of)
        numbers = np.concatenate([np.arange(self.own), renumbered])
        for hits in (self.hits, self.run_hits):
            before = dict(hits)
            hits.clear()
            for mode, times in before.items():
                hits[int(numbers[mode])] = hits.get(int(numbers[mode]), 0) + times
        self._ends = [(end, int(numbers[mode])) for end, mode in self._ends]
        self.outside = [self.outside[i] for i in kept]

    def major_hits(self) -> tuple[int, ...]:
        """The hits, 0 among them, of every mode with at least a hundredth of the mass, the most first.

        Narrow modes next to wider ones are left out.
        """
        return tuple(sorted((self.hits.get(mode, 0) for mode in self._counted()), reverse=True))

    def reached_once(self) -> int:
        """The number of such modes that exactly one run has reached."""
        return sum(self.run_hits.get(mode, 0) == 1 for mode in self._counted())

    def _counted(self) -> list[int]:
        """The major modes without narrow ones next to wider ones."""
        major = self._major()
        if not self._narrow or len(major) < 2:
            return major
        modes = self.ellipses()
        L = cholesky(modes.covariances[major])
        width = np.exp(np.log(np.diagonal(L, axis1=1, axis2=2)).mean(axis=1))
        steps = modes.centres[major][None] - modes.centres[major][:, None]
        distance = np.linalg.norm(np.linalg.solve(L, steps.swapaxes(1, 2)), axis=1)
        narrow = (width <= self._narrow * width[:, None]) & (distance <= REACH)
        return [mode for mode, hidden in zip(major, narrow.any(axis=0), strict=True) if not hidden]

    def _major(self) -> list[int]:
        shares = np.concatenate([self._own_shares * (1 - self._shares().sum()), self._shares()])
        return [int(mode) for mode in np.flatnonzero(shares >= _MIN_SHARE)]

    def _shares(self) -> Float[np.ndarray, " M"]:
        """Of the total mass, of the modes outside."""
        log_masses = np.array([o.gaussian.elbo for o in self.outside])
        total = scipy.special.logsumexp([self._log_evidence, *log_masses])
        return np.exp(log_masses - total)


def _moments(mixture: Mixture, labels: Int[np.ndarray, " K"]) -> Ellipses:
    """Mean and covariance of all components with the same label."""
    weights = np.asarray(mixture.weights, float)
    means = np.asarray(mixture.means, float)
    factors = np.asarray(mixture.components.cholesky(), float)
    covariances = factors @ factors.mT
    M = int(labels.max()) + 1
    centres, spreads = np.empty((M, mixture.dim)), np.empty((M, mixture.dim, mixture.dim))
    for label in range(M):
        own = np.flatnonzero(labels == label)
        share = weights[own] / weights[own].sum()
        centres[label] = share @ means[own]
        apart = means[own] - centres[label]
        spreads[label] = np.einsum("k,kij->ij", share, covariances[own]) + (share[:, None] * apart).T @ apart
    return Ellipses(centres, spreads)


def _log_normal(x: Float[np.ndarray, "N D"], gaussian: PathGaussian) -> Float[np.ndarray, " N"]:
    L = cholesky(gaussian.covariance)
    z = scipy.linalg.solve_triangular(L, (x - gaussian.mean).T, lower=True, check_finite=False)
    log_det = np.sum(np.log(np.diag(L)))
    return -0.5 * np.sum(z * z, axis=0) - log_det - 0.5 * len(L) * np.log(2 * np.pi)


def _log_elliptical(
    distances: Float[np.ndarray, "N M"], log_dets: Float[np.ndarray, " M"], D: int, nu: float
) -> Float[np.ndarray, "N M"]:
    """Log densities of Student's t with these covariances; of Gaussians for infinite ``nu``."""
    if np.isinf(nu):
        return -0.5 * distances - log_dets - 0.5 * D * np.log(2 * np.pi)
    constant = scipy.special.gammaln((nu + D) / 2) - scipy.special.gammaln(nu / 2)
    constant -= 0.5 * D * np.log((nu - 2) * np.pi)
    return constant - log_dets - 0.5 * (nu + D) * np.log1p(distances / (nu - 2))
