"""``natmix tune``: find good settings for a target of one's own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natmix.cli.errors import one_sentence
from natmix.cli.study import Jobs, Places, Scheduler, Slots, run_to_end

if TYPE_CHECKING:
    from natmix.experiments.studies.definition import CellKey
    from natmix.experiments.studies.model_problem import ModelSource
    from natmix.experiments.studies.settings_source import SettingResult

CANDIDATES = "SAMTRON,SAMTRUX,SAMYRON"


def tune(
    model: Annotated[
        str,
        typer.Argument(
            help="What natmix.fit would get: module:name or file.py:name, of a function or model."
        ),
    ],
    dim: Annotated[
        int | None, typer.Option(help="The number of dimensions, if the model does not say.")
    ] = None,
    codenames: Annotated[
        str, typer.Option(help="Candidates: codenames or patterns, with commas.")
    ] = CANDIDATES,
    trials: Annotated[int, typer.Option(help="Settings per candidate.")] = 8,
    max_evals: Annotated[int | None, typer.Option(help="Evaluations of the target per trial.")] = None,
    max_iters: Annotated[int | None, typer.Option(help="Iterations per trial.")] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time limit of a trial, such as 90s or 10m.")
    ] = None,
    sampler: Annotated[str, typer.Option(help="tpe, gp or random.")] = "tpe",
    init_mean: Annotated[float | None, typer.Option(help="As in natmix.fit.")] = None,
    init_scale: Annotated[float | None, typer.Option(help="As in natmix.fit.")] = None,
    seeds: Annotated[str, typer.Option(help="Each setting is run with each of these seeds.")] = "0",
    storage: Annotated[
        str, typer.Option(help="Of Optuna: journal, sqlite or a URL; none with the sampler random.")
    ] = "journal",
    out: Annotated[Path | None, typer.Option(help="The study's folder. Default: tuning/NAME.")] = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = "auto",
    slots: Slots = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Search for the algorithm and the hyperparameters with the lowest -ELBO on a target of your own.

    Ends with the best settings as Python, which is also written to best.py in the study's folder, beside
    study.toml, the study as a file. Without a limit a trial has 200,000 evaluations.
    """
    with one_sentence():
        from natmix.experiments.runs.config import parse_seconds
        from natmix.experiments.studies.definition import StudySource
        from natmix.experiments.studies.model_problem import ModelSource, load_model
        from natmix.experiments.studies.study_file import study_from
        from natmix.experiments.studies.study_results import load_results, standard_error
        from natmix.experiments.studies.tuning import default_study
        from natmix.files.durable import write_text

        source = ModelSource(model, str(Path.cwd()), dim, init_mean, init_scale)
        problem = load_model(source, source.function, {}, "float32")
        budget = {
            "iterations": max_iters,
            "evaluations": max_evals,
            "seconds": None if max_time is None else parse_seconds(max_time),
        }
        text = default_study(
            source, problem.dim, codenames.split(","), trials, budget, sampler, seeds, storage
        )
        study = study_from(StudySource(f"tune {model}", str(Path.cwd()), text))
        folder = out or Path("tuning") / source.function
        run_to_end(study, folder, Places(jobs, scheduler, slots, []), quiet)
        found = load_results(folder)
        chosen = found.best(source.function)
        if chosen is None:
            reasons = "; ".join(found.failures())
            raise ValueError(f"No setting could be run to its end: {reasons or 'all were pruned'}.")
        cell, result = chosen
        python = as_python(source, cell, result)
        write_text(folder / "study.toml", text)
        write_text(folder / "best.py", python)
        typer.echo(
            f"# -ELBO {result.value:.6g} ± {standard_error(result):.2g}, the best of {_count(found)} settings"
        )
        typer.echo(python, nl=False)
        typer.echo(f"# Written: {folder / 'best.py'}, {folder / 'study.toml'}")


def as_python(source: "ModelSource", cell: "CellKey", result: "SettingResult") -> str:
    """A fit with these settings, to paste."""
    from natmix.experiments.studies.model_problem import is_made_by_call
    from natmix.experiments.studies.study_results import as_arguments

    where, _, name = source.path.rpartition(":")
    module = where.removesuffix(".py").replace("/", ".")
    given = source.arguments or {}
    call = f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})" if is_made_by_call(source) else name
    arguments: dict[str, Any] = {
        key: value
        for key, value in (
            ("dim", source.dim),
            ("init_mean", source.init_mean),
            ("init_scale", source.init_scale),
        )
        if value is not None
    }
    arguments |= as_arguments(cell, result)
    lines = [f"    {key}={_literal(value)}," for key, value in arguments.items()]
    return "\n".join(
        [
            "import natmix",
            f"from {module} import {name}",
            "",
            "result = natmix.fit(",
            f"    {call},",
            *lines,
            ")",
            "",
        ]
    )


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {_literal(entry)}' for key, entry in value.items()) + "}"
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:.6g}" if isinstance(value, float) and value != int(value) else repr(value)


def _count(found: Any) -> int:
    return sum(len(cell.results) for cell in found.cells)
