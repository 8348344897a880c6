"""``natmix report``: one HTML file about a run, or about a saved result."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from rich.table import Table

    from natmix.experiments.runs import Run, SeedRun
    from natmix.report import RunContext
    from natmix.text.table import TextTable

_NAME = "report.html"


def report(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run directory of `natmix run`, a saved result, or a folder of checkpoints."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help=f"The HTML file. Default: RUN/{_NAME}, or beside the result.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed of a run to show. Default: the finished one of highest ELBO.")
    ] = None,
    title: Annotated[str, typer.Option(help="The headline.")] = "",
    samples: Annotated[
        int, typer.Option(min=100, help="Samples of a run's mixture at which its target is evaluated.")
    ] = 2000,
) -> None:
    """Write one HTML file: verdict, pairs of variables to look into, modes, weights, traces, settings.

    It needs no network and can be sent to others.
    """
    with one_sentence():
        from natmix.experiments.runs.directory import CONFIG

        if (path / CONFIG).is_file():
            written = _of_run(path, out or path / _NAME, seed, title, samples)
        else:
            written = _of_result(path, out, seed, title)
        typer.echo(f"The report is {written}")


def _of_result(path: Path, out: Path | None, seed: int | None, title: str) -> Path:
    from natmix.engine.fit_checkpoint import RESULT
    from natmix.result.result import Result

    if seed is not None:
        raise ValueError(f"--seed chooses a seed of a run, and {path} is none.")
    if path.is_dir():
        if not (path / RESULT).is_file():
            raise ValueError(
                f"{path} is no run directory and holds no result ({RESULT}): give a folder that `natmix run` "
                "wrote, or a file of Result.save."
            )
        return Result.load(path / RESULT).report(out or path / _NAME, title=title)
    return Result.load(path).report(out or path.with_suffix(".html"), title=title)


def _of_run(path: Path, out: Path, seed: int | None, title: str, samples: int) -> Path:
    import jax

    from natmix.experiments.runs import load_run
    from natmix.experiments.runs.seed_result import seed_result
    from natmix.report import write_report

    run = load_run(path)
    if run.config["dtype"] == "float64":
        jax.config.update("jax_enable_x64", True)
    chosen = _seed(run, seed)
    result, missing = seed_result(run, chosen, samples)
    heading = title or f"{run.problem}, {run.codename}, seed {chosen.seed}"
    return write_report(result, out, heading, _context(run, missing))


def _seed(run: "Run", wanted: int | None) -> "SeedRun":
    if wanted is not None:
        if wanted not in run.seeds:
            raise ValueError(f"{run.path} has no seed {wanted}, only {', '.join(map(str, run.seeds))}.")
        return run.seeds[wanted]
    if not run.finished:
        raise ValueError(f"No seed of {run.path} has finished yet; repeat `natmix run` to go on.")
    return min(run.finished.values(), key=lambda seed: (seed.final or {})["neg_elbo"])


def _context(run: "Run", missing: str) -> "RunContext":
    """What the run says about all of its seeds."""
    from natmix.cli.run_table import ERRORS, failures, metrics_table, seeds_table
    from natmix.report import RunContext, SeedCurve

    curves = tuple(
        SeedCurve(f"seed {n}", seed.metrics["evaluations"], seed.metrics["neg_elbo"])
        for n, seed in run.seeds.items()
        if len(seed.metrics.get("neg_elbo", ()))
    )
    tables = [_text_table("Seeds", seeds_table(run), (ERRORS, *failures(run)))]
    metrics = metrics_table(run)
    if metrics is not None:
        tables.append(_text_table("Metrics", metrics, ()))
    lacking = [
        "Searches for missed modes and Markov chains: a run makes none.",
        *([f"Importance weights, because the problem could not be loaded: {missing}"] if missing else []),
    ]
    return RunContext(_command(run), tuple(tables), curves, tuple(lacking))


def _command(run: "Run") -> str:
    """What repeats the run, as far as options can say it."""
    config, limits = run.config, run.config["limits"]
    seeds = ",".join(map(str, config["seeds"]))
    words = ["natmix", "run", run.problem, "--algorithm", run.codename.lower(), "--seeds", seeds]
    words += ["--preset", config["preset"], "--components", str(config["start"]["components"])]
    words += ["--covariance", config["covariance"], "--dtype", config["dtype"]]
    for option, name in (("--max-time", "max_seconds"), ("--max-run-time", "max_run_seconds")):
        words += [] if limits[name] is None else [option, f"{limits[name]:g}s"]
    counts = (("--max-evals", "max_evaluations"), ("--max-iters", "max_iterations"), ("--until", "until"))
    for option, name in counts:
        words += [] if limits[name] is None else [option, f"{limits[name]}"]
    words += ["--until-converged"] if limits["until_converged"] else []
    for option, value in config["problem"]["options"].items():
        words += ["--set", f"problem.{option}={value}"]
    for module, values in config["algorithm"]["settings"].items():
        if isinstance(values, dict):
            for name, value in values.items():
                words += [] if name == "option" else ["--set", f"{module}.{name}={_value(value)}"]
        else:
            words += ["--set", f"{module}={_value(values)}"]
    return " ".join(map(shlex.quote, words)).replace(" --", " \\\n    --")


def _value(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text_table(title: str, table: "Table", notes: tuple[str, ...]) -> "TextTable":
    from natmix.text.table import Column, TextTable

    columns = tuple(Column(str(c.header), words=c.justify != "right") for c in table.columns)
    rows = tuple(tuple(map(str, row)) for row in zip(*(c.cells for c in table.columns), strict=True))
    return TextTable(title, columns, rows, notes)
