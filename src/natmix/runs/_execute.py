"""The loop: seeds of a run, chunk by chunk, until each meets a limit."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import jax.numpy as jnp

from natmix._fit import _gist
from natmix._interrupt import Interrupt
from natmix._run import ChunkResult
from natmix.problems._base import Problem
from natmix.runs._atomic import write_json
from natmix.runs._clock import Clock
from natmix.runs._config import Limits, RunConfig
from natmix.runs._directory import ENVIRONMENT, SeedFiles, prepare, read_json
from natmix.runs._environment import environment
from natmix.runs._load import Run, load_run
from natmix.runs._seed import CHECKPOINT_SECONDS, SeedJob, Snapshot
from natmix.runs._stepper import Alone, Stepper
from natmix.targets import TargetError


class Watcher(Protocol):
    """Is told how a run goes."""

    def skipped(self, seed: int) -> None:
        """The seed had finished before."""

    def began(self, seed: int, resumed_at: int) -> None:
        """The seed starts, or goes on after so many iterations."""

    def update(self, snapshot: Snapshot) -> None:
        """After every chunk."""

    def finished(self, snapshot: Snapshot, final: dict[str, Any]) -> None:
        """The seed has its final numbers."""

    def failed(self, seed: int, error: str) -> None:
        """The seed could not go on."""


class Silence:
    """A watcher that does nothing."""

    def skipped(self, seed: int) -> None: ...
    def began(self, seed: int, resumed_at: int) -> None: ...
    def update(self, snapshot: Snapshot) -> None: ...
    def finished(self, snapshot: Snapshot, final: dict[str, Any]) -> None: ...
    def failed(self, seed: int, error: str) -> None: ...


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a call of `execute` ended.

    Attributes:
        run: the run directory, read again.
        interrupted: whether Ctrl-C (or SIGTERM) ended it; the same call goes on from there.
        failed: seeds that could not go on.
    """

    run: Run
    interrupted: bool
    failed: tuple[int, ...]


def execute(
    config: RunConfig,
    seeds: Iterable[int],
    out: str | Path,
    load: Callable[[int], Problem],
    *,
    watcher: Watcher | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep_checkpoints: bool = False,
) -> Outcome:
    """Run seeds one after another and write a run directory.

    Finished seeds are skipped, unfinished ones go on from their checkpoint. The limits may be raised
    later for seeds whose checkpoints were kept.

    Args:
        config: what to run.
        seeds: which seeds.
        out: the run directory, new or of the same configuration.
        load: the problem of a seed.
        watcher: is told how it goes.
        checkpoint_seconds: between checkpoints; more if they take long.
        keep_checkpoints: also of finished seeds.
    """
    out, seeds, watcher = Path(out), list(seeds), watcher or Silence()
    _check_budget(config)
    prepare(out, config.to_json(), seeds)
    todo = [seed for seed in seeds if not _finished(out, seed, config.limits)]
    for seed in seeds:
        if seed not in todo:
            watcher.skipped(seed)
    if todo:
        write_json(out / ENVIRONMENT, environment())
    failed: list[int] = []
    interrupt = Interrupt()
    with interrupt.watching(), _stopping_when_asked(interrupt):
        try:
            for seed in todo:
                if interrupt.asked:
                    break
                # A group of one; seeds that run together would share a clock and a stepper.
                clock = Clock()
                files = SeedFiles(out, seed)
                with clock.pause():
                    problem = load(seed)
                job = SeedJob(seed, problem, config, files, clock, checkpoint_seconds)
                stepper = Alone(config.algorithm, problem.target, config.components)
                watcher.began(seed, job.progress.iterations)
                failed += _run_group([job], stepper, interrupt, watcher, keep_checkpoints)
        except KeyboardInterrupt:  # the second one, in the midst of a chunk: the last checkpoint holds
            interrupt.asked = True
    return Outcome(load_run(out), interrupt.asked, tuple(failed))


@contextlib.contextmanager
def _stopping_when_asked(interrupt: Interrupt) -> Iterator[None]:
    """SIGTERM, with which batch systems announce the end, is like the first Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, frame: object) -> None:
        interrupt.asked = True

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


_FAILURES = (TargetError, RuntimeError, ValueError)
"""What a target, or a compiled step, may raise."""


def _run_group(
    jobs: Sequence[SeedJob], stepper: Stepper, interrupt: Interrupt, watcher: Watcher, keep: bool
) -> list[int]:
    """Run seeds side by side until all have stopped; returns those that failed."""
    active = list(jobs)
    failed: list[int] = []
    while active and not interrupt.asked:
        before, compiled = [job.seconds for job in active], stepper.compile_seconds
        iterations = min(job.chunk_length() for job in active)
        try:
            chunks = stepper.advance(
                [job.state for job in active], iterations, [job.budget() for job in active]
            )
        except _FAILURES as error:  # it took the states of the whole group with it
            for job in active:
                _fail(job, error, watcher)
            return [*failed, *(job.seed for job in active)]
        compiling = stepper.compile_seconds - compiled
        for job, chunk, began in zip(active, chunks, before, strict=True):
            try:
                _take(job, chunk, began, compiling, watcher, keep)
            except _FAILURES as error:
                _fail(job, error, watcher)
                failed.append(job.seed)
        active = [job for job in active if job.stopped is None]
    for job in active:
        job.checkpoint()
    return failed


def _take(
    job: SeedJob, chunk: ChunkResult, began: float, compiling: float, watcher: Watcher, keep: bool
) -> None:
    """A chunk of one seed, and its end if that was the last one."""
    job.took(chunk, began, compiling)
    watcher.update(job.snapshot())
    if job.stopped is not None:
        final = job.finish(keep)
        watcher.finished(job.snapshot(), final)


def _fail(job: SeedJob, error: Exception, watcher: Watcher) -> None:
    message = str(error) if isinstance(error, TargetError) else f"An iteration failed: {_gist(error)}"
    job.fail(message)
    watcher.failed(job.seed, message)


def _check_budget(config: RunConfig) -> None:
    limit = config.limits.max_evaluations
    if limit is None:
        return
    components = jnp.asarray(config.components, jnp.int32)
    needed = int(config.algorithm.sample_selector.next_draws_at_most(components))
    if needed > limit:
        raise ValueError(
            f"{limit:,} evaluations are not enough: the first iteration needs {needed:,}; allow more, "
            "or lower sample_selector.desired_samples."
        )


def _finished(out: Path, seed: int, limits: Limits) -> bool:
    """Whether there is nothing left to do for a seed under these limits."""
    files = SeedFiles(out, seed)
    if not files.final.is_file():
        return False
    final = read_json(files.final)
    if final["limits"] == dataclasses.asdict(limits) or _reached(final, limits):
        return True
    if not files.checkpoint.is_file():
        raise ValueError(
            f"Seed {seed} in {out} has finished under other limits and its checkpoint was not kept "
            "(--keep-checkpoints), so it cannot go on; choose another --out."
        )
    return False


def _reached(final: dict[str, Any], limits: Limits) -> bool:
    spent = {"max_seconds": "seconds", "max_iterations": "iterations"}
    if any(getattr(limits, k) is not None and final[v] >= getattr(limits, k) for k, v in spent.items()):
        return True
    if limits.until is not None and final["neg_elbo"] <= limits.until:
        return True
    most, before = limits.max_evaluations, final["limits"]["max_evaluations"]
    return final["stopped"] == "max_evaluations" and most is not None and most <= before
