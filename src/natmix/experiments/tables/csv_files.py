"""The tables as CSV files."""

import csv
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from natmix.experiments.problems import PAPER
from natmix.experiments.runs import SeedRun
from natmix.experiments.tables.cells import HELD_OUT
from natmix.experiments.tables.collection import Collection
from natmix.experiments.tables.paper import paper_number
from natmix.experiments.tables.saved_tables import CURVE_COLUMNS, TIME_COLUMNS
from natmix.experiments.tables.summary import Summary, time_to
from natmix.files.durable import write_text

COLUMNS = (
    "algorithm",
    "problem",
    "seeds",
    "neg_elbo_mean",
    "neg_elbo_3se",
    "paper_mean",
    "paper_3se",
    "evaluations",
    "iterations",
    "seconds",
    "device",
)


def table_rows(
    summaries: Mapping[tuple[str, str], Summary], candidates: Sequence[str]
) -> list[dict[str, Any]]:
    """One row per algorithm and problem."""
    rows = []
    for key in [(c, p) for c in candidates for p in PAPER if (c, p) in summaries]:
        s = summaries[key]
        paper = (None, None) if s.paper is None else (s.paper.mean + 0.0, s.paper.three_se)
        ours = (len(s.seeds), s.neg_elbo.mean, s.neg_elbo.three_se)
        cost = (s.evaluations, s.iterations, s.seconds)
        rows.append(dict(zip(COLUMNS, (*key, *ours, *paper, *cost, s.device), strict=True)))
    return rows


def seed_rows(collection: Collection, candidates: Sequence[str]) -> list[dict[str, Any]]:
    """One row per seed with everything in its ``final.json``."""
    rows = []
    for about, seed in _finished(collection, candidates):
        assert seed.final is not None
        paper = paper_number(about["algorithm"], about["problem"])
        times = [time_to(seed, paper.mean, compilation=c) if paper else math.inf for c in (True, False)]
        known = [t if math.isfinite(t) else None for t in times]
        rows.append(about | dict(zip(TIME_COLUMNS, known, strict=True)) | _flat(seed.final))
    return rows


def curve_rows(collection: Collection, candidates: Sequence[str]) -> list[dict[str, Any]]:
    """One row per evaluation of the ELBO of a finished seed."""
    rows = []
    for about, seed in _finished(collection, candidates):
        evaluations = zip(*(seed.metrics[name].tolist() for name in CURVE_COLUMNS), strict=True)
        rows += [about | dict(zip(CURVE_COLUMNS, values, strict=True)) for values in evaluations]
    return rows


def _finished(collection: Collection, candidates: Sequence[str]) -> Iterator[tuple[dict[str, Any], SeedRun]]:
    """Every finished seed, with the columns that identify it."""
    for codename, problem in [(c, p) for c in candidates for p in (*PAPER, *HELD_OUT)]:
        run = collection.runs.get((codename, problem))
        for n, seed in ({} if run is None else run.finished).items():
            yield {"algorithm": codename, "problem": problem, "seed": n}, seed


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Iterable[str] | None = None) -> None:
    """Write the given columns, or all that occur in order of appearance; unknown values stay empty."""
    names = list(columns or dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(v) for name, v in row.items()} for row in rows)
    write_text(path, text.getvalue())


def _flat(final: Mapping[str, Any]) -> dict[str, Any]:
    """One value per column: limits in separate columns, missing metrics by name."""
    out: dict[str, Any] = {}
    for name, value in final.items():
        if name == "missing_metrics":
            out[name] = " ".join(value)
        elif isinstance(value, Mapping):
            out |= {f"{name}.{inner}": v for inner, v in value.items()}
        else:
            out[name] = value if not isinstance(value, list) else json.dumps(value)
    return out


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value + 0.0:.10g}"  # no negative zero
    return "" if value is None else value
