"""``natmix fit``: a user's own model from the command line."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from natmix.result.result import Result

INTERRUPTED = 130
NOT_TRUSTED = 3
"""The exit code of ``--strict`` for any verdict but trust."""


def fit(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="module:name, path/to/file.py:name or a .stan file. The name is a NumPyro model, which "
            "takes the data as keyword arguments; a log density in JAX or NumPy, with --dim or --position; a "
            "PyMC model or another target of natmix.fit; or a function of the data that returns one.",
        ),
    ],
    data: Annotated[Path | None, typer.Option(help="Data by name: a .json, .toml or .npz file.")] = None,
    dim: Annotated[
        int | None, typer.Option(help="Of a log density of vectors: how many numbers a point has.")
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(help="Of a log density of named arrays: an initial position, as JSON or a file."),
    ] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            help="A pair such as '[0, null]' as JSON, null for no bound; also by name: "
            "'{\"sigma\": [0, null]}'."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the result. Default: fits/NAME, after the target.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints, from which the same command goes on (natmix watch)."),
    ] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Between two checkpoints.")] = 60.0,
    resume: Annotated[
        str,
        typer.Option(
            help="Whether to go on from a checkpoint: yes, no (begin anew), or anyway (even if the fit or "
            "the software is another one)."
        ),
    ] = "yes",
    max_evaluations: Annotated[
        int | None, typer.Option(help="Limit of evaluations of the target, never exceeded.")
    ] = None,
    max_seconds: Annotated[
        str | None, typer.Option(metavar="TIME", help="Limit of time, such as 90, 10m or 2h.")
    ] = None,
    max_iterations: Annotated[int, typer.Option(help="Limit of iterations.")] = 10_000,
    accuracy: Annotated[
        str, typer.Option(help="KL(q || p) in nats at which the fit ends, or none.")
    ] = "0.02",
    algorithm: Annotated[
        str | None, typer.Option(help="Seven letters: see `natmix options`. Default: chosen for the target.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="MODULE.NAME=VALUE",
            help="Set a hyperparameter (component_stepsize.stepsize=0.05). May be given several times.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    start: Annotated[
        str | None, typer.Option(help="How to initialise: region, pathfinder or tempered.")
    ] = None,
    init_mean: Annotated[
        str | None,
        typer.Option(help="Mean of the initial region: a number, or one for each dimension: 0,1,2."),
    ] = None,
    init_scale: Annotated[str | None, typer.Option(help="Its standard deviations, likewise.")] = None,
    init_components: Annotated[int | None, typer.Option(help="Number of initial components.")] = None,
    covariance: Annotated[str | None, typer.Option(help="Of the components: full or diagonal.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Precision: float32 or float64.")] = None,
    elbo_samples: Annotated[int | None, typer.Option(help="Samples for the final ELBO.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Search outside of the mixture's samples.")
    ] = True,
    draws: Annotated[
        list[str] | None,
        typer.Option(metavar="npz|csv", help="Also write draws, as draws.npz or draws.csv. May be repeated."),
    ] = None,
    num_draws: Annotated[int, typer.Option(help="How many.")] = 4000,
    corrected: Annotated[
        bool, typer.Option("--corrected", help="Draws corrected by importance weights (Result.resample).")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with code 3 unless the verdict is trust.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Fit your own model, and write the result, its summary and draws.

    Ctrl-C and SIGTERM keep the best mixture so far (exit code 130); with --checkpoint the same command goes
    on from there. Exit codes: 0 whatever the verdict, 2 for a mistake, 3 with --strict.
    """
    with one_sentence():
        import jax

        from natmix.cli import fit_output
        from natmix.cli.fit_arguments import target_arguments
        from natmix.fit import fit as fit_target

        options: dict[str, Any] = {
            "seed": seed,
            "max_evaluations": max_evaluations,
            "max_seconds": _seconds(max_seconds),
            "max_iterations": max_iterations,
            "accuracy": _accuracy(accuracy),
            "algorithm": algorithm,
            "start": start,
            "init_mean": _numbers(init_mean, "--init-mean"),
            "init_scale": _numbers(init_scale, "--init-scale"),
            "init_components": init_components,
            "covariance": covariance,
            "dtype": _dtype(dtype),
            "elbo_samples": elbo_samples,
            "verify": verify,
            **_overrides(settings or []),
        }
        kinds = fit_output.checked_kinds(draws or [])
        folder = output or fit_output.usual_folder(target)
        if dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        asked = {
            "target": target,
            "data": fit_output.digest(data),
            "data_file": None if data is None else str(data),
            "dim": dim,
            "position": position,
            "bounds": bounds,
            **options,
        }
        writer = fit_output.FitFolder(folder, asked)
        found = target_arguments(target, data, dim, position, bounds)
        result = fit_target(
            found.target,
            **found.others,
            **options,
            progress=not quiet,
            checkpoint=checkpoint,
            checkpoint_seconds=checkpoint_seconds,
            resume=_resume(resume),
        )
        summary = writer.write(result, kinds, num_draws, corrected)
    _report(result, summary, writer.folder, checkpoint is not None, strict)


def _report(result: "Result", summary: str, folder: Path, resumable: bool, strict: bool) -> None:
    typer.echo(summary)
    typer.echo(f"\nThe result is in {folder}; natmix.Result.load reads {folder / 'result.safetensors'}")
    if result.interrupted:
        how = (
            "Repeat the command to continue from there."
            if resumable
            else "With --checkpoint DIR the same command would continue from there."
        )
        typer.echo(f"natmix: interrupted. {how}", err=True)
        raise typer.Exit(INTERRUPTED)
    found = result.diagnosis
    if strict and (found is None or not found.trusted):
        verdict = "none" if found is None else found.verdict
        typer.echo(f"natmix: the verdict is {verdict}, not trust (--strict).", err=True)
        raise typer.Exit(NOT_TRUSTED)


# Options ------------------------------------------------------------------------------------------


def _seconds(text: str | None) -> float | None:
    from natmix.experiments.runs.config import parse_seconds

    return None if text is None else parse_seconds(text)


def _accuracy(text: str) -> float | None:
    if text.strip().lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--accuracy is a number of nats or none, got {text!r}.") from None


def _numbers(text: str | None, name: str) -> float | list[float] | None:
    """A number, or several with commas."""
    if text is None:
        return None
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} is a number, or several with commas, got {text!r}.") from None
    return found[0] if len(found) == 1 else found


def _dtype(name: str | None) -> str | None:
    from natmix.experiments.runs.config import DTYPES, check_choice

    if name is not None:
        check_choice("dtype", name, DTYPES)
    return name


def _resume(text: str) -> Any:
    choices = {"yes": True, "no": False, "anyway": "anyway"}
    if text not in choices:
        raise ValueError(f"--resume is yes, no or anyway, got {text!r}.")
    return choices[text]


def _overrides(settings: list[str]) -> dict[str, Any]:
    from natmix.cli.overrides import parse_overrides

    overrides, problem = parse_overrides(settings)
    if problem:
        raise ValueError(f"--set problem.{next(iter(problem))}: only problems of `natmix run` have options.")
    return overrides
