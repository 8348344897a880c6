"""``natmix compare``: runs side by side, as a table and as learning curves."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natmix.cli.errors import one_sentence
from natmix.text.extras import install

if TYPE_CHECKING:
    from rich.table import Table

    from natmix.experiments.runs import Run


def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    out: Annotated[Path, typer.Option(help="File for the figure of the learning curves.")] = Path(
        "compare.png"
    ),
    target: Annotated[
        float | None,
        typer.Option(help="Also show the seconds, without compilation, until the -ELBO was at most this."),
    ] = None,
) -> None:
    """Compare runs: final numbers as a table, learning curves as a figure."""
    with one_sentence():
        from natmix.cli.console import print_table
        from natmix.cli.run_table import ERRORS
        from natmix.experiments.runs import load_run

        _check(out)
        runs = [load_run(path) for path in paths]
        print_table(_table(runs, target))
        typer.echo(ERRORS)
        if importlib.util.find_spec("matplotlib") is None:
            typer.echo(f"There is no figure, because matplotlib is not installed: {install('plot')}")
            return
        _save(runs, out)
        typer.echo(f"The learning curves are in {out}")


def _table(runs: "list[Run]", target: float | None) -> "Table":
    from rich.table import Table

    from natmix.cli.run_table import mean, mean_and_error

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", no_wrap=True)
    table.add_column("problem", no_wrap=True)
    table.add_column("algorithm", no_wrap=True)
    for name in ("seeds", "-ELBO", "iters", "evals", "comps", "time (s)"):
        table.add_column(name, justify="right", no_wrap=True)
    if target is not None:
        table.add_column(f"to {target:g} (s)", justify="right", no_wrap=True)
    for run in runs:
        finals = [seed.final for seed in run.finished.values() if seed.final is not None]
        numbers = [
            mean([f[k] for f in finals]) for k in ("iterations", "evaluations", "components", "seconds")
        ]
        elbo = mean_and_error([f["neg_elbo"] for f in finals])
        row = [str(run.path), run.problem, run.codename, f"{len(finals)} of {len(run.config['seeds'])}"]
        table.add_row(*row, elbo, *numbers, *([] if target is None else [_time_to(run, target)]))
    return table


def _time_to(run: "Run", target: float) -> str:
    """The mean over the seeds, or how many got there."""
    import numpy as np

    times = []
    for seed in run.seeds.values():
        reached = np.flatnonzero(seed.metrics["neg_elbo"] <= target)
        if reached.size:
            at = reached[0]
            times.append(float(seed.metrics["seconds"][at] - seed.metrics["compile_seconds"][at]))
    if not times:
        return "never"
    share = "" if len(times) == len(run.seeds) else f" ({len(times)} of {len(run.seeds)} seeds)"
    return f"{np.mean(times):.3g}{share}"


def _check(picture: Path) -> None:
    """Raise if the figure cannot be written, before any work."""
    from natmix.experiments.runs.directory import check_possible

    if picture.suffix.lstrip(".").lower() not in {"png", "pdf", "svg", "jpg", "jpeg"}:
        raise ValueError(f"The figure must be a .png, .pdf, .svg or .jpg file, got {picture}.")
    if picture.is_dir():
        raise IsADirectoryError(f"The figure cannot be written: {picture} is a folder; choose another --out.")
    check_possible(picture.parent)


def _save(runs: "list[Run]", path: Path) -> None:
    from matplotlib import pyplot

    from natmix.experiments.figures.learning_curves import plot_comparison

    pyplot.switch_backend("agg")  # no window
    figure = plot_comparison(runs)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    pyplot.close(figure)
