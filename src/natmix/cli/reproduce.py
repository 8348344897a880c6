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
from natmix.text.extras import install

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
            help="Which algorithms. Default: samtron,samyron,sepyfux,zamtrux, the paper's main table. "
            "all: the nine of the appendix, with its tables.",
        ),
    ] = None,
    problems: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Which problems. Default: the paper's eleven (with all: also *_testsplit)."
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Which seeds to run, such as 7 or 0,3,5 or 0:10 (0 to 9).")
    ] = "0:10",
    max_time: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIME",
            help="Time limit of each seed: 10m for all problems, stm300=20m,wine=5m for some, or "
            "5m,stm300=20m for all but some. Default: the paper's hours.",
        ),
    ] = None,
    max_run_time: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME", help="Time limit of each seed, not counting compilation."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run directories.")] = Path("table3-runs"),
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the tables and the figure. Default: OUT/tables."),
    ] = None,
    only_table: Annotated[
        bool, typer.Option("--only-table", help="Run nothing, write the tables from existing runs.")
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
            help="A folder that holds runs of another machine (at any depth) or a table3_seeds.csv. May be "
            "given several times. With --only-table these folders are read instead of --out. Otherwise they "
            "are read as well as --out, and seeds finished there are not run again.",
        ),
    ] = None,
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--apart",
            help="Run the seeds together in one jax.vmap, or one after another. Default: the faster.",
        ),
    ] = None,
    keep_checkpoints: Annotated[
        bool,
        typer.Option(help="Keep checkpoints of finished seeds too, to continue them with higher limits."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Table 3: run what is missing with the paper's hyperparameters, and compare with the printed table.

    Repeat an interrupted command to resume it. SAMTRON and quick problems come first. Several processes can
    share one --out, even for the same problems: each runs seeds that no other process runs. On one GPU they
    need XLA_PYTHON_CLIENT_PREALLOCATE=false. The tables cover all runs in --out.
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
                    "natmix: interrupted. Repeat the command to continue from there, or add --only-table "
                    "--unfinished to write the tables of what there is.",
                    err=True,
                )
                raise typer.Exit(_INTERRUPTED)
            if report.failed:
                which = "; ".join(f"{name} {', '.join(map(str, s))}" for name, s in report.failed.items())
                again = "repeat the command to try them again"
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
    """The command as typed."""
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
            f"matplotlib is not installed: {install('plot')}"
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
