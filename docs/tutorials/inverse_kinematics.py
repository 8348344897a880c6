# %% [markdown]
# # Inverse kinematics of a robot arm
#
# Which joint angles bring the hand of a planar arm with four joints to a given place? There are many,
# in several separate families. The density prefers small angles and a hand close to the goal. A
# mixture describes all families at once, and can be conditioned in closed form: what do the other
# joints do if the first one is stuck?

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import natmix

LENGTHS = jnp.array([1.0, 0.8, 0.6, 0.4])
GOAL = jnp.array([1.2, 0.8])


def joints(angles):
    """The positions of all joints and of the hand, [5, 2]."""
    direction = jnp.cumsum(angles)
    steps = LENGTHS[:, None] * jnp.stack([jnp.cos(direction), jnp.sin(direction)], axis=1)
    return jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(steps, axis=0)])


def log_density(angles):
    """The hand is at the goal, up to 10 cm; angles are preferably below 1."""
    miss = joints(angles)[-1] - GOAL
    return -0.5 * jnp.sum(angles**2) - 0.5 * jnp.sum((miss / 0.1) ** 2)


result = natmix.fit(log_density, dim=4, start="pathfinder", max_evaluations=1_500_000)
print(result.summary())

# %% [markdown]
# Sixty arms drawn from the mixture. Colours tell the modes apart.


# %%
def draw_arms(axes, angles, colors, title):
    """Arms with their joints."""
    for arm, color in zip(np.asarray(jax.vmap(joints)(angles)), colors, strict=True):
        axes.plot(*arm.T, "-o", color=color, ms=2, lw=0.8, alpha=0.5)
    axes.plot(*GOAL, "k+", ms=12)
    axes.set(title=title, aspect="equal")


angles = jnp.asarray(result.sample(60))
labels = np.asarray(natmix.diagnostics.mode_labels(result.mixture))
component = np.asarray(jnp.argmax(result.mixture.responsibilities(angles), axis=1))
palette = np.array(["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999"])
fig, axes = plt.subplots(figsize=(4.5, 4), layout="constrained")
draw_arms(axes, angles, palette[np.minimum(labels[component], 6)], "all solutions")

# %% [markdown]
# The first joint is stuck at an angle of 1. The distribution of the other three is a conditional of
# the mixture, in closed form, without another fit.

# %%
others = jnp.asarray(result.mixture.condition({0: 1.0}).sample(60))
stuck = jnp.concatenate([jnp.ones((60, 1)), others], axis=1)
fig, axes = plt.subplots(figsize=(4.5, 4), layout="constrained")
draw_arms(axes, stuck, ["#0072b2"] * 60, "first joint at 1 rad")

# %%
hands = np.asarray(jax.vmap(joints)(jnp.asarray(result.sample(5000))))[:, -1]
distance = np.linalg.norm(hands - np.asarray(GOAL), axis=1)
print(f"distance of the hand from the goal: median {100 * np.median(distance):.1f} cm")
stuck_hands = np.asarray(jax.vmap(joints)(stuck))[:, -1]
missed = np.linalg.norm(stuck_hands - np.asarray(GOAL), axis=1)
print(f"with a stuck joint: median {100 * np.median(missed):.1f} cm")

# %%
assert result.diagnosis.verdict in ("trust", "unsearched", "proposal")
assert np.median(distance) < 0.15
