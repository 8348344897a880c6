"""``natmix study``: many trials of many algorithms on many problems."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from natmix.experiments.studies.definition import StudyChanges

_INTERRUPTED = 130

study = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The study's folder.")]
Folders = Annotated[
    list[Path],
    typer.Argument(help="The study's folder, or several with parts of one study, to be put together."),
]
Jobs = Annotated[int, typer.Option(help="Trials at once on this machine; each process owns one device.")]
Scheduler = Annotated[
    str,
    typer.Option(
        help="Where trials run: auto (a local cluster of Dask, or processes if Dask is not installed), "
        "processes, dask, slurm, or the address of a Dask scheduler, tcp://host:8786."
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        help="Trials that each process runs at once as one program. Default: 16 where this machine has an "
        "accelerator and no budget is a limit of time, 1 otherwise."
    ),
]
Slurm = Annotated[
    list[str] | None,
    typer.Option(
        "--slurm",
        metavar="NAME=VALUE",
        help="With slurm: an argument of dask_jobqueue.SLURMCluster, such as queue=gpu, walltime=12:00:00, "
        "cores=8, memory=32GB, account=NAME. May be given several times.",
    ),
]


@study.callback()
def _main() -> None:
    """Run many trials of many algorithms on many problems: search spaces, grids, seeds, budgets."""


@study.command("list")
def list_() -> None:
    """List the studies that natmix ships."""
    with one_sentence():
        from rich.table import Table

        from natmix.cli.console import print_table
        from natmix.experiments.studies.settings_source import settings_in
        from natmix.experiments.studies.shipped_studies import find_study, shipped_names

        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
        for name in ("study", "what", "problems", "codenames", "settings", "seeds"):
            table.add_column(name, justify="left" if name in ("study", "what") else "right", no_wrap=True)
        for name in shipped_names():
            found = find_study(name)
            settings = sum(settings_in(found, cell) for cell in found.cells)
            counts = (len(found.problems), len(found.codenames), settings, len(found.seeds))
            table.add_row(name, found.title, *map(str, counts))
        print_table(table)
        typer.echo("natmix study run NAME runs one, natmix study show NAME prints its file.")


@study.command()
def show(name: Annotated[str, typer.Argument(help="A shipped study or a study file.")]) -> None:
    """Print a study file, to copy and change."""
    with one_sentence():
        from natmix.experiments.studies.shipped_studies import find_study

        source = find_study(name).source
        assert source is not None
        typer.echo(source.text, nl=False)


@study.command()
def run(
    file: Annotated[str, typer.Argument(help="A study file, or a shipped study: see `natmix study list`.")],
    out: Annotated[Path | None, typer.Option(help="The study's folder. Default: studies/NAME.")] = None,
    scale: Annotated[float, typer.Option(help="Multiply the budgets of all trials.")] = 1.0,
    problems: Annotated[str | None, typer.Option(help="Only these problems, with commas.")] = None,
    codenames: Annotated[
        str | None, typer.Option(help="Only these codenames or patterns, with commas.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Settings per codename and problem, instead of the file's.")
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of the file's, such as 0:10.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="Instead of the file's: journal, sqlite, none or a database's URL.")
    ] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = "auto",
    slots: Slots = None,
    slurm: Slurm = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Run a study, or go on with it.

    Repeat an interrupted command to resume it: trials that have ended are not repeated. The same command on
    several machines that see the folder shares the trials among them.
    """
    with one_sentence():
        from natmix.experiments.studies.shipped_studies import find_study

        found = find_study(file, _changes(scale, problems, codenames, trials, seeds, storage))
        folder = out or Path("studies") / found.name
        run_to_end(found, folder, Places(jobs, scheduler, slots, slurm or []), quiet)
        if not quiet:
            _print_results(_loaded([folder]))


@study.command()
def status(folder: Folder) -> None:
    """Show how far a study is, and what failed."""
    with one_sentence():
        from rich.table import Table

        from natmix.cli.console import print_table
        from natmix.experiments.studies.study_folder import StudyFolder
        from natmix.experiments.studies.study_results import load_results

        results = load_results(folder)
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
        for name in ("problem", "codename", "settings", "complete", "pruned", "failed", "open trials"):
            left = name in ("problem", "codename")
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for cell in results.cells:
            counts = [str(cell.count(state)) for state in ("complete", "pruned", "failed")]
            table.add_row(*cell.cell, f"{len(cell.results)} of {cell.total}", *counts, str(cell.running))
        print_table(table)
        for reason, count in results.failures().items():
            typer.echo(f"{count} failed: {reason}")
        done = sum(len(cell.results) for cell in results.cells)
        total = sum(cell.total for cell in results.cells)
        typer.echo(f"{done} of {total} settings are done.{_dashboard(results.study, StudyFolder(folder))}")


@study.command()
def results(
    folders: Folders,
    out: Annotated[Path | None, typer.Option(help="Write all trials to this CSV file, too.")] = None,
) -> None:
    """Show the best of each codename on each problem, and of each option."""
    with one_sentence():
        found = _loaded(folders)
        _print_results(found)
        if out is not None:
            found.write_csv(out)
            typer.echo(f"Written: {out}")


@study.command()
def table(
    folders: Folders,
    out: Annotated[Path | None, typer.Option(help="Write it to this file. Default: print it.")] = None,
    command: Annotated[
        list[str] | None, typer.Option(help="A command that ran the study, to be printed at its end.")
    ] = None,
) -> None:
    """Make the table of the best of each option, beside the paper's numbers, in Markdown."""
    with one_sentence():
        from natmix.experiments.studies.option_table import option_table
        from natmix.files.durable import write_text

        text = option_table(_loaded(folders), command or [])
        if out is None:
            typer.echo(text, nl=False)
        else:
            write_text(out, text)
            typer.echo(f"Written: {out}")


@study.command()
def best(
    folders: Folders,
    problem: Annotated[str | None, typer.Option(help="Only this problem.")] = None,
    codename: Annotated[str | None, typer.Option(help="Only this codename.")] = None,
) -> None:
    """Print the best settings on each problem, as a command or as Python."""
    with one_sentence():
        from natmix.experiments.studies.study_results import standard_error
        from natmix.text.suggestions import hint

        found = _loaded(folders)
        names = list(found.study.problems)
        if problem is not None and problem not in names:
            raise ValueError(f"The study has no problem {problem!r}. {hint(problem, names)}")
        name = None if codename is None else codename.upper()
        if name is not None and name not in found.study.codenames:
            raise ValueError(f"The study has no codename {codename!r}. {hint(name, found.study.codenames)}")
        for each in names if problem is None else [problem]:
            chosen = found.best(each, name)
            if chosen is None:
                typer.echo(f"# {each}: no setting is complete.")
                continue
            cell, result = chosen
            error = standard_error(result)
            numbers = found.trial_names(cell, result)
            typer.echo(f"# {cell.codename} on {each}: {result.value:.6g} ± {error:.2g} (trials {numbers})")
            typer.echo(_repeat(found.study, cell, result))


@study.command()
def plot(
    folders: Folders,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the figures. Default: STUDY/figures, if there is one folder."),
    ] = None,
) -> None:
    """Draw the best of each option, learning curves, and what was searched."""
    with one_sentence():
        from natmix.experiments.studies.study_figures import draw_all
        from natmix.plot.style import pyplot

        if out is None and len(folders) > 1:
            raise ValueError("Say where the figures of several folders go: --out FOLDER.")
        pyplot().switch_backend("agg")  # no window
        found = _loaded(folders)
        written, missing = draw_all(found, out or folders[0] / "figures")
        for path in written:
            typer.echo(str(path))
        for line in missing:
            typer.echo(f"natmix: no {line}", err=True)
        if not written:
            raise ValueError(f"No figure of {', '.join(map(str, folders))} could be drawn.")


@study.command("job-script")
def job_script(slurm: Slurm = None) -> None:
    """Print the Slurm script of a worker, as `natmix study run --scheduler slurm` submits it."""
    with one_sentence():
        from natmix.experiments.studies.dask_pool import slurm_cluster

        cluster = slurm_cluster(_slurm(slurm or []))
        typer.echo(cluster.job_script(), nl=False)
        cluster.close()


class Places(NamedTuple):
    """Where trials run, as options of a command say.

    Attributes:
        jobs: trials or batches at once on this machine.
        scheduler: that has the workers.
        slots: trials in a batch; None for what suits this machine.
        slurm: arguments of a Slurm cluster.
    """

    jobs: int
    scheduler: str
    slots: int | None
    slurm: list[str]


def run_to_end(found: Any, folder: Path, places: Places, quiet: bool) -> None:
    """Run all trials of a study that have no outcome; leaves the command if it is interrupted."""
    from natmix.cli.study_progress import StudyLines
    from natmix.experiments.runs.directory import check_possible
    from natmix.experiments.studies.client import run_study
    from natmix.experiments.studies.slots import slots_for
    from natmix.interrupts import Interrupt

    if places.jobs < 1:
        raise ValueError(f"--jobs must be at least 1, got {places.jobs}.")
    slots = slots_for(found, places.slots)
    check_possible(folder)
    interrupt = Interrupt()
    with interrupt.watching(), _pool(folder, places, slots, interrupt, quiet) as pool:
        end = run_study(folder, found, pool, interrupt, StudyLines(quiet))
    if end.interrupted:
        typer.echo("natmix: interrupted. Repeat the command to continue from there.", err=True)
        raise typer.Exit(_INTERRUPTED)


def _pool(folder: Path, places: Places, slots: int, interrupt: Any, quiet: bool) -> Any:
    import importlib.util

    from natmix.experiments.studies import dask_pool, pools
    from natmix.experiments.studies.own_device import own_device

    jobs, scheduler, _, slurm = places
    if slurm and scheduler != "slurm":
        raise ValueError("--slurm goes with --scheduler slurm.")
    folder.mkdir(parents=True, exist_ok=True)
    if scheduler == "auto" and jobs == 1:
        own_device()
        return pools.InProcess(folder, interrupt, slots)
    if scheduler == "auto":
        scheduler = "processes" if importlib.util.find_spec("distributed") is None else "dask"
        if not quiet:
            typer.echo(f"natmix: {jobs} trials at once, --scheduler {scheduler}.", err=True)
    if scheduler == "processes":
        return pools.LocalProcesses(folder, jobs, slots)
    if scheduler == "dask":
        return dask_pool.local_cluster(folder, jobs, slots)
    if scheduler == "slurm":
        return dask_pool.on_slurm(folder, jobs, _slurm(slurm), slots)
    if "://" not in scheduler:
        raise ValueError(
            f"--scheduler is auto, processes, dask, slurm or an address such as tcp://host:8786, got "
            f"{scheduler!r}."
        )
    return dask_pool.at_scheduler(folder, scheduler, slots)


def _changes(
    scale: float,
    problems: str | None,
    codenames: str | None,
    trials: int | None,
    seeds: str | None,
    storage: str | None,
) -> "StudyChanges":
    from natmix.experiments.runs.config import parse_seeds
    from natmix.experiments.studies.definition import StudyChanges

    if trials is not None and trials < 1:
        raise ValueError(f"--trials must be at least 1, got {trials}.")
    return StudyChanges(
        scale,
        _names(problems),
        _names(codenames),
        trials,
        None if seeds is None else tuple(parse_seeds(seeds)),
        storage,
    )


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _slurm(settings: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"--slurm takes NAME=VALUE, such as queue=gpu, got {text!r}.")
        found[name] = int(value) if value.isdigit() else value
    return found


def _dashboard(found: Any, folder: Any) -> str:
    if found.storage == "none":
        return ""
    from natmix.experiments.studies.storage_place import storage_place

    return f" Optuna's dashboard: optuna-dashboard {storage_place(folder, found.storage)}"


def _repeat(found: Any, cell: Any, result: Any) -> str:
    from natmix.cli.tune import as_python
    from natmix.experiments.studies.study_results import as_command

    source = found.problems[cell.problem].source
    return as_command(found, cell, result) if source is None else as_python(source, cell, result)


def _loaded(folders: list[Path]) -> Any:
    from natmix.experiments.studies.study_results import load_results

    found = load_results(*folders)
    repeated = sum(cell.repeated for cell in found.cells)
    if repeated:
        typer.echo(
            f"natmix: {repeated} trials have the setting and the seed of one in an earlier folder, and are "
            "left out.",
            err=True,
        )
    return found


def _print_results(found: Any) -> None:
    from rich.table import Table

    from natmix.cli.console import console, print_table
    from natmix.experiments.studies.study_figures import objective_name
    from natmix.experiments.studies.study_results import standard_error

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("problem", "codename", objective_name(found), "complete", "pruned", "failed", "trials"):
        left = name in ("problem", "codename")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for cell in found.cells:
        chosen = found.best(*cell.cell)
        value = "" if chosen is None else f"{chosen[1].value:.5g} ± {standard_error(chosen[1]):.2g}"
        numbers = "" if chosen is None else found.trial_names(*chosen)
        counts = [str(cell.count(state)) for state in ("complete", "pruned", "failed")]
        table.add_row(*cell.cell, value, *counts, numbers)
    print_table(table)
    options = found.options()
    if options:
        console().print("\nThe best of each option, over all candidates and settings", style="bold")
        print_table(_option_table(found, options))
    scaled = "" if found.study.scale == 1 else f" (times {found.study.scale:g})"
    console().print(
        f"Budget of a trial{scaled}: {_budgets(found.study)}. ± is one standard error.", soft_wrap=True
    )


def _option_table(found: Any, options: list[Any]) -> Any:
    """Options down, problems across, as the paper prints them."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("module", no_wrap=True)
    table.add_column("option", no_wrap=True)
    for problem in found.study.problems:
        table.add_column(problem, justify="right", no_wrap=True)
    rows = dict.fromkeys((each.module, f"{each.title} ({each.letter})") for each in options)
    values = {(o.problem, o.module, f"{o.title} ({o.letter})"): o.value for o in options}
    for module, option in rows:
        found_values = [values.get((problem, module, option)) for problem in found.study.problems]
        table.add_row(module, option, *("" if v is None else f"{v:.5g}" for v in found_values))
    return table


def _budgets(found: Any) -> str:
    words = {
        "max_iterations": "iterations",
        "max_evaluations": "evaluations",
        "max_seconds": "s",
        "max_run_seconds": "s without compilation",
    }
    texts = []
    for name, problem in found.problems.items():
        limits = [
            f"{getattr(problem.limits, key):,g} {word}"
            for key, word in words.items()
            if getattr(problem.limits, key) is not None
        ]
        texts.append(f"{name} {', '.join(limits)}")
    return "; ".join(texts)
