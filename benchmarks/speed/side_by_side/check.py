"""Which of the reference's targets are the same function as natmix's.

Run by the benchmark, in the reference's environment: python -m side_by_side.check DIRECTORY
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from side_by_side import targets_tf
from side_by_side.targets_tf import Target
from side_by_side.theirs import read

VALUE_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 2e-3
"""Relative, for float32 against float64."""
STANDARD_ERRORS, POINTS, DRAWS = 5, 8, 400

Arrays = dict[str, np.ndarray]


def main(directory: Path) -> None:
    """Write which are; end with a message if the own one is not."""
    settings, arrays = read(directory)
    usable, messages = [], []
    for which, name in (("own", "fast target"), ("shipped", "shipped target")):
        target = targets_tf.build(which, settings, arrays)
        off = Disagreement.at_points(target, arrays)
        minibatches = Minibatches.at_points(target, arrays) if target.minibatches else None
        same = off.small and (minibatches is None or minibatches.small)
        message = f"{name}: {off}" + (f"; {minibatches}" if minibatches else "")
        if which == "own" and not same:
            raise SystemExit(f"{settings['problem']}: not natmix's function, {message}; nothing was timed.")
        usable += [which] * same
        messages.append(message if same else f"not used, {message}")
    (directory / "targets.json").write_text(json.dumps({"usable": usable, "messages": messages}))
    print("\n".join(messages))


class Disagreement(NamedTuple):
    """The largest relative differences of log densities and gradients, without minibatches."""

    value: float
    gradient: float

    @property
    def small(self) -> bool:
        return self.value < VALUE_TOLERANCE and self.gradient < GRADIENT_TOLERANCE

    def __str__(self) -> str:
        return f"off by {self.value:.0e} relative, gradients {self.gradient:.0e}"

    @classmethod
    def at_points(cls, target: Target, arrays: Arrays) -> "Disagreement":
        x = tf.constant(arrays["check.x"], tf.float32)
        value, gradient = differentiated(target.exact, x)
        wanted, slope = arrays["check.log_density"], arrays["check.gradient"]
        off = np.abs(value.numpy() - wanted) / (1 + np.abs(wanted))
        slope_off = np.linalg.norm(gradient - slope, axis=1) / (1e-6 + np.linalg.norm(slope, axis=1))
        return cls(float(np.max(off)), float(np.max(slope_off)))


class Minibatches(NamedTuple):
    """How far the means over minibatches are from the exact values, in standard errors.

    Attributes:
        value: of log densities.
        gradient: of gradients, along the exact one.
        of_its_own: whether points of one call have different minibatches.
    """

    value: float
    gradient: float
    of_its_own: bool

    @property
    def small(self) -> bool:
        return self.of_its_own and max(self.value, self.gradient) < STANDARD_ERRORS

    def __str__(self) -> str:
        if not self.of_its_own:
            return "all points share a minibatch"
        return (
            f"every point has a minibatch of its own, the means over {DRAWS} are off by {self.value:.1f} "
            f"standard errors at most, gradients {self.gradient:.1f}"
        )

    @classmethod
    def at_points(cls, target: Target, arrays: Arrays) -> "Minibatches":
        x = tf.repeat(tf.constant(arrays["check.x"][:POINTS], tf.float32), DRAWS, axis=0)
        alone = tf.function(target.log_density)(x)
        value, gradient = tf.function(lambda x: as_gmmvi_does(target, x))(x)
        slope = arrays["check.gradient"][:POINTS]
        along = np.einsum("pnd,pd->pn", gradient.numpy().reshape(POINTS, DRAWS, -1), slope)
        values = [v.numpy().reshape(POINTS, DRAWS).astype(float) for v in (alone, value)]
        if not all(np.ptp(v, axis=1).min() > 0 for v in values):
            return cls(np.inf, np.inf, False)
        wanted = arrays["check.log_density"][:POINTS]
        off = max(standard_errors(v, wanted) for v in values)
        return cls(off, standard_errors(along, np.sum(slope**2, axis=1)), True)


def standard_errors(draws: np.ndarray, wanted: np.ndarray) -> float:
    """How far the means of draws [P, N] are from P numbers at most."""
    error = np.abs(draws.mean(axis=1) - wanted)
    return float(np.max(error / (draws.std(axis=1, ddof=1) / draws.shape[1] ** 0.5)))


def as_gmmvi_does(target: Target, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Log densities and gradients, from the target itself where it says that it has them."""
    if target.use_log_density_and_grad:
        return target.log_density_and_grad(x)
    return differentiated(target.log_density, x)


def differentiated(fn: Callable[[tf.Tensor], tf.Tensor], x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = fn(x)
    return value, tape.gradient(value, x)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
