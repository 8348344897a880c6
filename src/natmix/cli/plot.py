"""``natmix plot``: the figures of a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from natmix.experiments.runs import Run, SeedRun


def plot(
    run: Annotated[Path, typer.Argument(help="A run directory, as `natmix run` writes it.")],
    out: Annotated[Path | None, typer.Option(help="Folder for the figures. Default: RUN/figures.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The seed to show. Default: the first finished one."),
    ] = None,
) -> None:
    """Plot a run: learning curves, weights, components added and deleted, marginals, robot arms.

    Learning curves show all seeds. The other figures show one seed.
    """
    with one_sentence():
        from natmix.experiments.runs import load_run
        from natmix.plot.style import pyplot

        pyplot().switch_backend("agg")  # no window
        found = load_run(run)
        chosen = _seed(found, seed)
        folder = out or found.path / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        if not _draw_all(found, chosen, folder):
            raise ValueError(f"No figure of {run} could be drawn.")


def _draw_all(run: "Run", seed: "SeedRun", folder: Path) -> int:
    """Draw all figures that are possible, say which are not, and return the number of files."""
    import jax

    from natmix.experiments.figures.run_figures import Subject, figures_of
    from natmix.plot.style import KNOWN, pyplot

    if run.config.get("dtype") == "float64":
        jax.config.update("jax_enable_x64", True)
    subject = Subject(run, seed)
    written = 0
    for name, draw in figures_of(run.problem).items():
        path = folder / f"{name}.png"
        try:
            drawing = draw(subject)
        except (ValueError, FileNotFoundError, ImportError) as error:
            typer.echo(f"natmix: no {path.name}: {error}", err=True)
            continue
        which = "all seeds" if drawing.of_all_seeds else f"seed {seed.seed}"
        label = f"{run.problem}, {run.codename}, {which}"
        drawing.figure.supxlabel(label, x=0.99, ha="right", fontsize=7, color=KNOWN)
        drawing.figure.savefig(path)
        pyplot().close(drawing.figure)
        written += 1
        typer.echo(f"{path}{': ' + drawing.note if drawing.note else ''}")
    return written


def _seed(run: "Run", wanted: int | None) -> "SeedRun":
    if not run.seeds:
        raise ValueError(f"{run.path} has no seeds yet, so there is nothing to draw.")
    if wanted is None:
        return next(iter((run.finished or run.seeds).values()))
    if wanted not in run.seeds:
        raise ValueError(f"{run.path} has no seed {wanted}, only {', '.join(map(str, run.seeds))}.")
    return run.seeds[wanted]
