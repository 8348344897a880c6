"""``natmix show``: the configuration of a run, how its seeds ended, and their metrics."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from rich.table import Table

    from natmix.experiments.runs import Run


_ENOUGH = 0.01


def show(path: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]) -> None:
    """Show a run's configuration, how its seeds ended, and their metrics."""
    with one_sentence():
        from natmix.cli.console import console, print_table
        from natmix.cli.run_table import ERRORS, failures, metrics_table, seeds_table
        from natmix.experiments.runs import load_run

        run = load_run(path)
        where = console()
        where.print(_facts(run))
        where.print()
        print_table(seeds_table(run))
        metrics = metrics_table(run)
        if metrics is not None:
            where.print()
            print_table(metrics)
        where.print(ERRORS, soft_wrap=True)
        for line in (*failures(run), *_remarks(run)):
            where.print(line, soft_wrap=True)


def _facts(run: "Run") -> "Table":
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    config, start = run.config, run.config["start"]
    options = "".join(f", {k} = {v}" for k, v in config["problem"]["options"].items())
    table.add_row("problem", f"{run.problem}{options}")
    table.add_row("algorithm", f"{run.codename}, preset {config['preset']}")
    for module, values in config["algorithm"]["settings"].items():
        table.add_row(f"  {module}", _values(values))
    K = start["components"]
    table.add_row(
        "start",
        f"{K} component{'s' if K > 1 else ''}, means {_vector(start['mean'])} "
        f"± {_vector(start['mean_scale'])}, variances {_vector(start['variance'])}",
    )
    table.add_row("computation", f"{config['covariance']} covariances, {config['dtype']}")
    table.add_row("limits", ", ".join(f"{k} = {v:,g}" for k, v in config["limits"].items() if v is not None))
    where = run.environment
    if where:
        versions = ", ".join(f"{k} {where.get(k)}" for k in ("natmix", "python", "jax"))
        table.add_row("environment", f"{where.get('device')}; {versions}; {where.get('written')}")
    return table


def _values(values: Any) -> str:
    if not isinstance(values, dict):
        return f"{values:g}"
    return ", ".join(f"{k} = {_value(v)}" if k != "option" else str(v) for k, v in values.items())


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _vector(values: list[float]) -> str:
    return f"{values[0]:g}" if len(set(values)) == 1 else "(" + ", ".join(f"{v:g}" for v in values) + ")"


def _remarks(run: "Run") -> list[str]:
    """Which metrics are missing, each once."""
    lines: dict[str, None] = {}
    for seed in run.seeds.values():
        final = seed.final or {}
        for name, why in final.get("missing_metrics", {}).items():
            lines[f"{name} is missing: {why}"] = None
        if "metrics_error" in final:
            lines[f"seed {seed.seed}: the metrics could not be computed: {final['metrics_error']}"] = None
    few = [n for n, seed in run.finished.items() if _rests_on_few(seed.final or {})]
    if few:
        which = "seed" if len(few) == 1 else "seeds"
        lines[
            f"log_evidence of {which} {', '.join(map(str, few))} depends on few samples (reverse_ess below "
            f"{_ENOUGH:.0%}). Its error can be many times the one given, and it is usually too low."
        ] = None
    return list(lines)


def _rests_on_few(final: dict[str, Any]) -> bool:
    """Whether log Z rests on a handful of samples."""
    share = final.get("reverse_ess")
    return final.get("log_evidence") is not None and share is not None and not share >= _ENOUGH
