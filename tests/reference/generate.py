"""Test vectors computed by the reference package `gmmvi` 1.1 (TensorFlow).

Make an environment of its own and run this file in it (CPU is enough, about a minute):

    python3.11 -m venv gmmvi-env
    gmmvi-env/bin/pip install gmmvi==1.1 tensorflow-cpu tf_keras psutil
    gmmvi-env/bin/python tests/reference/generate.py        # writes vectors.npz next to this file

gmmvi is driven only through its documented classes and their public attributes; this
file holds none of its code. Everything that gmmvi does not compute (targets, background
densities, KL divergences) is NumPy in float64. gmmvi computes in float32 throughout, so
all inputs are rounded to float32 first and both sides see the same numbers.

The arrays are described in README.md. Sign convention (gmmvi's own is the same):
G = -E[hess R], g = -E[grad R], R = log p~ - T log q.
"""

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import math
from pathlib import Path

import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

from gmmvi.experiments.target_distributions.lnpdf import LNPDF  # noqa: E402
from gmmvi.models.diagonal_gmm import DiagonalGMM  # noqa: E402
from gmmvi.models.full_cov_gmm import FullCovGMM  # noqa: E402
from gmmvi.models.gmm_wrapper import GmmWrapper  # noqa: E402
from gmmvi.optimization.gmmvi_modules.component_adaptation import VipsComponentAdaptation  # noqa: E402
from gmmvi.optimization.gmmvi_modules.component_stepsize_adaptation import (  # noqa: E402
    DecayingComponentStepsizeAdaptation,
    FixedComponentStepsizeAdaptation,
    ImprovementBasedComponentStepsizeAdaptation,
)
from gmmvi.optimization.gmmvi_modules.ng_based_component_updater import (  # noqa: E402
    DirectNgBasedComponentUpdater,
    KLConstrainedNgBasedComponentUpdater,
    NgBasedComponentUpdaterIblr,
)
from gmmvi.optimization.gmmvi_modules.ng_estimator import MoreNgEstimator, SteinNgEstimator  # noqa: E402
from gmmvi.optimization.gmmvi_modules.sample_selector import LinSampleSelector, VipsSampleSelector  # noqa: E402
from gmmvi.optimization.gmmvi_modules.weight_stepsize_adaptation import (  # noqa: E402
    DecayingWeightStepsizeAdaptation,
    FixedWeightStepsizeAdaptation,
    ImprovementBasedWeightStepsizeAdaptation,
)
from gmmvi.optimization.gmmvi_modules.weight_updater import (  # noqa: E402
    DirectWeightUpdater,
    TrustRegionBasedWeightUpdater,
)
from gmmvi.optimization.sample_db import SampleDB  # noqa: E402

OUT: dict[str, Any] = {}  # everything that is written, by name
NO_RECORD = -3.4028235e38  # how gmmvi marks an empty slot of a history; stored here as NaN


# ---------------------------------------------------------------- NumPy, float64
def round32(a):
    return np.asarray(a, np.float32).astype(np.float64)


def logsumexp(a, axis=0):
    m = np.max(a, axis=axis, keepdims=True)
    return np.squeeze(m + np.log(np.sum(np.exp(a - m), axis=axis, keepdims=True)), axis)


def mahalanobis(x, mean, cov):
    """Squared distances (N,), S^-1 (x - m) (N, D), log det S."""
    chol = np.linalg.cholesky(cov)
    y = np.linalg.solve(chol, (x - mean).T)
    return np.sum(y**2, 0), np.linalg.solve(chol.T, y).T, 2 * np.sum(np.log(np.diag(chol)))


def gmm_logpdf(x, weights, means, covs):
    """Mixture log density (N,), its gradient (N, D), component log densities (K, N)."""
    comps, grads = [], []
    for mean, cov in zip(means, covs, strict=False):
        d2, v, logdet = mahalanobis(x, mean, cov)
        comps.append(-0.5 * (d2 + logdet + len(mean) * math.log(2 * math.pi)))
        grads.append(-v)
    comps = np.stack(comps)  # type: ignore[assignment]
    joint = comps + np.log(weights)[:, None]
    total = logsumexp(joint)
    return total, np.einsum("kn,kni->ni", np.exp(joint - total), np.stack(grads)), comps


def student_t_mixture(x, weights, means, scales, dofs):
    """Log density and gradient of a mixture of multivariate Student-t's."""
    logs, grads = [], []
    for weight, mean, scale, nu in zip(weights, means, scales, dofs, strict=False):
        dim = len(mean)
        d2, v, logdet = mahalanobis(x, mean, scale)
        const = (
            math.lgamma((nu + dim) / 2) - math.lgamma(nu / 2) - dim / 2 * math.log(nu * math.pi) - logdet / 2
        )
        logs.append(math.log(weight) + const - (nu + dim) / 2 * np.log1p(d2 / nu))
        grads.append(-(nu + dim) / (nu + d2)[:, None] * v)
    logs = np.stack(logs)  # type: ignore[assignment]
    total = logsumexp(logs)
    return total, np.einsum("kn,kni->ni", np.exp(logs - total), np.stack(grads))


def kl_gauss(mean1, cov1, mean0, cov0):
    prec0 = np.linalg.inv(cov0)
    diff = mean1 - mean0
    return 0.5 * (
        np.trace(prec0 @ cov1)
        - len(mean0)
        + diff @ prec0 @ diff
        + np.linalg.slogdet(cov0)[1]
        - np.linalg.slogdet(cov1)[1]
    )


# ---------------------------------------------------------------- helpers around gmmvi
def f32(a):
    return tf.constant(np.asarray(a), tf.float32)


def i32(a):
    return tf.constant(np.asarray(a), tf.int32)


def wrapped(case, stepsize=0.1, ridge=1e-12, history=20):
    """A fresh wrapped gmmvi model with the case's mixture."""
    if case["diagonal"]:
        model = DiagonalGMM(f32(case["weights"]), f32(case["means"]), f32(diagonals(case["covs"])))
    else:
        model = FullCovGMM(f32(case["weights"]), f32(case["means"]), f32(case["covs"]))
    return GmmWrapper(model, stepsize, ridge, history)


def diagonals(matrices):
    return np.stack([np.diag(m) for m in matrices])


def covs_of(wrapper, case):
    covs = wrapper.covs.numpy().astype(np.float64)
    return np.stack([np.diag(c) for c in covs]) if case["diagonal"] else covs


def put(name, value):
    value = np.asarray(value)
    assert value.dtype != object, name
    assert name not in OUT, name
    OUT[name] = value


# ---------------------------------------------------------------- cases
def make_case(name, rng, dim, counts, diagonal=False, moved=0.0):
    """A mixture with K = len(counts) components and counts[k] samples for component k.

    The samples come from Gaussians that differ from the components if moved > 0 (as if
    they were older versions of them).
    """
    k = len(counts)
    a = 0.5 * rng.standard_normal((k, dim, dim))
    covs = a @ a.transpose(0, 2, 1) + 0.5 * np.eye(dim)
    if diagonal:
        covs = np.stack([np.diag(np.diag(c)) for c in covs])
    means = 1.3 * rng.standard_normal((k, dim))
    weights = rng.dirichlet(np.full(k, 4.0)) if k > 1 else np.ones(1)
    case = {
        "name": name,
        "diagonal": diagonal,
        "weights": round32(weights),
        "means": round32(means),
        "covs": round32(covs),
    }
    case["source_means"] = round32(case["means"] + moved * rng.standard_normal((k, dim)))
    case["source_covs"] = round32(case["covs"] * (1 + moved))
    case["mapping"] = np.repeat(np.arange(k), counts)
    case["x"] = round32(
        np.concatenate(
            [
                m + rng.standard_normal((n, dim)) @ np.linalg.cholesky(c).T
                for m, c, n in zip(case["source_means"], case["source_covs"], counts, strict=False)
            ]
        )
    )
    b = 0.5 * rng.standard_normal((3, dim, dim))
    target = {
        "weights": np.array([0.5, 0.3, 0.2]),
        "means": 1.5 * rng.standard_normal((3, dim)),
        "scales": b @ b.transpose(0, 2, 1) + 0.6 * np.eye(dim),
        "dofs": np.array([3.0, 5.0, 8.0]),
    }
    case["target"] = target
    case["log_target"], case["grad_target"] = student_t_mixture(case["x"], **target)
    fractions = np.asarray(counts) / np.sum(counts)
    case["log_background"] = gmm_logpdf(case["x"], fractions, case["source_means"], case["source_covs"])[0]
    for key in (
        "weights",
        "means",
        "covs",
        "source_means",
        "source_covs",
        "mapping",
        "x",
        "log_target",
        "grad_target",
        "log_background",
    ):
        put(f"case.{name}.{key}", case[key])
    for key, value in target.items():
        put(f"case.{name}.target_{key}", value)
    return case


# ---------------------------------------------------------------- 1 estimators
def estimate(case, kind, self_normalised, own=False, temperature=1.0, ridges=None, mapping=None):
    """G (K, D, D) as returned and g (K, D).

    The estimators ignore their temperature, so T is put into the target: with
    log p~ - (T-1) log q in the place of log p~ gmmvi's log p~ - log q is the R wanted.
    """
    log_target, grad_target = case["log_target"], case["grad_target"]
    if temperature != 1.0:
        log_q, grad_q, _ = gmm_logpdf(case["x"], case["weights"], case["means"], case["covs"])
        log_target = log_target - (temperature - 1) * log_q
        grad_target = grad_target - (temperature - 1) * grad_q
    wrapper = wrapped(case)
    if kind == "S":
        estimator = SteinNgEstimator(1.0, wrapper, own, self_normalised)
    else:
        estimator = MoreNgEstimator(1.0, wrapper, own, 1e-12, self_normalised)
    if ridges is not None:
        wrapper.l2_regularizers.assign(np.asarray(ridges, np.float32))
    hess, grad = estimator.get_expected_hessian_and_grad(
        f32(case["x"]),
        i32(case["mapping"] if mapping is None else mapping),
        f32(case["log_background"]),
        f32(log_target),
        f32(grad_target),
    )
    hess = hess.numpy()
    if case["diagonal"]:
        hess = np.stack([np.diag(h) for h in hess])
    return hess, grad.numpy()


def estimators(case):
    name = case["name"]
    settings = [
        ("S.sn", "S", True, False, 1.0),
        ("S.std", "S", False, False, 1.0),
        ("S.own", "S", True, True, 1.0),
        ("S.sn.T2", "S", True, False, 2.0),
    ]
    if not case["diagonal"]:
        settings += [
            ("Z.sn", "Z", True, False, 1.0),
            ("Z.std", "Z", False, False, 1.0),
            ("Z.sn.T2", "Z", True, False, 2.0),
        ]
    for label, kind, sn, own, temperature in settings:
        hess, grad = estimate(case, kind, sn, own, temperature)
        put(f"est.{name}.{label}.G", 0.5 * (hess + hess.transpose(0, 2, 1)))
        put(f"est.{name}.{label}.g", grad)
        if label == "S.std" and not case["diagonal"]:
            put(f"est.{name}.{label}.G_raw", hess)
    if not case["diagonal"]:
        ridges = np.geomspace(1e-3, 1.0, len(case["weights"]))
        put(f"est.{name}.ridges", ridges)
        for label, sn in (("Z.sn", True), ("Z.std", False)):
            hess, grad = estimate(case, "Z", sn, ridges=ridges)
            put(f"est.{name}.{label}.ridge.G", 0.5 * (hess + hess.transpose(0, 2, 1)))
            put(f"est.{name}.{label}.ridge.g", grad)


# ---------------------------------------------------------------- 2 component updates
def update(case, updater, hess, grad, stepsizes, temperature=1.0, received=0, last_eta=-1.0):
    """Apply one update; the success flags are read from what happens to the ridges."""
    wrapper = wrapped(case)
    k = len(case["weights"])
    ridge = np.full(k, 1e-9, np.float32)
    wrapper.l2_regularizers.assign(ridge)
    wrapper.num_received_updates.assign(np.full(k, received, np.float32))
    wrapper.last_log_etas.assign(np.full(k, last_eta, np.float32))  # holds eta, not its logarithm
    given = diagonals(hess) if case["diagonal"] else hess
    updater(wrapper, temperature).apply_NG_update(f32(given), f32(grad), f32(stepsizes))
    means, covs = wrapper.means.numpy(), covs_of(wrapper, case)
    return {
        "means": means,
        "covs": covs,
        "success": wrapper.l2_regularizers.numpy() < ridge,
        "eta": wrapper.last_log_etas.numpy(),
        "kl": np.array(
            [kl_gauss(means[j].astype(float), covs[j], case["means"][j], case["covs"][j]) for j in range(k)]
        ),
    }


def component_updates(case):
    name, k = case["name"], len(case["weights"])
    hess, grad = OUT[f"est.{name}.S.sn.G"].astype(np.float32), OUT[f"est.{name}.S.sn.g"]
    dim = grad.shape[1]

    def store(label, stepsizes, result, keys, g_hess=None):
        put(f"upd.{name}.{label}.stepsizes", np.asarray(stepsizes, np.float32))
        if g_hess is not None:
            put(f"upd.{name}.{label}.G", np.asarray(g_hess, np.float32))
        for key in keys:
            put(f"upd.{name}.{label}.{key}", result[key])

    put(f"upd.{name}.G", hess)
    put(f"upd.{name}.g", grad)
    plain = ("means", "covs", "success")
    trust = (*plain, "eta", "kl")
    steps = np.linspace(0.1, 0.5, k)
    # a G that makes the first component indefinite under the direct update, and only that one
    bad = hess.copy()
    bad[0] = -1.5 * np.linalg.inv(case["covs"][0])
    if not case["diagonal"]:  # the direct update raises for diagonal models
        store("I", steps, update(case, DirectNgBasedComponentUpdater, hess, grad, steps), plain)
        mixed = np.r_[0.9, np.full(k - 1, 0.3)]
        store("I.fail", mixed, update(case, DirectNgBasedComponentUpdater, bad, grad, mixed), plain, bad)
    store("Y.first", steps, update(case, NgBasedComponentUpdaterIblr, hess, grad, steps), plain)
    store("Y.later", steps, update(case, NgBasedComponentUpdaterIblr, hess, grad, steps, received=3), plain)
    store(
        "Y.later.bad",
        np.full(k, 0.9),
        update(case, NgBasedComponentUpdaterIblr, bad, grad, np.full(k, 0.9), received=3),
        plain,
        bad,
    )
    trust_region = KLConstrainedNgBasedComponentUpdater
    for label, bound, temperature, last_eta in (
        ("T.small", 1e-3, 1.0, 30.0),  # warm start: searches e^-3..e^3 times the last eta
        ("T.medium", 0.1, 1.0, 5.0),
        ("T.large", 1e4, 1.0, 5.0),  # stops short of eta = T, see README
        ("T.full.T2", 1e4, 2.0, 5.0),  # full step: eta = T = 2
        ("T.medium.T2", 0.1, 2.0, 5.0),
        ("T.cold", 0.1, 1.0, -1.0),  # first update: the search stops at eta = e^5
    ):
        bounds = np.full(k, bound)
        store(
            label,
            bounds,
            update(case, trust_region, hess, grad, bounds, temperature, last_eta=last_eta),
            trust,
        )
    # positive definite G, so that even the full step is positive definite
    pos = hess @ hess.transpose(0, 2, 1) + 0.1 * np.eye(dim, dtype=np.float32)
    bounds = np.full(k, 1e4)
    store(
        "T.full.pos.T2", bounds, update(case, trust_region, pos, grad, bounds, 2.0, last_eta=5.0), trust, pos
    )
    # no eta within reach of the warm start: the component is kept, eta reset to -1
    huge = -1e6 * pos
    bounds = np.full(k, 0.1)
    store("T.fail", bounds, update(case, trust_region, huge, grad, bounds, last_eta=1.0), trust, huge)
    # cold start with a G so large that the root lies above e^5
    large = 1e3 * pos
    store("T.cold.found", bounds, update(case, trust_region, large, grad, bounds), trust, large)


# ---------------------------------------------------------------- 3 weights
def weight_updates(case):
    name, k = case["name"], len(case["weights"])
    data = (f32(case["x"]), f32(case["log_background"]), f32(case["log_target"]))

    def run(cls, sn, stepsize, temperature, label):
        wrapper = wrapped(case)
        cls(wrapper, temperature, sn).update_weights(*data, tf.constant(stepsize, tf.float32))
        rewards = wrapper.reward_history.numpy()[:, -1]
        new = wrapper.weights.numpy()
        put(f"wgt.{name}.{label}.stepsize", stepsize)
        put(f"wgt.{name}.{label}.rewards", rewards)
        put(f"wgt.{name}.{label}.E", rewards - temperature * np.log(case["weights"]))
        put(f"wgt.{name}.{label}.weights", new)
        put(f"wgt.{name}.{label}.log_weights", wrapper.log_weights.numpy())
        put(
            f"wgt.{name}.{label}.kl",
            float(np.sum(new * (np.log(new.astype(float)) - np.log(case["weights"])))),
        )

    for norm, sn in (("sn", True), ("std", False)):
        if k == 1:
            run(DirectWeightUpdater, sn, 0.5, 1.0, f"U.{norm}")
            continue
        for i, stepsize in enumerate((0.1, 1.0)):
            run(DirectWeightUpdater, sn, stepsize, 1.0, f"U.{norm}.{i}")
        for i, stepsize in enumerate((1e-3, 0.1, 10.0)):
            run(TrustRegionBasedWeightUpdater, sn, stepsize, 1.0, f"O.{norm}.{i}")
        run(DirectWeightUpdater, sn, 0.5, 2.0, f"U.{norm}.T2")
        run(TrustRegionBasedWeightUpdater, sn, 0.05, 2.0, f"O.{norm}.T2")


def weight_floor(case):
    """A step that drives a weight below the floor."""
    wrapper = wrapped(case)
    ratios = np.array([0.0, -500.0, -50.0])
    updater = DirectWeightUpdater(wrapper, 1.0, True)
    updater._update_weights_from_expected_log_ratios(f32(ratios), tf.constant(1.0))
    put("wgt.floor.E", ratios)
    put("wgt.floor.old_weights", case["weights"])
    put("wgt.floor.log_weights", wrapper.log_weights.numpy())


# ---------------------------------------------------------------- 4 stepsizes
def stepsizes(case):
    """case must have K = 3."""
    lower, upper, up, down, exponent = 0.05, 0.13, 1.15, 0.85, 0.55
    put("step.limits", np.array([lower, upper, up, down]))
    put("step.exponent", exponent)
    put(
        "step.F",
        FixedComponentStepsizeAdaptation(wrapped(case), 0.1).update_stepsize(f32([0.1, 0.1, 0.1])).numpy(),
    )

    wrapper = wrapped(case)
    adaptation = DecayingComponentStepsizeAdaptation(wrapper, exponent, 0.1)
    counts = np.array([[0, 1, 2], [1, 5, 10], [3, 50, 1000]])
    rows = []
    for row in counts:
        wrapper.num_received_updates.assign(row.astype(np.float32))
        rows.append(adaptation.update_stepsize(f32([0.1, 0.1, 0.1])).numpy())
    put("step.D.initial", 0.1)
    put("step.D.counts", counts)
    put("step.D.stepsizes", np.stack(rows))

    # R: row i of `stepsizes` is the value after the rewards[:i] were recorded and the
    # adaptation was called once more (row 0: no record yet)
    rewards = np.array(
        [[1, 1, 1], [2, 1, 0], [3, 1, 1], [3, 0, 0], [4, -1, -1], [5, 5, -2], [6, 6, -3], [5, 7, -4]], float
    )
    for label, first in (("R", [0.1, 0.1, 0.1]), ("R.outside", [0.1, 0.2, 0.01])):
        wrapper = wrapped(case)
        adaptation = ImprovementBasedComponentStepsizeAdaptation(wrapper, 0.1, lower, upper, up, down)
        current = f32(first)
        rows = [current := adaptation.update_stepsize(current)]
        for row in rewards:
            wrapper.store_rewards(f32(row))
            rows.append(current := adaptation.update_stepsize(current))
        put(f"step.{label}.initial", np.array(first))
        put(f"step.{label}.rewards", rewards)
        put(f"step.{label}.stepsizes", np.stack([r.numpy() for r in rows]))

    fixed = FixedWeightStepsizeAdaptation(0.3)
    put("step.X", np.array([float(fixed.update_stepsize()) for _ in range(4)]))
    decaying = DecayingWeightStepsizeAdaptation(0.3, exponent)
    put("step.G.initial", 0.3)
    put("step.G.stepsizes", np.array([float(decaying.update_stepsize()) for _ in range(8)]))

    # N: before call i rewards[i] are recorded and weights[i] are the current weights
    wrapper = wrapped(case)
    adaptation = ImprovementBasedWeightStepsizeAdaptation(wrapper, 0.1, lower, upper, up, down)
    rewards = np.array(
        [[1, 1, 1], [1, 1, 1], [2, 1, 1], [2, 1, 1], [2, 1, 1], [0, 0, 0], [1, 0, 0], [3, 0, 0], [2, 0, 0]],
        float,
    )
    weights = np.tile(case["weights"], (len(rewards), 1))
    weights[3:] = [0.1, 0.1, 0.8]
    values, judged = [], []
    for row, weight in zip(rewards, weights, strict=False):
        wrapper.replace_weights(f32(np.log(weight)))
        wrapper.store_rewards(f32(row))
        values.append(float(adaptation.update_stepsize()))
        judged.append(float(adaptation.elbo_history.numpy()[-1]))
    put("step.N.initial", 0.1)
    put("step.N.rewards", rewards)
    put("step.N.weights", weights)
    put("step.N.stepsizes", np.array(values))
    put("step.N.judged_on", np.array(judged))


# ---------------------------------------------------------------- 5 samples
class Target(LNPDF):
    """log p~ = -sum log(1 + x_i^2): needed by the selectors to evaluate what they draw."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def get_num_dimensions(self):
        return self.dim

    def log_density(self, x):
        return -tf.reduce_sum(tf.math.log1p(x**2), 1)


def samples(case):
    """A database with samples of two 'iterations'; case must have K = 3, D = 2."""
    rng = np.random.default_rng(7)
    rounds = []
    for shift, scale, counts in ((0.3, 1.5, (20, 5, 10)), (0.0, 1.0, (8, 12, 30))):
        means, covs = round32(case["means"] + shift), round32(case["covs"] * scale)
        mapping = np.repeat(np.arange(3), counts)
        x = round32(
            np.concatenate(
                [
                    m + rng.standard_normal((n, 2)) @ np.linalg.cholesky(c).T
                    for m, c, n in zip(means, covs, counts, strict=False)
                ]
            )
        )
        rounds.append((means, covs, mapping, x))
    target = Target(2)

    def database():
        db = SampleDB(2, False, True, 10000)
        for means, covs, mapping, x in rounds:
            db.add_samples(
                f32(x),
                f32(means),
                f32(np.linalg.cholesky(covs)),
                target.log_density(f32(x)),
                f32(-2 * x / (1 + x**2)),
                i32(mapping),
            )
        return db

    put("smp.gauss_means", np.concatenate([r[0] for r in rounds]))  # (6, 2)
    put("smp.gauss_covs", np.concatenate([r[1] for r in rounds]))
    put("smp.mapping", np.concatenate([rounds[0][2], rounds[1][2] + 3]))  # (85,) into the six Gaussians
    put("smp.x", np.concatenate([r[3] for r in rounds]))  # oldest first
    newest = np.array([85, 60, 50, 40, 10, 200])
    put("smp.newest.n", newest)
    for n in newest:
        db = database()  # its tf.functions hold only a weak reference
        log_z, x, mapping, _, _ = db.get_newest_samples(tf.constant(int(n)))
        put(f"smp.newest.{n}.log_background", log_z.numpy())
        put(f"smp.newest.{n}.mapping", mapping.numpy())
        assert x.numpy().shape[0] == min(n, 85)

    settings = np.array(
        [[20, 1.0], [20, 2.0], [7, 1.5], [10, 0.0], [40, 2.5], [40, 0.5], [60, 0.34], [100, 0.5]]
    )
    put("smp.settings", settings)  # desired, ratio
    for label, cls in (("M", VipsSampleSelector), ("P", LinSampleSelector)):
        drawn, n_eff, reused = [], [], []
        for i, (desired, ratio) in enumerate(settings):
            tf.random.set_seed(i)
            db, wrapper = database(), wrapped(case)
            selector = cls(target, wrapper, db, int(desired), float(ratio))
            x, mapping, log_z, _, _ = (o.numpy() for o in selector.select_samples())
            new = db.mapping.numpy()[85:] - 6  # the current components were entered as Gaussians 6, 7, 8
            drawn.append(np.bincount(new, minlength=3))
            old = len(x) - len(new)
            reused.append(old)
            if old:
                fresh = database()
                old_z = fresh.get_newest_samples(tf.constant(old))[0]
                old_x = f32(x[:old])
                dens = wrapper.component_log_densities(old_x) if label == "M" else wrapper.log_density(old_x)
                n_eff.append(np.atleast_1d(selector.get_effective_samples(dens, old_z).numpy()))
            else:
                n_eff.append(np.zeros(3 if label == "M" else 1))
            put(f"smp.{label}.{i}.x", x)
            put(f"smp.{label}.{i}.mapping", mapping)
            put(f"smp.{label}.{i}.log_background", log_z)
        put(f"smp.{label}.drawn", np.stack(drawn))
        put(f"smp.{label}.n_eff", np.stack(n_eff))
        put(f"smp.{label}.reused", np.array(reused))


# ---------------------------------------------------------------- 6 component adaptation
def adapter(
    case, del_iters=9, thresholds=(1000.0,), history=None, initial_cov=(4.0, 0.25), add_iters=5, prior=0
):
    wrapper = wrapped(case, history=history or 2 * del_iters)
    db, target = SampleDB(2, False, True, 10000), Target(2)
    adaptation = VipsComponentAdaptation(
        wrapper,
        db,
        target,
        f32([10.0, -10.0]),
        f32(initial_cov),
        del_iters,
        add_iters,
        50,
        list(thresholds),
        1e-6,
        100,
        prior,
    )
    return adaptation, wrapper, db, target


def additions(case):
    """case must have D = 2."""
    rng = np.random.default_rng(11)
    candidates = round32(4 * rng.standard_normal((6, 80, 2)))
    log_p = round32(-5 * np.sum(np.log1p(candidates**2), -1) + 3 * rng.standard_normal((6, 80)))
    thresholds = np.array([5000.0, 50.0, 20.0, 10.0, 5.0, 1.0])
    chosen = []
    for x, lp, d in zip(candidates, log_p, thresholds, strict=False):
        adaptation, wrapper, _, _ = adapter(case, thresholds=[d])
        adaptation.add_at_best_location(f32(x), f32(lp))
        chosen.append(np.argmin(np.sum((x - wrapper.means.numpy()[-1]) ** 2, 1)))
    put("add.candidates", candidates)
    put("add.log_target", log_p)
    put("add.thresholds", thresholds)
    put("add.chosen", np.array(chosen))

    # covariance and weight of the new component over many additions to the same mixture
    adaptation, wrapper, _, _ = adapter(case)
    put("add.initial_cov", np.array([4.0, 0.25]))
    put("add.entropy_model", float(wrapper.get_average_entropy()))
    entropies, covs, weights = [], [], []
    for _ in range(200):
        adaptation.add_at_best_location(f32(candidates[0]), f32(log_p[0]))
        covs.append(wrapper.covs.numpy()[-1])
        entropies.append(wrapper.initial_entropies.numpy()[-1])
        weights.append(wrapper.weights.numpy()[-1])
        wrapper.remove_component(len(case["weights"]))
    put("add.entropies", np.array(entropies))
    put("add.covs", np.stack(covs[:10]))
    put("add.weights", np.array(weights[:10]))

    # which iterations add, and the thresholds they use
    cycle = [5000.0, 1000.0, 500.0, 200.0, 100.0, 50.0]
    adaptation, wrapper, db, target = adapter(case, thresholds=cycle, del_iters=1000, history=10)
    x = candidates[0]
    db.add_samples(
        f32(x),
        f32(case["means"][:1]),
        f32(np.linalg.cholesky(case["covs"][:1])),
        target.log_density(f32(x)),
        f32(np.zeros_like(x)),
        i32(np.zeros(len(x))),
    )
    number = []
    for iteration in range(41):
        adaptation.adapt_number_of_components(iteration)
        number.append(int(wrapper.num_components))
    put("add.iters", 5)
    put("add.cycle", np.array(cycle))
    put("add.number_of_components", np.array(number))  # after iteration 0, 1, ...
    put("add.cycle_used", wrapper.adding_thresholds.numpy()[len(case["weights"]) :])


def deletion_histories(del_iters):
    """Labels, rewards (n, 3, 2 del_iters) with NaN for "no record yet", weights (same shape).

    The third component is the bad one; gmmvi's own histories are 2 del_iters long as well.
    """
    length, width = 2 * del_iters, 2 * (del_iters // 3)
    window = del_iters + width
    rng = np.random.default_rng(del_iters)
    labels, all_rewards, all_weights = [], [], []

    def add(label, rewards, weights=1e-10):
        full = np.full(length, np.nan)
        full[length - len(rewards) :] = rewards
        all_rewards.append(np.stack([np.zeros(length), np.full(length, -0.5), full]))
        weight = np.full(length, weights) if np.ndim(weights) == 0 else weights
        all_weights.append(np.stack([np.full(length, 0.6), 0.4 - weight, weight]))
        labels.append(label)

    def spike(base, position, value):
        """Constant but for the position-th newest entry."""
        out = np.full(length, base)
        out[-position] = value
        return out

    for n in range(1, length + 1):
        add(f"records {n}", np.full(n, -100.0))
    for fraction in (-0.5, 0.2, 0.39, 0.41, 0.6):
        recent = np.full(width, -100.0 * (1 - fraction))
        add(f"improved by {fraction}", np.r_[np.full(window - width, -100.0), recent])
    for value in (-10.0, -13.0, -13.6, -20.0):
        add(f"reward {value}", np.full(length, value))
    for value in (9e-7, 1.1e-6, 1e-3):
        add(f"weight {value}", np.full(length, -100.0), value)
    for position in (1, 2, del_iters, window - 1, window, window + 1, length):
        add(f"weight spike {position}", np.full(length, -100.0), spike(1e-10, position, 0.1))
        add(f"reward spike {position}", spike(-100.0, position, -12.0))
    for _ in range(6):
        add("random", np.cumsum(10 * rng.standard_normal(length)) - 150.0)
    return labels, np.stack(all_rewards), np.stack(all_weights)


def deletions(case):
    """Histories in, deleted or not out; case must have K = 3."""
    for del_iters in (9, 30):
        labels, all_rewards, all_weights = deletion_histories(del_iters)
        deleted, improvements = [], []
        for rewards, weights in zip(all_rewards, all_weights, strict=True):
            adaptation, wrapper, _, _ = adapter(case, del_iters)
            wrapper.reward_history.assign(np.where(np.isnan(rewards), NO_RECORD, rewards).astype(np.float32))
            wrapper.weight_history.assign(weights.astype(np.float32))
            wrapper.model.replace_weights(f32(np.log(weights[:, -1])))
            adaptation.delete_bad_components()
            kept = [any(np.allclose(m, w) for w in wrapper.means.numpy()) for m in case["means"]]
            deleted.append(~np.array(kept))
            improvements.append(adaptation.reward_improvements.numpy())
        put(f"del.{del_iters}.labels", np.array(labels))
        put(f"del.{del_iters}.rewards", all_rewards)
        put(f"del.{del_iters}.weights", all_weights)
        put(f"del.{del_iters}.deleted", np.stack(deleted))
        put(f"del.{del_iters}.improvements", np.stack(improvements))
        put(f"del.{del_iters}.kernel", adaptation.kernel.numpy().ravel())

        # from which iteration on does the adaptation delete at all?
        full = labels.index(f"records {2 * del_iters}")
        by_iteration = []
        for iteration in range(2 * del_iters):
            adaptation, wrapper, _, _ = adapter(case, del_iters, add_iters=10**6)
            wrapper.reward_history.assign(all_rewards[full].astype(np.float32))
            wrapper.weight_history.assign(all_weights[full].astype(np.float32))
            adaptation.adapt_number_of_components(iteration)
            by_iteration.append(int(wrapper.num_components) == 2)
        put(f"del.{del_iters}.deletes_at_iteration", np.array(by_iteration))


def main():
    rng = np.random.default_rng(2024)
    cases = [
        make_case("d2k1", rng, 2, [40]),
        make_case("d2k3", rng, 2, [25, 40, 30]),
        make_case("d5k3", rng, 5, [50, 60, 70], moved=0.2),
        make_case("d5k4", rng, 5, [50, 50, 50, 50]),
        make_case("d2k3diag", rng, 2, [25, 40, 30], diagonal=True),
        make_case("d5k3diag", rng, 5, [50, 60, 40], diagonal=True, moved=0.2),
    ]
    for case in cases:
        estimators(case)
        component_updates(case)
        weight_updates(case)
    weight_floor(cases[1])
    stepsizes(cases[1])
    samples(cases[1])
    additions(cases[1])
    deletions(cases[1])
    packed = {
        n: a.astype(np.float32) if a.dtype == np.float64 and n.startswith(("del.", "add.")) else a
        for n, a in OUT.items()
    }
    path = Path(__file__).with_name("vectors.npz")
    np.savez_compressed(path, **packed)
    print(f"{len(packed)} arrays, {path.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
