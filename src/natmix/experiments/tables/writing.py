"""Write the tables and the figure."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from natmix.experiments.tables.collection import Collection
from natmix.experiments.tables.commands import run_commands
from natmix.experiments.tables.csv_files import COLUMNS, curve_rows, seed_rows, table_rows, write_csv
from natmix.experiments.tables.full import COLUMNS as FULL_COLUMNS
from natmix.experiments.tables.full import full_markdown, full_rows
from natmix.experiments.tables.markdown import table3
from natmix.experiments.tables.paper import ALL, MAIN
from natmix.experiments.tables.saved_tables import CURVES, SEEDS, saved_runs
from natmix.experiments.tables.summary import Summary, summarise
from natmix.files.durable import check_writable, replacing, write_text


def summaries_of(collection: Collection) -> dict[tuple[str, str], Summary]:
    """Summaries of all runs with a finished seed, by codename and problem."""
    found = {key: summarise(run) for key, run in collection.runs.items()}
    return {key: summary for key, summary in found.items() if summary is not None}


def write_table3(
    collection: Collection,
    folder: Path,
    *,
    candidates: Sequence[str] = MAIN,
    full: bool = False,
    command: str | None = None,
) -> list[Path]:
    """Write the table as CSV and Markdown, the numbers of the seeds and the learning curves.

    Args:
        collection: the runs.
        folder: to write to.
        candidates: whose runs.
        full: also the full table with second metrics, and the accuracies.
        command: that writes the table, listed beside those that repeat the runs.

    Returns:
        The files written.
    """
    summaries = summaries_of(collection)
    if not any(codename in candidates for codename, _ in summaries):
        raise ValueError("There is no finished seed yet to make a table of.")
    check_writable(folder)
    names = ALL if full else candidates
    seeds = seed_rows(collection, names)
    _check_nothing_lost(collection, folder, seeds)
    commands = [*run_commands(collection), *([command] if command else [])]
    paths = [folder / name for name in ("table3.csv", SEEDS, CURVES, "table3.md")]
    write_csv(paths[0], table_rows(summaries, candidates), COLUMNS)
    write_csv(paths[1], seeds)
    write_csv(paths[2], curve_rows(collection, names))
    write_text(paths[3], table3(summaries, candidates, collection, commands))
    if full:
        from natmix.experiments.tables.accuracy import accuracy_markdown

        more = [folder / name for name in ("table3_full.csv", "table3_full.md")]
        write_csv(more[0], full_rows(summaries), FULL_COLUMNS)
        write_text(more[1], full_markdown(summaries, commands))
        paths += more
        if not collection.tables:  # it needs the mixtures of all seeds
            paths.append(folder / "accuracy.md")
            write_text(paths[-1], accuracy_markdown(collection, commands))
    if importlib.util.find_spec("matplotlib") is not None:
        paths += _write_curves(collection, candidates, folder / "table3_curves.png")
        if full:
            paths += _write_curves(collection, ALL, folder / "table3_full_curves.png")
    return paths


def _check_nothing_lost(collection: Collection, folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise if seeds would be lost: the table that was read may be all that is left of them."""
    if folder.resolve() not in collection.tables:
        return
    kept = {(row["algorithm"], row["problem"], row["seed"]) for row in rows}
    for run in saved_runs(folder):
        for n in run.seeds:
            if (run.codename, run.problem, n) not in kept:
                raise ValueError(
                    f"{folder / SEEDS} has {run.codename} on {run.problem}, seed {n}, which the new table "
                    "would not have; write it to another folder, or add --candidates all and --unfinished."
                )


def _write_curves(collection: Collection, candidates: Sequence[str], path: Path) -> list[Path]:
    from matplotlib import pyplot

    from natmix.experiments.tables.curves import has_curves, plot_curves

    if not has_curves(collection, candidates):
        return []
    pyplot.switch_backend("agg")  # no window
    figure = plot_curves(collection, candidates)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
    pyplot.close(figure)
    return [path]
