"""The log densities of the test problems in TensorFlow: written here, or those that come with gmmvi.

The reference differentiates them itself, unless they give gradients. Those written here take the arrays of
`prepare` and are meant to be fast, like natmix's: whitening by one product, minibatches by start and stride.
Evaluations are counted.
"""

import math
from typing import Any

import numpy as np
import tensorflow as tf
from gmmvi.experiments.target_distributions import (
    gmm,
    logistic_regression,
    planar_robot,
    student_t_mixture,
)
from gmmvi.experiments.target_distributions.lnpdf import LNPDF


class Target(LNPDF):
    """What gmmvi asks of a target, with a counter of evaluations."""

    minibatches = False
    """Whether the log density is random, from a minibatch."""

    def __init__(self, arrays: dict[str, np.ndarray], dim: int, gives_gradients: bool = False) -> None:
        super().__init__(use_log_density_and_grad=gives_gradients)
        self.dim = dim
        self.evaluations = tf.Variable(0, dtype=tf.int64, trainable=False)
        for name, value in arrays.items():
            kind = tf.float32 if value.dtype.kind == "f" else tf.int32
            setattr(self, name, tf.constant(value, kind))

    def get_num_dimensions(self) -> int:
        return self.dim

    def log_density(self, x: tf.Tensor) -> tf.Tensor:
        self.count(x)
        return self.value(x)

    def count(self, x: tf.Tensor) -> None:
        self.evaluations.assign_add(tf.shape(x, tf.int64)[0])

    def value(self, x: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError

    def exact(self, x: tf.Tensor) -> tf.Tensor:
        """Without minibatches."""
        return self.value(x)


class Gaussians(Target):
    """log (1/K) sum_k N(x; m_k, L_k L_k^T)."""

    def value(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_logsumexp(self.log_profile(self.squared(x)) + self.log_constant[:, None], axis=0)

    def squared(self, x: tf.Tensor) -> tf.Tensor:
        y = tf.matmul(x[None] - self.mean[:, None], self.inverse_tril, transpose_b=True)
        return tf.reduce_sum(y**2, axis=2)

    def log_profile(self, squared: tf.Tensor) -> tf.Tensor:
        return -0.5 * squared


class Students(Gaussians):
    """log (1/K) sum_k t(x; m_k, L_k L_k^T, nu)."""

    def log_profile(self, squared: tf.Tensor) -> tf.Tensor:
        return -0.5 * (self.nu + self.dim) * tf.math.log1p(squared / self.nu)


class Logistic(Target):
    """sum_n log sigmoid(s_n f_n^T x) + log N(x; 0, 10^2 I)."""

    def value(self, x: tf.Tensor) -> tf.Tensor:
        log_likelihood = tf.reduce_sum(
            tf.math.log_sigmoid(tf.matmul(x, self.signed, transpose_b=True)), axis=1
        )
        constant = self.dim * (math.log(10) + 0.5 * math.log(2 * math.pi))
        return log_likelihood - 0.5 * tf.reduce_sum((x / 10) ** 2, axis=1) - constant


class PlanarRobot(Target):
    """log N(x; 0, prior_std^2) + max_g log N(end(x); g, goal_std^2 I), ten links of length 1."""

    def value(self, x: tf.Tensor) -> tf.Tensor:
        angle = tf.cumsum(x, axis=1)
        end = tf.stack([tf.reduce_sum(tf.cos(angle), 1), tf.reduce_sum(tf.sin(angle), 1)], axis=1)
        off = (end[:, None] - self.goals) / self.goal_std
        log_goal = tf.reduce_max(-0.5 * tf.reduce_sum(off**2, axis=2), axis=1)
        log_prior = -0.5 * tf.reduce_sum((x / self.prior_std) ** 2, axis=1)
        scales = tf.reduce_sum(tf.math.log(self.prior_std)) + 2 * tf.math.log(self.goal_std)
        return log_goal + log_prior - scales - 0.5 * (self.dim + 2) * math.log(2 * math.pi)


class Wine(Target):
    """-N MSE(x) - |x|^2 / 2 of a network 11-8-8-1, from a minibatch of its own for every point."""

    minibatches = True

    def value(self, x: tf.Tensor) -> tf.Tensor:
        points, rows = tf.shape(x)[0], self.quality.shape[0]
        start = tf.random.uniform((points, 1), 0, rows, tf.int32)
        which = tf.random.uniform((points, 1), 0, self.strides.shape[0], tf.int32)
        chosen = (start + tf.gather(self.strides, which) * tf.range(self.minibatch)) % rows
        error = self.predict(x, tf.gather(self.features, chosen)) - tf.gather(self.quality, chosen)
        return self.log_posterior(x, error)

    def exact(self, x: tf.Tensor) -> tf.Tensor:
        shared = tf.tile(self.features[None], (tf.shape(x)[0], 1, 1))
        return self.log_posterior(x, self.predict(x, shared) - self.quality)

    def log_posterior(self, x: tf.Tensor, error: tf.Tensor) -> tf.Tensor:
        return -self.quality.shape[0] * tf.reduce_mean(error**2, axis=1) - 0.5 * tf.reduce_sum(x**2, axis=1)

    def predict(self, x: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        w1, b1, w2, b2, w3, b3 = tf.split(x, [88, 8, 64, 8, 8, 1], axis=1)
        h = tf.sigmoid(tf.matmul(features, tf.reshape(w1, (-1, 11, 8))) + b1[:, None])
        h = tf.sigmoid(tf.matmul(h, tf.reshape(w2, (-1, 8, 8))) + b2[:, None])
        return tf.matmul(h, w3[:, :, None])[:, :, 0] + b3


class Shipped(Target):
    """A target that comes with gmmvi, for experiments of the paper."""

    constant = 0.0
    """What natmix's log density has more."""

    def __init__(self, inner: LNPDF, dim: int, arrays: dict[str, np.ndarray] | None = None) -> None:
        if not inner.safe_for_tf_graph:
            raise SystemExit(f"gmmvi's {type(inner).__name__} is of another kind than this benchmark knows.")
        super().__init__(arrays or {}, dim, inner.use_log_density_and_grad)
        self.inner = inner

    def value(self, x: tf.Tensor) -> tf.Tensor:
        return self.inner.log_density(x) + self.constant

    def log_density_and_grad(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        self.count(x)
        value, gradient = self.inner.log_density_and_grad(x)
        return value + self.constant, gradient


class ShippedWine(Shipped):
    """Takes the next minibatch of a shuffled stream of rows for every point."""

    minibatches = True
    constant = 177 / 2 * math.log(2 * math.pi)
    """natmix leaves out the normaliser of the prior."""

    def exact(self, x: tf.Tensor) -> tf.Tensor:
        outputs = [self.inner.forward_from_weight_vector(self.features, point) for point in tf.unstack(x)]
        error = tf.stack(outputs)[:, :, 0] - self.quality
        likelihood = -self.quality.shape[0] * tf.reduce_mean(error**2, axis=1)
        return likelihood + self.inner.log_prior(x) + self.constant


def _mixture(arrays: dict[str, np.ndarray]) -> list[tf.Tensor]:
    """Weights, means and covariances or scale matrices."""
    inverse = arrays["inverse_tril"]
    matrices = np.linalg.inv(inverse.transpose(0, 2, 1) @ inverse)
    weights = np.full(len(matrices), 1 / len(matrices))
    return [tf.constant(a, tf.float32) for a in (weights, arrays["mean"], matrices)]


def shipped_wine(seed: int) -> LNPDF:
    """-N MSE(x) + log N(x; 0, I), on the split of this seed."""
    from gmmvi.experiments.target_distributions import bnn  # with much that the other rows do not need

    return bnn.make_WINE_target(likelihood_scaling=1.0, dataset_seed=seed, prior_std=1.0, batch_size=128)


OWN = {
    "gmm": Gaussians,
    "stm": Students,
    "logistic": Logistic,
    "planar_robot": PlanarRobot,
    "wine": Wine,
}
SHIPPED = {
    "gmm": lambda _, arrays: gmm.GMM_LNPDF(*_mixture(arrays)),
    "stm": lambda _, arrays: student_t_mixture.StudentTMixture_LNPDF(*_mixture(arrays), int(arrays["nu"])),
    "logistic": lambda settings, _: getattr(logistic_regression, f"make_{settings['problem']}")(),
    "planar_robot": lambda *_: planar_robot.make_four_goal(),
    "wine": lambda settings, _: shipped_wine(settings["seed"]),
}


def build(which: str, settings: dict[str, Any], stored: dict[str, np.ndarray]) -> Target:
    """The target written here ("own") or the one that comes with gmmvi ("shipped")."""
    arrays = {k.removeprefix("target."): v for k, v in stored.items() if k.startswith("target.")}
    kind, dim = settings["kind"], settings["dim"]
    if which == "own":
        return OWN[kind](arrays, dim)
    inner = SHIPPED[kind](settings, arrays)
    return ShippedWine(inner, dim, arrays) if kind == "wine" else Shipped(inner, dim)
