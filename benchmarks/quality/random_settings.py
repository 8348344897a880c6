"""Does any combination of problem, algorithm, hyperparameters and covariances end in a crash or NaN?

Run: python benchmarks/quality/random_settings.py [--seeds 0] [--draws 48] [--minutes 60] [--out FOLDER]

A structure is one of the 432 codenames with a covariance family, a float type, a kind of target
(`random_targets.py`), numbers of dimensions and components, and the hyperparameters that decide shapes. It
is one compiled program. Each of its draws has a target, an initial mixture, a key and continuous
hyperparameters of its own, and goes through 50 iterations: by `jax.vmap` in every second structure, one
after another in a loop (as `natmix.fit` runs them) in the others. A seed has 432 structures, one for each
codename, families and types in turn.

Hyperparameters are drawn from the ranges that the options declare: one in twenty is the lower or the upper
limit (1e6 or 1e-6 times the default where the range has none), the others are log-uniform within a factor of
1,000 around the default.

What can happen to a draw:
- fine: all parameters of the final mixture are finite, its weights sum to one, and the ELBO of the last
  iteration is finite.
- a named failure: the mixture is as it must be, but the ELBO is not finite, for a reason that `Info` states.
- a fault: NaN in the mixture, an ELBO that is not finite without a reason, an exception, or the end of the
  process (seen by the next start). `--show STRUCTURE` runs one again.

Structures are done in a random order and appended to FOLDER/SEED.jsonl; a later call goes on where this one
stopped. Then results/random_settings.md and .csv are written from all that the folder holds.
"""

import argparse
import collections
import csv
import dataclasses
import itertools
import json
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from case_table import ROOT, provenance, seed_range  # noqa: E402
from random_targets import HARMLESS, KINDS, drawn  # noqa: E402

from natmix import GMMVI, MODULES, JaxTarget, Mixture  # noqa: E402
from natmix.kernels.compilation import quick_jit  # noqa: E402

ITERATIONS = 50
NAMES = ["".join(o.letter for o in row) for row in itertools.product(*MODULES.values())]
STATIC_RANGES: dict[str, tuple[float, float]] = {
    "desired_samples": (1, 120),
    "reuse_ratio": (0, 5),
    "min_new_samples": (0, 30),
    "max_age": (2, 40),
    "del_iters": (3, 40),
    "database_candidates": (0, 400),
    "prior_candidates": (0, 40),
    "database_size": (0, 400),
    "thresholds": (0, 1000),
}
"""Within the declared ranges, and such that a draw takes no more than a second."""
IMPOSSIBLE = 1e7
WRONG = ("NaN in the mixture", "weights do not sum to one", "unexplained ELBO", "exception", "process ended")


class Structure(NamedTuple):
    """What decides a program."""

    seed: int
    number: int
    codename: str
    covariance: str
    dtype: str
    kind: str
    dim: int
    components: int
    capacity: int
    static: dict[str, dict[str, Any]]
    batched: bool


def structures(seed: int) -> list[Structure]:
    """The 432 structures of a seed, in a random order."""
    rng = np.random.default_rng([seed, 1])
    return [
        _structure(seed, int(n), np.random.default_rng([seed, 2, n])) for n in rng.permutation(len(NAMES))
    ]


def _structure(seed: int, number: int, rng: np.random.Generator) -> Structure:
    name = NAMES[number]
    turn = number + seed
    kinds = HARMLESS if rng.uniform() < 0.5 else tuple(KINDS)[len(HARMLESS) :]
    kind = str(rng.choice(kinds))
    dim = int(rng.choice([1, 2, 2, 3, 5, 20 if "S" in name else 8]))
    components = int(rng.choice([1, 2, 3, 8]))
    return Structure(
        seed,
        number,
        name,
        ("full", "diagonal")[turn % 2],
        ("float32", "float64")[(turn // 2) % 2],
        kind,
        max(dim, 2) if kind in ("funnel", "banana") else dim,
        components,
        components if "E" in name else 16,
        {module: _static(rng, option) for module, option in _options(name)},
        bool((turn // 4) % 2),
    )


def _options(name: str) -> list[tuple[str, Any]]:
    return [(m, o) for m, options in MODULES.items() for o in options if o.letter in name]


def _static(rng: np.random.Generator, option: Any) -> dict[str, Any]:
    """Hyperparameters that decide shapes."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(option):
        meta = field.metadata
        if "doc" not in meta or not (field.metadata.get("static") or _is_static(option, field.name)):
            continue
        if meta.get("flag"):
            found[field.name] = bool(rng.uniform() < 0.5)
            continue
        low, high = STATIC_RANGES[field.name]
        if meta.get("series"):
            found[field.name] = [float(v) for v in rng.uniform(low, high, rng.integers(1, 4))]
        elif meta.get("integer"):
            found[field.name] = int(max(low, np.floor(np.exp(rng.uniform(0, np.log(high + 1)))) - 1 + low))
        else:
            found[field.name] = float(rng.choice([0.0, rng.uniform(low, high)]))
    return found


def _is_static(option: Any, name: str) -> bool:
    return not isinstance(getattr(option(), name), jax.Array)


def continuous(rng: np.random.Generator, option: Any) -> dict[str, float]:
    """Hyperparameters that are arrays."""
    found = {
        f.name: _number(rng, f.metadata)
        for f in dataclasses.fields(option)
        if "doc" in f.metadata and not _is_static(option, f.name)
    }
    for less, more in (("min_stepsize", "max_stepsize"), ("ridge", "max_ridge")):
        if less in found:
            found[less], found[more] = sorted((found[less], found[more]))
    return found


def _number(rng: np.random.Generator, meta: Any) -> Any:
    default, low, high = float(meta["default"]), float(meta["low"]), float(meta["high"])
    ends = [
        low if np.isfinite(low) and not meta["strict"] else default * 1e-6,
        high if np.isfinite(high) and not meta.get("integer") else default * 1e6,
    ]
    if rng.uniform() < 0.05:
        value = float(rng.choice(ends))
    else:
        around = low + (default - low if default > low else 0.1)
        value = low + (around - low) * 10 ** rng.uniform(-3, 3) if low >= 0 else default
        value = min(value, high)
    value = max(value, low)
    return int(min(value, 2**31 - 1)) if meta.get("integer") else value


def _algorithm(structure: Structure, rng: np.random.Generator) -> tuple[GMMVI, dict[str, Any]]:
    real = {module: continuous(rng, option) for module, option in _options(structure.codename)}
    values = {m: {**structure.static[m], **real[m]} for m in real}
    plain = {f.name: _number(rng, f.metadata) for f in dataclasses.fields(GMMVI) if "doc" in f.metadata}
    return GMMVI.from_codename(structure.codename, **values, **plain), {**real, **plain}


class Draw(NamedTuple):
    """The arrays of one draw and what they are called."""

    algorithm: GMMVI
    target: JaxTarget
    mixture: Mixture
    settings: dict[str, Any]


def draw(structure: Structure, lane: int) -> Draw:
    """Target, algorithm and initial mixture number ``lane`` of a structure."""
    rng = np.random.default_rng([structure.seed, 3, structure.number, lane])
    dtype = np.dtype(structure.dtype).type
    density, scale = drawn(rng, structure.kind, structure.dim, dtype)
    width = scale * 10 ** rng.uniform(-1.5, 1.5)
    K, D = structure.components, structure.dim
    means = (np.asarray(density.centre) + width * rng.normal(size=(K, D))).astype(dtype)
    weights = rng.dirichlet(np.ones(K)).astype(dtype)
    variances = (width * 10 ** rng.uniform(-0.5, 0.5, (K, D))).astype(dtype) ** 2
    if structure.covariance == "diagonal":
        mixture = Mixture.diagonal(weights, means, variances)
    else:
        mixture = Mixture.full(weights, means, variances[:, :, None] * np.eye(D, dtype=dtype))
    algorithm, settings = _algorithm(structure, rng)
    return Draw(algorithm, JaxTarget(density, D), mixture, {"scale": scale, "width": width} | settings)


@quick_jit()
def _run(arrays: Any, rest: Any, keys: Any, capacity: int, batched: bool) -> Any:
    def one(given: Any) -> Any:
        part, key = given
        algorithm, target, mixture = eqx.combine(part, rest)
        state = algorithm.init(key, mixture, capacity=capacity)
        return jax.lax.scan(lambda s, _: algorithm.step(s, target), state, None, length=ITERATIONS)

    def short(given: Any) -> Any:
        state, infos = one(given)
        return state.mixture, infos

    return jax.vmap(short)((arrays, keys)) if batched else jax.lax.map(short, (arrays, keys))


def run_structure(structure: Structure, draws: int) -> list[dict[str, Any]]:
    """What happened to each draw."""
    made = [draw(structure, lane) for lane in range(draws)]
    parts = [eqx.partition((d.algorithm, d.target, d.mixture), eqx.is_array) for d in made]
    arrays = jax.tree.map(lambda *a: jnp.stack(a), *(p[0] for p in parts))
    keys = jax.random.split(jax.random.key(structure.seed * 1000 + structure.number), draws)
    mixtures, infos = jax.device_get(_run(arrays, parts[0][1], keys, structure.capacity, structure.batched))
    return [
        _judged(jax.tree.map(lambda a, i=i: a[i], mixtures), jax.tree.map(lambda a, i=i: a[i], infos))
        | {"settings": made[i].settings}
        for i in range(draws)
    ]


def _judged(mixture: Mixture, infos: Any) -> dict[str, Any]:
    weights = np.exp(np.asarray(mixture.log_weights, float))
    present = weights > 0
    parts = [np.asarray(a)[present] for a in jax.tree.leaves(mixture.components)]
    updates = max(1, int(infos.components.sum()))
    row = {
        "elbo": float(infos.elbo[-1]),
        "components": int(infos.components[-1]),
        "failed_updates": float(infos.failed_updates.sum() / updates),
        "infinite_elbos": int(np.sum(~np.isfinite(infos.elbo))),
    }
    if not all(np.isfinite(a).all() for a in parts) or np.isnan(weights).any():
        return row | {"outcome": "NaN in the mixture"}
    if abs(weights.sum() - 1) > 1e-3:
        return row | {"outcome": "weights do not sum to one"}
    if np.isfinite(row["elbo"]):
        return row | {"outcome": "fine"}
    return row | {"outcome": _reason(infos, row["elbo"])}


def _reason(infos: Any, elbo: float) -> str:
    """Why the ELBO of the last iteration is not finite, as far as `Info` says."""
    last = jax.tree.map(lambda a: a[-1], infos)
    if int(last.evaluations) and int(last.invalid) == int(last.evaluations):
        return "every evaluation was invalid"
    if int(last.evaluations) == 0:
        return "no evaluation"
    if not np.isnan(elbo):
        return "ELBO beyond the float type"
    return "unexplained ELBO"


# Rows and tables --------------------------------------------------------------------------------


def run_seed(seed: int, draws: int, folder: Path, until: float) -> None:
    """All structures of a seed that the folder does not hold, until the time is over."""
    path = folder / f"{seed}.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    begun = {line["number"] for line in lines if "begun" in line}
    done = {line["number"] for line in lines if "begun" not in line}
    with path.open("a") as file:
        for number in begun - done:
            _write(file, {"number": number, "rows": [{"outcome": "process ended"}] * draws})
        for structure in structures(seed):
            if structure.number in begun | done:
                continue
            if time.monotonic() > until:
                return
            _write(file, {"number": structure.number, "begun": True})
            _write(file, {"number": structure.number, **_one(structure, draws)})
            jax.clear_caches()


def _one(structure: Structure, draws: int) -> dict[str, Any]:
    before = time.perf_counter()
    try:
        rows = run_structure(structure, draws)
    except Exception:
        return {"rows": [{"outcome": "exception"}] * draws, "error": traceback.format_exc()}
    return {"rows": rows, "seconds": round(time.perf_counter() - before, 2)}


def _write(file: Any, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


def all_rows(folder: Path) -> Iterator[tuple[Structure, dict[str, Any]]]:
    """Every draw in the folder with its structure."""
    for path in sorted(folder.glob("*.jsonl")):
        known = {s.number: s for s in structures(int(path.stem))}
        for line in path.read_text().splitlines():
            content = json.loads(line)
            for row in content.get("rows", []):
                yield known[content["number"]], row


def _tags(structure: Structure) -> list[tuple[str, str]]:
    options = [
        (module, f"{option.letter} ({option.title})") for module, option in _options(structure.codename)
    ]
    return [
        ("all", "all"),
        *options,
        ("covariance", structure.covariance),
        ("float type", structure.dtype),
        ("target", structure.kind),
        ("dimensions", str(structure.dim)),
        ("initial components", str(structure.components)),
        ("run", "jax.vmap" if structure.batched else "one after another"),
    ]


def tables(folder: Path) -> tuple[list[dict[str, Any]], int, int]:
    """One row for each option, the number of structures, and that of codenames."""
    counts: dict[tuple[str, str], collections.Counter] = collections.defaultdict(collections.Counter)
    failed: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    impossible: collections.Counter = collections.Counter()
    seen: set[tuple[int, int]] = set()
    names: set[str] = set()
    for structure, row in all_rows(folder):
        seen.add((structure.seed, structure.number))
        names.add(structure.codename)
        high = structure.kind != "improper" and row.get("elbo", 0.0) > IMPOSSIBLE
        for tag in _tags(structure):
            counts[tag][row["outcome"]] += 1
            impossible[tag] += high
            failed[tag].append(row.get("failed_updates", np.nan))
    outcomes = sorted({o for counter in counts.values() for o in counter}, key=lambda o: (o != "fine", o))
    rank = {module: i for i, module in enumerate(["all", *MODULES])}
    order = sorted(counts, key=lambda tag: (rank.get(tag[0], 99), tag[0], tag[1].zfill(9)))
    rows = [
        {"choice": tag[0].replace("_", " "), "option": tag[1], "draws": sum(counts[tag].values())}
        | {outcome: counts[tag][outcome] for outcome in outcomes}
        | {"impossible ELBOs": impossible[tag]}
        | {"failed updates, mean": f"{np.nanmean(failed[tag]):.3f}"}
        for tag in order
    ]
    return rows, len(seen), len(names)


def write_tables(folder: Path, to: Path) -> None:
    """random_settings.csv and random_settings.md."""
    rows, number, names = tables(folder)
    if not rows:
        return
    with (to / "random_settings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    wrong = sum(rows[0].get(o, 0) for o in WRONG)
    lines = [
        "# Random settings",
        "",
        f"{rows[0]['draws']:,} draws in {number:,} structures (programs) of {names} of the 432 codenames, "
        "50 iterations each, of "
        "[random_settings.py](../benchmarks/quality/random_settings.py), which says how problems, codenames, "
        f"hyperparameters and covariances are drawn. Faults: {wrong:,}.",
        "",
        "The columns count draws by what happened to them. Named failures (the mixture is finite, the ELBO "
        'is not, and the report of the iteration says why) are the columns after "fine". "Failed '
        'updates" is the share of updates of components that were left out. "Impossible ELBOs" are finite '
        f"ones above {IMPOSSIBLE:.0e}, where no target but the improper one has more than about 1e6 nats: "
        "estimates from the samples of one iteration that mean nothing.",
        "",
        "| " + " | ".join(rows[0]) + " |",
        "|---|---" + "|---:" * (len(rows[0]) - 2) + "|",
        *(
            "| " + " | ".join(f"{v:,}" if isinstance(v, int) else str(v) for v in row.values()) + " |"
            for row in rows
        ),
        "",
        provenance([]),
        "",
    ]
    (to / "random_settings.md").write_text("\n".join(lines))


def main() -> None:
    """Run what is missing, then write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=seed_range, default=[0])
    parser.add_argument("--draws", type=int, default=48, help="of each structure")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path, default=Path("random_settings"))
    parser.add_argument("--write", type=Path, default=ROOT / "results")
    parser.add_argument("--show", type=int, help="run this structure of the first seed and print its draws")
    arguments = parser.parse_args()
    if arguments.show is not None:
        structure = next(s for s in structures(arguments.seeds[0]) if s.number == arguments.show)
        print(structure)
        for row in run_structure(structure, arguments.draws):
            print(row)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * arguments.minutes
    for seed in arguments.seeds:
        run_seed(seed, arguments.draws, arguments.out, until)
    write_tables(arguments.out, arguments.write)


if __name__ == "__main__":
    main()
