"""The paper's theorem and its equivalence of weight updates, numerically."""

import jax
import jax.numpy as jnp
import numpy as np

from natmix import Mixture
from natmix.modules.weight_updaters import DirectWeightUpdater

GRID = jnp.linspace(-15, 15, 30_001)
STEP = GRID[1] - GRID[0]


def target(x):
    return jnp.logaddexp(-0.5 * (x + 2) ** 2, -0.7 * (x - 1.5) ** 2) + 0.3 * jnp.sin(x)


def unpack(theta):
    return jax.nn.log_softmax(theta["logits"]), theta["mean"], jnp.exp(theta["log_scale"])


def log_joint(theta, x):
    """log q(o) q(x|o), [N, K]."""
    log_w, mean, scale = unpack(theta)
    z = (x[:, None] - mean) / scale
    return log_w - 0.5 * z**2 - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)


def elbo(theta):
    """Eq. 1."""
    joint = log_joint(theta, GRID)
    log_q = jax.nn.logsumexp(joint, axis=1)
    return jnp.sum(jnp.exp(log_q) * (target(GRID) - log_q)) * STEP


def lower_bound(theta, auxiliary):
    """Eq. 2, with the auxiliary responsibilities log q~(o|x) given."""
    joint = log_joint(theta, GRID)
    log_w, _, _ = unpack(theta)
    conditional = joint - log_w
    inner = jnp.sum(jnp.exp(conditional) * (target(GRID)[:, None] + auxiliary - conditional), axis=0) * STEP
    w = jnp.exp(log_w)
    return jnp.sum(w * (inner - log_w))


def responsibilities(theta):
    joint = log_joint(theta, GRID)
    return joint - jax.nn.logsumexp(joint, axis=1, keepdims=True)


THETA = {
    "logits": jnp.array([0.3, -0.2, 0.5]),
    "mean": jnp.array([-1.5, 0.4, 2.0]),
    "log_scale": jnp.array([-0.2, 0.3, 0.1]),
}


def test_after_the_e_step_bound_and_elbo_have_the_same_value_and_gradient():
    auxiliary = responsibilities(THETA)
    np.testing.assert_allclose(lower_bound(THETA, auxiliary), elbo(THETA), rtol=1e-9)
    bound, full = jax.grad(lower_bound)(THETA, auxiliary), jax.grad(elbo)(THETA)
    for name in THETA:
        np.testing.assert_allclose(bound[name], full[name], rtol=1e-7, atol=1e-9)


def test_elsewhere_the_bound_lies_below_and_its_gradient_differs():
    auxiliary = responsibilities({**THETA, "mean": THETA["mean"] + 0.7})
    assert float(lower_bound(THETA, auxiliary)) < float(elbo(THETA)) - 1e-3
    gap = jax.grad(lower_bound)(THETA, auxiliary)["mean"] - jax.grad(elbo)(THETA)["mean"]
    assert float(jnp.abs(gap).max()) > 1e-3


def test_expected_derivatives_are_the_gradients_of_the_elbo():
    """Eq. 6: dJ/dm = q(o) E[R'] and dJ/dS = q(o) E[R''] / 2, with R = log p~ - log q."""
    log_w, mean, scale = unpack(THETA)
    q = Mixture.full(jnp.exp(log_w), mean[:, None], (scale**2)[:, None, None])

    def R(x):
        return target(x) - q.log_prob(x[None])

    density = jnp.exp(q.component_log_prob(GRID[:, None]))
    first = (density.T @ jax.vmap(jax.grad(R))(GRID)) * STEP
    second = (density.T @ jax.vmap(jax.grad(jax.grad(R)))(GRID)) * STEP
    gradient = jax.grad(elbo)(THETA)
    np.testing.assert_allclose(gradient["mean"], q.weights * first, rtol=1e-6)
    # d/dlog_scale = d/dS * 2 S
    np.testing.assert_allclose(gradient["log_scale"], q.weights * second * scale**2, rtol=1e-6)


def test_weight_updates_of_both_derivations_agree():
    """Natural parameters relative to the last weight (Lin et al.) and Eq. 9."""
    rng = np.random.default_rng(0)
    for beta in (0.1, 0.5, 1.0):
        old = rng.dirichlet(np.ones(6))
        reward = 3 * rng.normal(size=6)
        eta = np.log(old / old[-1]) + beta * (reward - reward[-1])
        lin = np.exp(eta) / np.exp(eta).sum()
        ours = DirectWeightUpdater().update(
            jnp.log(old), jnp.asarray(reward), jnp.asarray(beta), jnp.asarray(1.0)
        )
        np.testing.assert_allclose(jnp.exp(ours), lin, rtol=1e-12)
        # VIPS: q^(eta/(1+eta)) exp(R)^(1/(1+eta)) with R = reward + log q and beta = 1/(1+eta)
        multiplier = 1 / beta - 1
        vips = old ** (multiplier / (1 + multiplier)) * np.exp(reward + np.log(old)) ** (1 / (1 + multiplier))
        np.testing.assert_allclose(jnp.exp(ours), vips / vips.sum(), rtol=1e-12)
