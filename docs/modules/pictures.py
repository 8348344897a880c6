"""Make the pictures of docs/equations.md, one for each of the seven modules, from the modules themselves.

python docs/modules/pictures.py
"""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import natmix
from natmix.modules import component_stepsizes, weight_stepsizes, weight_updaters
from natmix.modules.component_stepsizes.base import Rewards
from natmix.plot import plot_components_2d, plot_density_2d
from natmix.plot.style import KNOWN, PALETTE

HERE = Path(__file__).resolve().parent
BOUNDS = (-4.0, 6.0, -4.0, 4.0)
START = natmix.Mixture.full([1.0], jnp.array([[-1.5, 2.0]]), jnp.eye(2)[None])


def banana(x):
    """A curved density."""
    return -0.5 * (x[0] - 1) ** 2 / 2.0 - 0.5 * ((x[1] + 0.5 * (x[0] - 1) ** 2 - 1) / 0.5) ** 2


def gaussian(x):
    """A correlated Gaussian, for which the exact natural gradient leads to the target in one step."""
    precision = jnp.array([[1.0, 0.6], [0.6, 1.2]])
    return -0.5 * (x - jnp.array([2.0, -0.5])) @ precision @ (x - jnp.array([2.0, -0.5]))


def after(codename: str, target: Any, steps: int, seed: int = 0, start=START, **settings) -> natmix.Mixture:
    """The mixture after some iterations."""
    algorithm = natmix.GMMVI.from_codename(codename, **settings)
    state = algorithm.init(jax.random.key(seed), start)
    step = eqx.filter_jit(algorithm.step)
    for _ in range(steps):
        state, _ = step(state, natmix.JaxTarget(target, 2))
    return state.mixture


def panels(number: int) -> Any:
    """Panels side by side."""
    return plt.subplots(1, number, figsize=(3.0 * number, 2.7), layout="constrained", squeeze=False)[1][0]


def samples() -> None:
    """M draws from every component, P from the mixture."""
    means = jnp.array([[-2.0, 0.0], [1.0, 2.0], [3.5, -1.5]])
    mixture = natmix.Mixture.full([0.75, 0.2, 0.05], means, 0.5 * jnp.stack([jnp.eye(2)] * 3))
    for ax, (letter, title) in zip(
        panels(2), {"M": "M: each component", "P": "P: the mixture"}.items(), strict=True
    ):
        number = 30 if letter == "M" else 90
        algorithm = natmix.GMMVI.from_codename(
            f"SE{letter}IFUX", sample_selector={"desired_samples": number, "reuse_ratio": 0.0}
        )
        query = algorithm.ask(algorithm.init(jax.random.key(0), mixture))
        count = int(query.draws.count)
        source = np.asarray(query.draws.source[:count])
        for component in range(3):
            x = np.asarray(query.draws.x[:count])[source == component]
            ax.plot(*x.T, ".", ms=4, color=PALETTE[component])
        plot_components_2d(mixture, ax=ax)
        ax.set(title=title, xlim=BOUNDS[:2], ylim=BOUNDS[2:])


def component_stepsize() -> None:
    """R follows the reward, F is constant, D decays."""
    (ax,) = panels(1)
    rewards = np.concatenate([np.arange(15.0), 15 - 2 * np.arange(8.0), np.arange(17.0)])
    mixture = START
    for letter, option in (
        ("R", component_stepsizes.AdaptiveComponentStepsize(stepsize=0.1)),
        ("F", component_stepsizes.FixedComponentStepsize(stepsize=0.1)),
        ("D", component_stepsizes.DecayingComponentStepsize(stepsize=0.4)),
    ):
        state, values = option.init(mixture), []
        for i in range(len(rewards)):
            recorded = Rewards(jnp.asarray(rewards[i - 1 : i] if i else np.zeros(1)), jnp.full(1, i))
            state, step = option.update(state, recorded, jnp.full(1, i))
            values.append(float(step[0]))
        ax.plot(values, label=letter)
    ax.axvspan(15, 23, color="0.9", zorder=0)
    ax.text(19, 0.42, "reward falls", ha="center", fontsize=8, color=KNOWN)
    ax.set(xlabel="update of the component", ylabel="stepsize")
    ax.legend()


def natural_gradient() -> None:
    """One exact step leads to the target; estimates from 40 samples, twelve times."""
    for ax, (letter, title) in zip(
        panels(2), {"S": "S: Stein, with gradients", "Z": "Z: MORE, without"}.items(), strict=True
    ):
        plot_density_2d(gaussian, BOUNDS, ax=ax)
        for seed in range(12):
            found = after(
                f"{letter}EMIFUX",
                gaussian,
                1,
                seed,
                sample_selector={"desired_samples": 40, "reuse_ratio": 0.0},
                component_stepsize={"stepsize": 1.0},
            )
            plot_components_2d(found, ax=ax)
        ax.set(title=title, xlim=BOUNDS[:2], ylim=BOUNDS[2:])


def component_update() -> None:
    """From the same samples: the same natural gradient, three ways to follow it."""
    titles = {"I": ("I: direct", 0.5), "Y": ("Y: iBLR", 0.5), "T": ("T: KL at most 0.5", 0.5)}
    for ax, (letter, (title, stepsize)) in zip(panels(3), titles.items(), strict=True):
        plot_density_2d(banana, BOUNDS, ax=ax)
        plot_components_2d(START, ax=ax)
        for steps in (1, 2, 4):
            found = after(
                f"SEM{letter}FUX",
                banana,
                steps,
                sample_selector={"desired_samples": 200, "reuse_ratio": 0.0},
                component_stepsize={"stepsize": stepsize},
            )
            plot_components_2d(found, ax=ax)
        ax.set(title=title, xlim=BOUNDS[:2], ylim=BOUNDS[2:])


def weight_stepsize() -> None:
    """N follows the objective, X is constant, G decays."""
    (ax,) = panels(1)
    objectives = np.concatenate([np.arange(15.0), 15 - 2 * np.arange(8.0), np.arange(17.0)])
    for letter, option in (
        ("N", weight_stepsizes.AdaptiveWeightStepsize(stepsize=0.1)),
        ("X", weight_stepsizes.FixedWeightStepsize(stepsize=0.1)),
        ("G", weight_stepsizes.DecayingWeightStepsize(stepsize=0.4)),
    ):
        state, values = option.init(START), []
        for i, objective in enumerate(objectives):
            state, step = option.update(state, jnp.asarray(objective), jnp.asarray(i))
            values.append(float(step))
        ax.plot(values, label=letter)
    ax.axvspan(15, 23, color="0.9", zorder=0)
    ax.text(19, 0.42, "ELBO falls", ha="center", fontsize=8, color=KNOWN)
    ax.set(xlabel="update of the weights", ylabel="stepsize")
    ax.legend()


def weight_update() -> None:
    """Weights of three components whose best weights are 0.6, 0.3 and 0.1."""
    best = np.log([0.6, 0.3, 0.1])
    titles = {
        "U: stepsize 0.2": (weight_updaters.DirectWeightUpdater(), 0.2),
        "O: KL at most 0.02": (weight_updaters.TrustRegionWeightUpdater(), 0.02),
    }
    for ax, (title, (option, stepsize)) in zip(panels(2), titles.items(), strict=True):
        log_weights = jnp.log(jnp.array([0.02, 0.08, 0.9]))
        history = [np.exp(log_weights)]
        for _ in range(25):
            ratio = jnp.asarray(best) - log_weights
            log_weights = option.update(log_weights, ratio, jnp.asarray(stepsize), jnp.asarray(1.0))
            history.append(np.exp(log_weights))
        for component, values in enumerate(np.array(history).T):
            ax.plot(values, color=PALETTE[component])
            ax.axhline(np.exp(best[component]), color=PALETTE[component], lw=0.7, ls=":")
        ax.set(title=title, xlabel="update", ylabel="weight", ylim=(0, 1))


def number_of_components() -> None:
    """A: components are added where the density is high and the mixture low."""
    for ax, iterations in zip(panels(3), (1, 60, 300), strict=True):
        result = natmix.fit(
            banana, 2, init_mixture=START, max_iterations=iterations, accuracy=0, verify=False, progress=False
        )
        plot_density_2d(banana, BOUNDS, ax=ax)
        plot_components_2d(result.mixture, ax=ax)
        ax.set(title=f"iteration {iterations}", xlim=BOUNDS[:2], ylim=BOUNDS[2:])


PICTURES = (
    samples,
    component_stepsize,
    natural_gradient,
    component_update,
    weight_stepsize,
    weight_update,
    number_of_components,
)

if __name__ == "__main__":
    for picture in PICTURES:
        picture()
        plt.gcf().savefig(HERE / f"{picture.__name__}.png", dpi=110)
        plt.close("all")
        print(picture.__name__)
