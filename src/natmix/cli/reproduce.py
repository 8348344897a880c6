"""``natmix reproduce``: run the paper's experiments and write its tables."""

import importlib.util
import math
import shlex
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from rich.table import Table

    from natmix.experiments.tables import Collection, Report, TableCell

_INTERRUPTED = 130

reproduce = typer.Typer(no_args_is_help=True)


@reproduce.callback()
def _main() -> None:
    """Run the paper's experiments and compare the results with the printed ones."""


@reproduce.command()
def table3(
    candidates: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="samtron,samyron,sepyfux,zamtrux if left out; all: the appendix's nine, with its tables.",
        ),
    ] = None,
    problems: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="The eleven if left out (with all: also *_testsplit)."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="7, 0,3,5 or 0:10 (that is 0 to 9).")] = "0:10",
    max_time: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME",
            help="Per seed: 10m, or stm300=20m,wine=5m, or 5m,stm300=20m; the paper's hours if left out.",
        ),
    ] = None,
    max_run_time: Annotated[
        list[str] | None, typer.Option(metavar="TIME", help="The same without the time spent compiling.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the run directories are.")] = Path("table3-runs"),
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where the tables and the figure go; OUT/tables if left out."),
    ] = None,
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Run nothing; write the tables from existing runs.")
    ] = False,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished", help="With --only-table: include unfinished seeds, with their last evaluation."
        ),
    ] = False,
    sources: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="A folder with runs of another machine, at any depth, or with a table3_seeds.csv itself; "
            "may be repeated. With --only-table these are read instead of --out; otherwise besides it, "
            "and what has finished there is not run.",
        ),
    ] = None,
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--apart", help="Run seeds together by vmap, or one by one; the faster if left out."
        ),
    ] = None,
    keep_checkpoints: Annotated[
        bool,
        typer.Option(
            help="Keep checkpoints of finished seeds too, so that they can be continued with higher limits."
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """Table 3: run what is missing with the paper's hyperparameters, and compare with the printed table.

    The same command continues where it stopped. SAMTRON and quick problems come first. Several processes may
    run at once with the same --out, also for the same problems: each takes seeds that no other runs (on one
    GPU set XLA_PYTHON_CLIENT_PREALLOCATE=false). The tables written after running cover everything in --out.
    """
    with one_sentence():
        from natmix.experiments.problems import PAPER
        from natmix.experiments.runs.config import parse_seeds
        from natmix.experiments.runs.directory import check_possible
        from natmix.experiments.tables import ALL, MAIN, cells_to_run, collect, write_table3
        from natmix.experiments.tables.cells import HELD_OUT, parse_candidates, parse_problems, parse_times
        from natmix.kernels.compilation_cache import use_compilation_cache

        codenames = MAIN if candidates is None else parse_candidates(candidates)
        full = codenames == ALL
        everything = (*PAPER, *HELD_OUT) if full else PAPER
        names = everything if problems is None else parse_problems(problems)
        numbers, times = parse_seeds(seeds), [parse_times(t or []) for t in (max_time, max_run_time)]
        shown = MAIN if full else codenames
        where = out / "tables" if write is None else write
        check_possible(where)
        if unfinished and not only_table:
            raise ValueError("--unfinished needs --only-table: otherwise unfinished seeds are continued.")
        if only_table:
            found = collect(sources or [out], codenames, names, unfinished=unfinished)
            report = None
        else:
            check_possible(out)
            use_compilation_cache()
            elsewhere = collect(sources, codenames, names) if sources else None
            report = _run(
                cells_to_run(codenames, names, times[0], times[1], together),
                numbers,
                out,
                elsewhere,
                keep_checkpoints,
                quiet,
            )
            shown = tuple(dict.fromkeys((*MAIN, *shown)))
            wanted = ALL if full else shown
            found = collect([out, *(sources or [])], wanted, (*PAPER, *HELD_OUT))
            if report.interrupted:
                typer.echo(
                    "natmix: interrupted; the same command continues from there, and with --only-table "
                    "--unfinished it writes the table of what there is.",
                    err=True,
                )
                raise typer.Exit(_INTERRUPTED)
            if report.failed:
                which = "; ".join(f"{name} {', '.join(map(str, s))}" for name, s in report.failed.items())
                again = "the same command tries them again"
                typer.echo(f"natmix: seeds that failed: {which}; {again}.", err=True)
        paths = write_table3(found, where, candidates=shown, full=full, command=_command())
    _show(found, paths, quiet)
    if report is not None and report.failed:
        raise typer.Exit(1)


def _run(
    cells: "list[TableCell]",
    seeds: list[int],
    out: Path,
    elsewhere: "Collection | None",
    keep_checkpoints: bool,
    quiet: bool,
) -> "Report":
    from natmix.cli.run_progress import RunProgress
    from natmix.experiments.tables import run_missing
    from natmix.experiments.tables.formatting import numbered

    def say(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    def watch(cell: "TableCell") -> AbstractContextManager[Any]:
        return RunProgress(quiet)

    if not cells:
        raise ValueError("There is nothing to run: the paper has no ZAMTRUX on stm300.")
    report = run_missing(
        cells,
        seeds,
        out,
        watch=watch,
        say=say,
        elsewhere=elsewhere,
        keep_checkpoints=keep_checkpoints,
    )
    for name, busy in report.busy.items():
        say(f"{name}: run by another process: {numbered(busy)}")
    return report


def _command() -> str:
    """The one typed."""
    return shlex.join(["natmix", *sys.argv[1:]])


def _show(found: "Collection", paths: list[Path], quiet: bool) -> None:
    if quiet:
        return
    from natmix.cli.console import console, print_table

    print_table(_table(found))
    for note in found.notes:
        console().print(note, soft_wrap=True)
    if found.copies:
        from natmix.experiments.tables.collection import COPIES

        console().print(f"{COPIES} table3.md lists them: {len(found.copies)}.", soft_wrap=True)
    console().print(f"Written: {', '.join(map(str, paths))}", soft_wrap=True)
    if not any(path.suffix == ".png" for path in paths):
        missing = importlib.util.find_spec("matplotlib") is None
        because = (
            "matplotlib is not installed: pip install 'natmix[plot]'"
            if missing
            else "the tables do not have the learning curves of their seeds (table3_evaluations.csv)"
        )
        console().print(f"There is no figure, because {because}", soft_wrap=True)


def _table(found: "Collection") -> "Table":
    from rich.table import Table

    from natmix.experiments.tables import formatting
    from natmix.experiments.tables.writing import summaries_of

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("algorithm", "problem"):
        table.add_column(name, no_wrap=True)
    for name in ("seeds", "-ELBO", "", "paper", "to it (s)", "time (s)"):
        table.add_column(name, justify="right", no_wrap=True)
    for (codename, problem), s in summaries_of(found).items():
        ours, paper = formatting.ours(s.neg_elbo), formatting.theirs(s.paper)
        to = f"{s.time_to_paper:.0f}" if math.isfinite(s.time_to_paper) else formatting.NONE
        table.add_row(
            codename, problem, str(len(s.seeds)), ours, formatting.mark(s), paper, to, f"{s.seconds:.0f}"
        )
    return table
