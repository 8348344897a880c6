"""``natmix demo``: a fit with its summary and a figure."""

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from natmix.cli.errors import one_sentence
from natmix.cli.target import BOUNDS, LOG_EVIDENCE, log_density
from natmix.fit import fit
from natmix.kernels.compilation_cache import use_compilation_cache
from natmix.modules.codenames import adds_components
from natmix.result.result import Result
from natmix.text.extras import install

_FIXED_COMPONENTS = 32
_START_SCALE = 4.0


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the figure and the mixture.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    codename: Annotated[str, typer.Option(help="The algorithm: see `natmix options`.")] = "samtron",
    max_iterations: Annotated[int, typer.Option(hidden=True)] = 2000,
) -> None:
    """Fit a multimodal density in the plane, summarise the fit and save a figure of it."""
    with one_sentence():
        components = _components(codename)
        out.mkdir(parents=True, exist_ok=True)
        use_compilation_cache()
        typer.echo("Two half-rings, a banana and three Gaussians, to be approximated by a Gaussian mixture.")
        result = fit(
            log_density,
            dim=2,
            seed=seed,
            algorithm=codename,
            init_scale=_START_SCALE,
            max_iterations=max_iterations,
            init_components=components,
            progress=True,
        )
        typer.echo(f"\n{result.summary()}\n")
        typer.echo("The target is normalised, so the ELBO is minus the KL divergence between fit and target.")
        _save(result, out)


def _components(codename: str) -> int:
    """One initial component, or enough of them if the algorithm adds none."""
    return 1 if adds_components(codename) else _FIXED_COMPONENTS


def _save(result: Result, out: Path) -> None:
    if _has_matplotlib():
        _save_picture(result, out / "fit.png")
        typer.echo(f"The figure is in {out / 'fit.png'}")
    else:
        typer.echo(f"There is no figure, because matplotlib is not installed: {install('plot')}")
    result.mixture.save(out / "mixture.safetensors", metadata=result.settings)
    typer.echo(f"The mixture is in {out / 'mixture.safetensors'}; natmix.Mixture.load reads it.")


def _has_matplotlib() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def _save_picture(result: Result, path: Path) -> None:
    from matplotlib import pyplot

    from natmix.plot import plot_overview

    pyplot.switch_backend("agg")  # no window
    plot_overview(result, log_density, bounds=BOUNDS, log_evidence=LOG_EVIDENCE)
    pyplot.savefig(path)
    pyplot.close()
