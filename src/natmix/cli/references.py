"""``natmix references``: samples of the targets for the metrics that need them."""

from pathlib import Path
from typing import Annotated

import typer

from natmix.cli.errors import one_sentence
from natmix.experiments.references import NAMES, Reference, cache_directory, generate, load
from natmix.text.suggestions import meant


def references(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help=f"Any of {', '.join(NAMES)}. Default: all."),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(help="Folder for the samples. Default: the cache directory (NATMIX_CACHE)."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Generate samples again that exist already.")] = False,
) -> None:
    """Generate reference samples of test problems by long MCMC runs (minutes).

    The MMD and other metrics compare a mixture with them.
    """
    with one_sentence():
        wanted = names or list(NAMES)
        unknown = [name for name in wanted if name not in NAMES]
        if unknown:
            raise ValueError(
                f"There are no reference samples of {unknown[0]!r}, only of {', '.join(NAMES)}."
                f"{meant(unknown[0], NAMES)}"
            )
        folder = directory or cache_directory()
        for name in wanted:
            typer.echo(_line(_kept(name, folder, force) or _made(name, folder)))
        typer.echo(f"The reference samples are in {folder}")


def _kept(name: str, folder: Path, force: bool) -> Reference | None:
    try:
        return None if force else load(name, folder)
    except FileNotFoundError:
        return None


def _made(name: str, folder: Path) -> Reference:
    typer.echo(f"{name}: sampling ...")
    return generate(name, folder)


def _line(reference: Reference) -> str:
    info = reference.info
    return (
        f"{reference.name}: {info['points']} points, R-hat at most {max(info['r_hat']):.4f}, "
        f"effective sample size at least {min(info['effective_sample_size']):.0f} of {info['draws']}, "
        f"log evidence {info['log_evidence']:.3f} ± {info['log_evidence_se']:.3f}, "
        f"sha256 {reference.sha256[:12]}"
    )
