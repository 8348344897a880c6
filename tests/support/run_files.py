"""Files of run directories, made or changed by hand with a seal as natmix writes it."""

import dataclasses
import json

import jax.numpy as jnp
import numpy as np

from natmix import GMMVI, Mixture
from natmix.experiments.runs.checkpoint import Owner, Records, progress_of, save_checkpoint
from natmix.experiments.runs.config import FORMAT
from natmix.experiments.runs.directory import SeedFiles, fingerprint
from natmix.experiments.runs.rows import ABOUT
from natmix.files.json_text import write_json
from natmix.files.seal import ENVIRONMENT, EVALUATIONS, FAILURE, FINAL
from natmix.files.sealed_json import read_sealed_json, write_rows, write_sealed_json
from natmix.mixture.files import save_mixture

LIMITS = {
    "max_seconds": None,
    "max_evaluations": None,
    "max_iterations": None,
    "until": None,
    "max_run_seconds": None,
    "until_converged": False,
}
START = {"components": 1, "mean": [0.0], "mean_scale": [1.0], "variance": [1.0]}
EVALUATION = {
    "seconds": 1.0,
    "compile_seconds": 0.5,
    "iterations": 1,
    "evaluations": 10,
    "components": 3,
    "neg_elbo": 1.0,
    "neg_elbo_se": 0.03,
    "zero_share": 0.0,
    "invalid_share": 0.0,
}
ENDED = {
    **EVALUATION,
    "seeds_together": 1,
    "left_out": 0,
    "stopped": "max_seconds",
    "limits": LIMITS,
    "device": "a device",
}


def write_directory(path, problem, codename, /, **entries):
    """``config.json`` and ``environment.json`` of a run; returns the configuration."""
    config = {
        "format": FORMAT,
        "problem": {"name": problem, "options": {}},
        "algorithm": {"codename": codename, "settings": {}},
        "start": START,
        "preset": "fit",
        "covariance": "full",
        "dtype": "float32",
        "limits": LIMITS,
        "seeds": [],
        **entries,
    }
    path.mkdir(parents=True)
    write_json(path / "config.json", config)
    write_sealed_json(path / "environment.json", ENVIRONMENT, {})
    return config


def write_evaluations(path, rows):
    """A ``metrics.jsonl``; what a row does not have is that of `EVALUATION`. Returns the checksum."""
    return write_rows(path, EVALUATIONS, [{**EVALUATION, **row} for row in rows])


def write_final(path, config, seed, digests, **numbers):
    """A ``final.json``; what is not given is that of `ENDED`."""
    about = {"seed": seed, "run": fingerprint(config), "files": digests}
    write_sealed_json(path, FINAL, {**ENDED, **numbers, ABOUT: about})


def write_checkpoint(files, config, seed, trace, weights):
    """A checkpoint with these records, and a state that belongs to no run."""
    start = Mixture.full([1.0], np.zeros((1, 1)), np.ones((1, 1, 1)))
    state = GMMVI.from_codename("semydux").init(0, start, start)
    iterations = len(next(iter(trace.values())))
    state = dataclasses.replace(state, iteration=jnp.full_like(state.iteration, iterations))
    progress = progress_of(
        {
            "iterations": iterations,
            "evaluations": 0,
            "seconds": 1.0,
            "compile_seconds": 0.5,
            "components": 1,
            "rate": 1.0,
            "next_evaluation": 0.0,
            "weight_stride": 1,
            "seeds_together": 1,
        }
    )
    files.create()
    owner = Owner(seed=seed, run=fingerprint(config))
    save_checkpoint(files.checkpoint, state, Records(progress, trace, weights, []), owner)


def change_final(path, **numbers):
    """Other numbers in a ``final.json``, with the seal that belongs to them."""
    value, _ = read_sealed_json(path, FINAL)
    write_sealed_json(path, FINAL, {**value, **numbers})


def write_final_mixture(folder, mixture):
    """The mixture of a finished seed, with its checksum in the final numbers."""
    about = json.loads((folder / "final.json").read_text())[ABOUT]
    digest = save_mixture(mixture, folder / "mixture.safetensors")
    files = about["files"] | {"mixture.safetensors": digest}
    change_final(folder / "final.json", **{ABOUT: about | {"files": files}})


def write_failure(folder, error):
    """A ``failed.json``."""
    numbers = {"error": error, "iterations": 3, "evaluations": 60, "seconds": 1.5}
    write_sealed_json(folder / "failed.json", FAILURE, numbers)


def renumber(run, seed):
    """Let a copy of another seed's folder be that of this seed."""
    final = SeedFiles(run, seed).final
    about = json.loads(final.read_text())[ABOUT]
    change_final(final, **{ABOUT: about | {"seed": seed}})
