"""Run by test_sharding.py in a process with eight simulated devices; writes what it saw as JSON."""

import json
import sys

import jax
import numpy as np
from helpers import mixture_target, random_mixture

import natmix
from natmix import GMMVI, JaxTarget
from natmix.engine.chunk_runner import ChunkRunner
from natmix.kernels import compilation, log_densities, scores
from natmix.kernels.plan import Plan, using
from natmix.kernels.sharding import as_mesh

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
compilation._CPU_OPTIONS["xla_backend_optimization_level"] = 0  # as in conftest.py

ADDING = {"add_iters": 2, "database_size": 800, "prior_candidates": 5}
CASES = {
    "SAMTRON": {
        "sample_selector": {"desired_samples": 20},
        "component_adaptation": ADDING,
        "ng_estimator": {"own_samples_only": True},
    },
    "ZAMTRUX": {
        "sample_selector": {"desired_samples": 31},
        "component_adaptation": {**ADDING, "database_size": 801},
    },
    "SEPYFUX": {
        "sample_selector": {"desired_samples": 203, "reuse_ratio": 0.1},
        "component_stepsize": {"stepsize": 0.01},
    },
}


def run(name, devices, target, iterations=6, **settings):
    capacity = 7 if name == "SAMTRON" and devices is not None else 16  # one of them grows
    algo = GMMVI.from_codename(name, **settings).on(devices)
    state = algo.init(0, random_mixture(1, 7, 3, spread=2.0), capacity=capacity)
    runner = ChunkRunner(algo, target, algo.component_adaptation.most_components(7))
    rows, infos = [state.mixture.num_components], []
    while int(state.iteration) < iterations:
        chunk = runner.advance(state, min(3, iterations - int(state.iteration)), None)
        state = chunk.state
        rows.append(state.mixture.num_components)
        infos.append(chunk.infos)
    return state, rows, {k: np.concatenate([i[k] for i in infos]) for k in infos[0]}


def compared(name, settings, target):
    one, _, one_infos = run(name, None, target, **settings)
    many, rows, infos = run(name, jax.make_mesh((8,), ("components",)), target, **settings)
    exists = np.asarray(one.mixture.log_weights) > -np.inf
    present = np.asarray(many.mixture.log_weights) > -np.inf
    pairs = zip(jax.tree.leaves(one.mixture), jax.tree.leaves(many.mixture), strict=True)
    return {
        "rows": rows,
        "components": [int(exists.sum()), int(present.sum())],
        "moved": float(np.abs(np.asarray(one.mixture.components.mean)[:7] - start_means()).max()),
        "mixture": max(
            float(np.abs(np.asarray(a)[exists] - np.asarray(b)[present]).max(initial=0)) for a, b in pairs
        ),
        "elbo": float(np.abs(one_infos["elbo"] - infos["elbo"]).max()),
        "counts": [int(i["evaluations"].sum()) for i in (one_infos, infos)],
        "shares": {
            jax.tree_util.keystr(path): [a.shape[0], a.addressable_shards[0].data.shape[0]]
            for path, a in jax.tree_util.tree_leaves_with_path(many)
            if a.ndim
        },
    }


def start_means():
    return np.asarray(random_mixture(1, 7, 3, spread=2.0).components.mean)


def program(target):
    """The compiled chunk's text."""
    algo = GMMVI.from_codename("semtrux", sample_selector={"desired_samples": 20}).on(jax.devices())
    runner = ChunkRunner(algo, target, 16)
    state = algo.init(0, random_mixture(1, 16, 3))
    return runner.lowered(state).compile().as_text()


def noisy(key, x):
    """A stochastic function of many points: one key for every block of them."""
    return -0.5 * (x**2).sum(axis=1) + jax.random.normal(key, ())


def evaluated(target, devices):
    algo = GMMVI.from_codename("zemtrux", sample_selector={"desired_samples": 31}).on(devices)
    state = algo.init(0, random_mixture(1, 8, 3))
    found = jax.jit(lambda s: algo.evaluate(s, algo.ask(s), target))(state)
    return np.asarray(found.log_density).tolist()


def accelerator_forms():
    """How far densities and scores are apart on one device and on eight, in the forms for accelerators."""
    mixture = random_mixture(4, 8, 5, spread=3.0)
    g, x = mixture.components, mixture.sample(64, key=0)
    mesh = as_mesh(jax.devices())

    def found(form, mesh):
        def densities_and_score(g, x):
            with using(Plan("gpu", mesh=mesh)):
                densities = log_densities.log_prob(g, x, form=form)
                return densities, scores.weighted_score(g, jax.nn.softmax(densities, axis=1), x, form=form)

        return [np.asarray(a) for a in jax.jit(densities_and_score)(g, x)]

    def apart(form):
        return [float(np.abs(a - b).max()) for a, b in zip(found(form, None), found(form, mesh), strict=True)]

    return {form: apart(form) for form in ("circular", "stacked")}


def messages():
    """What is said about meshes that do not fit."""
    eight = GMMVI.from_codename("samtron").on(jax.devices())
    five = GMMVI.from_codename("samtron").init(0, random_mixture(0, 5, 2))
    wrong = {
        "two axes": lambda: natmix.fit(lambda x: -x @ x, 2, mesh=jax.make_mesh((2, 4), ("a", "b"))),
        "a number": lambda: natmix.fit(lambda x: -x @ x, 2, mesh=8),  # type: ignore[arg-type]
        "twice": lambda: eight.on(jax.devices() * 2),
        "rows": lambda: eight.ask(five),
    }
    out = {}
    for name, call in wrong.items():
        try:
            call()
        except ValueError as error:
            out[name] = str(error)
    return out


def fitted():
    truth = random_mixture(3, 3, 2, spread=3.0)
    result = natmix.fit(
        truth.log_prob,
        2,
        init_scale=3.0,
        mesh=jax.make_mesh((8,), ("components",)),
        max_iterations=60,
        accuracy=None,
        component_adaptation={"max_components": 8},
        progress=False,
    )
    outside = natmix.fit(
        natmix.HostTarget(lambda x: float(-0.5 * np.sum(np.asarray(x) ** 2)), 2),
        algorithm="zepyfux",
        mesh=jax.devices()[:3],
        max_iterations=3,
        progress=False,
    )
    return {
        "elbo": [result.elbo.value, result.elbo.standard_error],
        "devices": [result.settings["devices"], outside.settings["devices"]],
        "components": result.mixture.num_components,
        "outside": outside.elbo.value,
        "alone": bool(np.isfinite(truth.log_prob(np.zeros((64, 2)))).all()),
    }


def main(path):
    target = mixture_target(random_mixture(12, 4, 3, spread=3.0))
    out = {name: compared(name, settings, target) for name, settings in CASES.items()}
    blocks = JaxTarget(noisy, 3, batched=True, stochastic=True, batch_size=16)
    out["noisy"] = [evaluated(blocks, devices) for devices in (None, jax.devices())]
    out["program"] = program(target)
    out["messages"] = messages()
    out["accelerator forms"] = accelerator_forms()
    out["fit"] = fitted()
    with open(path, "w") as file:
        json.dump(out, file)


if __name__ == "__main__":
    main(sys.argv[1])
