"""``natmix run``: an algorithm on a test problem, over several seeds, into a run directory."""

from pathlib import Path
from typing import Annotated, Any

import typer

from natmix.cli.errors import one_sentence

_INTERRUPTED = 130


def run(
    problem: Annotated[str, typer.Argument(help="A test problem: see `natmix list`.")],
    algorithm: Annotated[str, typer.Option(help="Seven letters: see `natmix options`.")] = "samtron",
    seeds: Annotated[
        str, typer.Option(help="Which seeds to run, such as 7 or 0,3,5 or 0:10 (0 to 9).")
    ] = "0",
    preset: Annotated[
        str,
        typer.Option(
            help="Where the values of all other settings come from: fit (the defaults of natmix.fit), "
            "paper (the paper's Experiment 3) or paper-exp1 (its Experiment 1)."
        ),
    ] = "fit",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="MODULE.NAME=VALUE",
            help="Set a hyperparameter (component_stepsize.stepsize=0.05) or an option of the problem "
            "(problem.NAME=VALUE). May be given several times.",
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time limit of each seed, such as 90s, 10m or 2h. Without any limit it is 10m, or with a "
            "preset of the paper the paper's own.",
        ),
    ] = None,
    max_run_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time limit of each seed, not counting compilation.")
    ] = None,
    max_evals: Annotated[
        int | None, typer.Option(help="Limit on evaluations of the target, per seed.")
    ] = None,
    max_iters: Annotated[int | None, typer.Option(help="Limit on iterations, per seed.")] = None,
    until: Annotated[float | None, typer.Option(help="Stop a seed when its -ELBO is at most this.")] = None,
    until_converged: Annotated[
        bool, typer.Option(help="Stop a seed when its ELBO no longer rises, by the rule of natmix.fit.")
    ] = False,
    components: Annotated[
        int | None,
        typer.Option(
            help="Number of initial components. With preset fit: 1, or 32 if the algorithm adds none."
        ),
    ] = None,
    covariance: Annotated[
        str, typer.Option(help="Covariances of the components: full or diagonal.")
    ] = "full",
    dtype: Annotated[str, typer.Option(help="Precision: float32 or float64.")] = "float32",
    out: Annotated[
        Path | None, typer.Option(help="The run directory. Default: runs/PROBLEM-ALGORITHM[-PRESET].")
    ] = None,
    keep_checkpoints: Annotated[
        bool,
        typer.Option(help="Keep checkpoints of finished seeds too, to continue them with higher limits."),
    ] = False,
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--apart",
            help="Run the seeds together (they share the time) or one after another. Default: the faster.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Run an algorithm on a test problem and keep everything in a run directory.

    Repeat an interrupted command to resume it: finished seeds are skipped, interrupted ones continue.
    Time limits are in wall time with compilation, but without the time for ELBO estimates and checkpoints.
    """
    with one_sentence():
        import jax

        from natmix.cli.compilation_cache import use_compilation_cache
        from natmix.cli.overrides import parse_overrides
        from natmix.cli.run_progress import RunProgress
        from natmix.experiments import runs
        from natmix.experiments.problems.catalogue import words_of
        from natmix.experiments.runs.config import DTYPES, check_choice, parse_seconds, parse_seeds
        from natmix.experiments.runs.directory import check_possible

        overrides, options = parse_overrides(settings or [], words_of(problem))
        numbers = parse_seeds(seeds)
        seconds = None if max_time is None else parse_seconds(max_time)
        running = None if max_run_time is None else parse_seconds(max_run_time)
        limits = runs.Limits(seconds, max_evals, max_iters, until, running, until_converged)
        check_choice("dtype", dtype, DTYPES)
        check_possible(out or Path("runs"))
        if dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        use_compilation_cache()
        first = _load(problem, numbers[0], dtype, options)
        config = runs.configure(
            first,
            algorithm,
            preset=preset,
            overrides=overrides,
            components=components,
            covariance=covariance,
            dtype=dtype,
            limits=limits,
            problem_options=options,
        )
        folder = out or Path("runs") / _name(config)
        with RunProgress(quiet) as progress:
            outcome = runs.execute(
                config,
                numbers,
                folder,
                lambda seed: first if seed == numbers[0] else _load(problem, seed, dtype, options),
                watcher=progress,
                keep_checkpoints=keep_checkpoints,
                together=together,
            )
    _report(outcome, quiet)


def _load(problem: str, seed: int, dtype: str, options: dict[str, Any]) -> Any:
    import jax.numpy as jnp

    from natmix.experiments import problems

    return problems.load(problem, seed=seed, dtype=jnp.dtype(dtype), **options)


def _name(config: Any) -> str:
    suffix = "" if config.preset == "fit" else f"-{config.preset}"
    return f"{config.problem}-{config.algorithm.codename.lower()}{suffix}"


def _report(outcome: Any, quiet: bool) -> None:
    from natmix.cli.console import console, print_table
    from natmix.cli.run_table import ERRORS, failures, seeds_table

    if not quiet:
        print_table(seeds_table(outcome.run))
        console().print(ERRORS, soft_wrap=True)
        for line in failures(outcome.run):
            console().print(line, soft_wrap=True)
        console().print(f"The run is in {outcome.run.path}", soft_wrap=True)
    if outcome.interrupted:
        typer.echo("natmix: interrupted. Repeat the command to continue from there.", err=True)
        raise typer.Exit(_INTERRUPTED)
    if outcome.failed:
        which = ", ".join(map(str, outcome.failed))
        typer.echo(f"natmix: seeds that failed: {which}. Repeat the command to try them again.", err=True)
        raise typer.Exit(1)
