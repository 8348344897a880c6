"""Eight kinds of fits that are interrupted and resumed; a program: ``checkpointed_fits.py KIND FOLDER``."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import natmix
from natmix.engine import checkpoint_schedule
from natmix.files.arrays import read_arrays
from natmix.files.seal import FIT_CHECKPOINT
from natmix.targets import HostTarget, JaxTarget


def two_modes(x):
    """With narrow and wide modes, one of them found by a repair."""
    return jnp.logaddexp(-0.5 * jnp.sum((x - 3) ** 2), -0.5 * jnp.sum((x + 6) ** 2 / 0.25))


def on_host(x):
    """A banana that JAX cannot trace, for batches."""
    x = np.asarray(x, float)
    return -0.5 * (x[:, 0] ** 2 / 4 + (x[:, 1] - 0.3 * x[:, 0] ** 2) ** 2)


def in_box(x):
    return -0.5 * float(np.sum((np.asarray(x) - 0.4) ** 2)) / 0.2**2


def minibatch(key, x):
    data = jnp.linspace(-1, 3, 200)
    some = jax.random.choice(key, data, (50,))
    return -0.5 * 200 * jnp.mean((x[0] - some) ** 2) - 0.5 * jnp.sum(x**2) / 100


def one_on_host(x):
    """The banana again, one point at a time, for workers."""
    return float(on_host(np.asarray(x)[None])[0])


def in_workers(folder):
    """A target in two processes of its own, with a journal beside the checkpoints."""
    journal = None if folder is None else folder.with_name(f"{folder.name}-journal")
    return HostTarget(one_on_host, 2, workers=2, timeout=60, journal=journal)


def pymc_line(folder):
    """A regression in PyMC, built anew by every process."""
    import pymc as pm

    x = np.linspace(-1, 1, 20)
    y = 0.5 + 2 * x + 0.3 * np.random.default_rng(0).normal(size=20)
    with pm.Model() as model:
        line = pm.Normal("a", 0, 5) + pm.Normal("b", 0, 5) * x
        pm.Normal("y", line, pm.HalfNormal("sigma", 1), observed=y)
    return model


def schools(effects, errors):
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", len(effects)):
        theta = numpyro.sample("theta", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mu + tau * theta, errors), obs=effects)


_EFFECTS, _ERRORS = np.array([28.0, 8, -3, 7]), np.array([15.0, 10, 16, 11])

KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "JAX": (two_modes, {"dim": 2, "max_iterations": 400}),
    "NumPyro": (schools, {"model_args": (_EFFECTS, _ERRORS), "max_iterations": 200}),
    "host": (on_host, {"dim": 2, "max_evaluations": 15_000}),
    "bounds": (in_box, {"dim": 2, "bounds": (0, 1), "max_evaluations": 6_000}),
    "minibatches": (JaxTarget(minibatch, 2, stochastic=True), {"max_iterations": 120}),
    "workers": (in_workers, {"max_evaluations": 4_000, "verify": False}),
    "PyMC": (pymc_line, {"max_iterations": 150}),
    "VIPS": (two_modes, {"dim": 2, "algorithm": "zamtrux", "accuracy": None, "max_iterations": 300}),
}

MADE = ("workers", "PyMC")
"""The kinds whose entry is a function of the folder that makes the target."""


def fitted(kind: str, folder: Path | None, **arguments: Any) -> natmix.Result:
    """A fit of this kind, with checkpoints if there is a folder for them."""
    target, options = KINDS[kind]
    if kind in MADE:
        target = target(folder)
    found = {"checkpoint": folder, "checkpoint_seconds": 0.0, "progress": False}
    return natmix.fit(target, **{**options, **found, **arguments})


def sample_store(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of the state in the last checkpoint, stored samples among them."""
    content = read_arrays(folder / "state.safetensors", FIT_CHECKPOINT)
    return {name: a for name, a in content.arrays.items() if name.startswith("state")}


def assert_same(a: natmix.Result, b: natmix.Result) -> None:
    """Everything but times is equal, bit for bit."""
    assert a.counts == b.counts
    assert (a.stopped, a.elbo, a.settings) == (b.stopped, b.elbo, b.settings)
    notes = [[note for note in r.notes if "taken from the journal" not in note] for r in (a, b)]
    assert notes[0] == notes[1]
    assert np.asarray(a.mixture.log_weights).tobytes() == np.asarray(b.mixture.log_weights).tobytes()
    here, there = a.mixture.components.parameters(), b.mixture.components.parameters()
    assert all(np.asarray(here[name]).tobytes() == np.asarray(there[name]).tobytes() for name in here | there)
    assert a.trajectory.keys() == b.trajectory.keys()
    for name in a.trajectory.keys() - {"seconds"}:
        assert a.trajectory[name].tobytes() == b.trajectory[name].tobytes(), name
    assert (a.draws is None) == (b.draws is None)
    if a.draws is not None and b.draws is not None:
        assert a.draws.x.tobytes() == b.draws.x.tobytes()
        assert a.draws.log_target.tobytes() == b.draws.log_target.tobytes()
    assert (a.verification is None) == (b.verification is None)
    if a.verification is not None and b.verification is not None:
        assert a.verification.repairs == b.verification.repairs
        assert a.verification.evaluations == b.verification.evaluations


def main(kind: str, folder: Path, told: Callable[[str], None]) -> None:
    """Fit, and write the number of iterations after every chunk."""
    checkpoint_schedule.COST_SHARE = 0
    fitted(kind, folder, callback=lambda snapshot: told(f"{snapshot.iteration}\n"))
    told("done\n")


def _tell(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(sys.argv[1], Path(sys.argv[2]), _tell)
