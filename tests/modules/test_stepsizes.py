"""Stepsize schedules against sequences computed by hand."""

import jax.numpy as jnp
import numpy as np

from natmix.modules import component_stepsizes, weight_stepsizes
from natmix.modules.component_stepsizes.base import Rewards

from helpers import random_mixture  # isort: skip

MIXTURE = random_mixture(0, 2, 2)


def component_sequence(option, rewards):
    """Stepsizes when these rewards are recorded one after another, [len + 1, K]."""
    state, out = option.init(MIXTURE), []
    rewards = np.asarray(rewards, dtype=float)
    for i in range(len(rewards) + 1):
        last = rewards[i - 1] if i else np.zeros(2)
        state, step = option.update(state, Rewards(jnp.asarray(last), jnp.full(2, i)), jnp.full(2, i))
        out.append(step)
    return np.array(out)


def weight_sequence(option, objectives):
    state, out = option.init(MIXTURE), []
    for i, value in enumerate(objectives):
        state, step = option.update(state, jnp.asarray(float(value)), jnp.asarray(i))
        out.append(float(step))
    return np.array(out)


def test_fixed():
    np.testing.assert_allclose(
        component_sequence(component_stepsizes.FixedComponentStepsize(stepsize=0.3), [[1, 2], [0, 3]]),
        0.3,
    )
    np.testing.assert_allclose(
        weight_sequence(weight_stepsizes.FixedWeightStepsize(stepsize=0.0), [1, 2, 3]),
        0.0,
    )


def test_decaying():
    wanted = [0.5 / (1 + n**0.75) for n in range(4)]
    got = component_sequence(
        component_stepsizes.DecayingComponentStepsize(stepsize=0.5, exponent=0.75),
        [[0, 0]] * 3,
    )
    np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-6)
    got = weight_sequence(weight_stepsizes.DecayingWeightStepsize(stepsize=0.5, exponent=0.75), [0] * 4)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    assert wanted[:2] == [0.5, 0.25]


def test_adaptive_components():
    option = component_stepsizes.AdaptiveComponentStepsize(stepsize=0.1, min_stepsize=0.08, max_stepsize=0.13)
    #             component 0: up, up, tie; component 1: down, down, up
    got = component_sequence(option, [[1, 5], [2, 4], [3, 3], [3, 9]])
    b = 0.1
    np.testing.assert_allclose(got[:, 0], [b, b, b * 1.15, 0.13, 0.13 * 0.85], rtol=1e-6)
    np.testing.assert_allclose(got[:, 1], [b, b, b * 0.85, 0.08, 0.08 * 1.15], rtol=1e-6)


def test_an_initial_stepsize_outside_the_limits_is_kept_until_adapted():
    option = component_stepsizes.AdaptiveComponentStepsize(stepsize=5.0, min_stepsize=0.01, max_stepsize=1.0)
    got = component_sequence(option, [[1, 1], [2, 0], [3, -1]])
    np.testing.assert_allclose(got[:, 0], [5, 5, 1.0, 1.0], rtol=1e-6)  # min(1.15 b, max)
    np.testing.assert_allclose(got[:, 1], [5, 5, 5 * 0.85, 5 * 0.85**2], rtol=1e-6)  # max(0.85 b, min)


def test_adaptive_weights():
    option = weight_stepsizes.AdaptiveWeightStepsize(stepsize=1.0, min_stepsize=0.5, max_stepsize=1.2)
    # The objective means nothing before the first weight update.
    got = weight_sequence(option, [99, -5, -4, -3, -3, -9, -9.5, -10, -11])
    up, down = 1.15, 0.85
    b = [1, 1, up, 1.2, 1.2 * down, 1.2 * down**2, 1.2 * down**3, 1.2 * down**4, 1.2 * down**5]
    np.testing.assert_allclose(got, np.maximum(b, 0.5), rtol=1e-6)


def test_factors_are_hyperparameters():
    option = weight_stepsizes.AdaptiveWeightStepsize(
        stepsize=1.0,
        increase=2.0,
        decrease=0.5,
        max_stepsize=10.0,
    )
    np.testing.assert_allclose(weight_sequence(option, [0, 0, 1, 2, 0]), [1, 1, 2, 4, 2], rtol=1e-6)
