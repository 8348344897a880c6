"""Run directories of the paper's experiments, made by hand."""

import json

from run_files import LIMITS, START, write_directory, write_evaluations, write_final

from natmix.experiments import presets
from natmix.experiments.runs import load_run
from natmix.experiments.tables.summary import summarise


def write_run(path, codename, problem, seeds, limit=100.0, changes=None, compiling=None):
    """A directory with the paper's hyperparameters; seeds: number -> evaluations (seconds, -ELBO).

    ``compiling`` has the seconds that each seed spent compiling before the first evaluation, 0.5 if left out.
    """
    preset = presets.paper(codename, problem)
    limits = LIMITS | {"max_seconds": limit, "max_iterations": preset.max_iterations}
    entries = {
        "algorithm": {"codename": preset.codename, "settings": json.loads(json.dumps(preset.overrides))},
        "start": {**START, "components": preset.components},
        "preset": "paper",
        "limits": limits,
        "seeds": list(seeds),
        **(changes or {}),
    }
    config = write_directory(path, problem, codename, **entries)
    for n, evaluations in seeds.items():
        folder = path / f"seed-{n}"
        folder.mkdir()
        compile_seconds = (compiling or {}).get(n, 0.5)
        rows = [
            {
                "seconds": t,
                "compile_seconds": compile_seconds,
                "neg_elbo": y,
                "iterations": i,
                "evaluations": 10 * i,
                "components": 3,
                "neg_elbo_se": 0.03,
                "zero_share": 0.0,
                "invalid_share": 0.25,
            }
            for i, (t, y) in enumerate(evaluations)
        ]
        digest = write_evaluations(folder / "metrics.jsonl", rows)
        seconds, value = evaluations[-1]
        final = {
            "neg_elbo": value,
            "neg_elbo_se": 0.01,
            "detected_modes": 10.0 - n,
            "evaluations": 1000 + n,
            "iterations": 10 * (n + 1),
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "components": 3,
            "stopped": "max_seconds",
            "limits": limits,
            "device": "a device",
            "missing_metrics": {"mmd": "There are no reference samples in /some/where."},
        }
        write_final(folder / "final.json", config, n, {"metrics.jsonl": digest}, **final)
    return path


def unfinish(path, seed):
    (path / f"seed-{seed}" / "final.json").unlink()


def one_run(tmp_path, values, codename="SAMTRON", problem="breast_cancer"):
    """The summary of seeds that end with these values after 10, 20, ... seconds."""
    name = f"{problem}-{codename}-{len(list(tmp_path.iterdir()))}"
    seeds = {n: [(1.0, 1e3), (10.0 * (n + 1), v)] for n, v in enumerate(values)}
    return summarise(load_run(write_run(tmp_path / name, codename, problem, seeds)))
