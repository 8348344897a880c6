"""What ``natmix study run`` shows: a line for each trial that ends."""

from typing import Any

import typer


class StudyLines:
    """A `natmix.experiments.studies.client.StudyWatcher` that prints."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def settled(self, outcome: Any, progress: Any) -> None:
        """A trial has ended."""
        if self._quiet:
            return
        cell_at, position, seed_at = progress.study.positions(outcome.number)
        cell = progress.study.cells[cell_at]
        done = sum(len(each.outcomes) for each in progress.cells)
        total = sum(each.total for each in progress.cells) * len(progress.study.seeds)
        value = outcome.reason if outcome.value is None else f"{outcome.value:.5g}"
        typer.echo(
            f"{done}/{total}  trial {outcome.number}: {cell.codename} on {cell.problem}, setting {position}, "
            f"seed {progress.study.seeds[seed_at]}: {outcome.state}, {value} "
            f"({outcome.evaluations:,} evaluations, {outcome.seconds:.0f} s)",
            err=True,
        )

    def retried(self, number: int, why: str) -> None:
        """A trial is run again."""
        if not self._quiet:
            typer.echo(f"trial {number}: {why}; it is run again", err=True)
