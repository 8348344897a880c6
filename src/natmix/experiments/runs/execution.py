"""The loop: seeds of a run, chunk by chunk, until each meets a limit."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from natmix.engine.chunk_runner import ChunkResult
from natmix.engine.fit_loop import gist
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.batch import Together, obstacle
from natmix.experiments.runs.checkpoint import stored_iterations
from natmix.experiments.runs.choice import Choice
from natmix.experiments.runs.clock import Clock
from natmix.experiments.runs.config import Limits, RunConfig
from natmix.experiments.runs.directory import ENVIRONMENT, SeedFiles, prepare
from natmix.experiments.runs.environment import environment
from natmix.experiments.runs.loading import Run, load_run, read_final
from natmix.experiments.runs.lock import lock
from natmix.experiments.runs.seed import CHECKPOINT_SECONDS, SeedJob, Snapshot
from natmix.experiments.runs.stepper import Alone, Stepper
from natmix.files import write_json
from natmix.interrupts import Interrupt
from natmix.modules.state import State
from natmix.targets import TargetError

LOCKS = ".locks"
"""In a run directory: who runs which seed."""


class Watcher(Protocol):
    """Is told how a run goes."""

    def skipped(self, seed: int) -> None:
        """The seed had finished before."""

    def began(self, seed: int, resumed_at: int, anew: bool) -> None:
        """The seed starts (``anew``: again, it left no checkpoint), or goes on after so many iterations."""

    def update(self, snapshot: Snapshot) -> None:
        """After every chunk."""

    def finished(self, snapshot: Snapshot, final: dict[str, Any]) -> None:
        """The seed has its final numbers."""

    def failed(self, seed: int, error: str) -> None:
        """The seed could not go on."""


class Silence:
    """A watcher that does nothing."""

    def skipped(self, seed: int) -> None: ...
    def began(self, seed: int, resumed_at: int, anew: bool) -> None: ...
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
    together: bool | None = None,
) -> Outcome:
    """Run seeds, together or one after another, and write a run directory.

    Finished seeds are skipped, unfinished ones go on from their checkpoint. The limits may be raised
    later for seeds whose checkpoints were kept.

    Seeds that run together share a clock: a second counts for each of them. Their numbers are those of
    the same seeds alone but for rounding.

    Args:
        config: what to run.
        seeds: which seeds.
        out: the run directory, new or of the same configuration.
        load: the problem of a seed.
        watcher: is told how it goes.
        checkpoint_seconds: between checkpoints; more if they take long, and at most 10 before the first.
        keep_checkpoints: also of finished seeds.
        together: whether seeds run at once (`jax.vmap`); if left out, while that is faster by the rule of
            `natmix.experiments.runs.choice.faster_together`.
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
    interrupt = Interrupt()
    work = _Work(config, out, load, watcher, checkpoint_seconds, keep_checkpoints, interrupt)
    with _holding(out, todo), interrupt.watching(), _stopping_when_asked(interrupt):
        try:
            choice = Choice(config, together)
            rest = work.together(todo, choice) if choice.at_first(len(todo)) else todo
            work.apart(rest)
        except KeyboardInterrupt:  # the second one, in the midst of a chunk: the last checkpoint holds
            interrupt.asked = True
    return Outcome(load_run(out), interrupt.asked, tuple(work.failed))


@contextlib.contextmanager
def _holding(out: Path, seeds: Sequence[int]) -> Iterator[None]:
    """No other process may run these seeds meanwhile."""
    with contextlib.ExitStack() as held:
        for seed in seeds:
            if not held.enter_context(lock(out / LOCKS / f"seed-{seed}", wait=False)):
                raise ValueError(
                    f"Seed {seed} in {out} is being run by another process; wait for it, or choose other "
                    "--seeds or another --out."
                )
        yield


class _Work:
    """Runs seeds one after another, or in groups that advance in step."""

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        load: Callable[[int], Problem],
        watcher: Watcher,
        checkpoint_seconds: float,
        keep_checkpoints: bool,
        interrupt: Interrupt,
    ) -> None:
        self.failed: list[int] = []
        self._config, self._out, self._load, self._watcher = config, out, load, watcher
        self._checkpoint_seconds, self._keep = checkpoint_seconds, keep_checkpoints
        self._interrupt = interrupt

    def apart(self, seeds: Sequence[int]) -> None:
        """One seed after another, each with a clock of its own."""
        for seed in seeds:
            if self._interrupt.asked:
                return
            job = self._job(seed, Clock())
            stepper = Alone(self._config.algorithm, job.problem.target, self._config.components)
            self._run([job], stepper)

    def together(self, seeds: Sequence[int], choice: Choice) -> list[int]:
        """All that can be in groups; returns the seeds that are to go on apart.

        A group has seeds at the same iteration, on a clock they share. Groups that have grown too large
        leave checkpoints, from which their seeds can go on.
        """
        problems = {seed: self._load(seed) for seed in seeds}
        self._load = problems.__getitem__
        reason = obstacle([p.target for p in problems.values()])
        if reason is not None:
            if choice.together:
                raise ValueError(f"These seeds cannot run together: {reason}; leave out --together.")
            return list(seeds)
        starts = {seed: stored_iterations(SeedFiles(self._out, seed).checkpoint) for seed in seeds}
        rest: list[int] = []
        for start in sorted(set(starts.values())):
            members = [seed for seed in seeds if starts[seed] == start]
            if len(members) == 1 or self._interrupt.asked:
                rest += members
                continue
            clock = Clock()
            jobs = [self._job(seed, clock) for seed in members]
            if start == 0:  # all spend what it takes to begin, so that a limit ends them together
                longest = max(job.seconds for job in jobs)
                for job in jobs:
                    job.catch_up(longest)
            stepper = Together(
                self._config.algorithm, [job.problem.target for job in jobs], self._config.components
            )

            def going_on(states: Sequence[State], stepper: Together = stepper) -> bool:
                return choice.still(stepper, states)

            if going_on([job.state for job in jobs]):
                rest += self._run(jobs, stepper, going_on, may_part=choice.together is None)
            else:
                rest += members
        return [seed for seed in seeds if seed in rest]

    def _job(self, seed: int, clock: Clock) -> SeedJob:
        with clock.pause():
            problem = self._load(seed)
        files = SeedFiles(self._out, seed)
        return SeedJob(seed, problem, self._config, files, clock, self._checkpoint_seconds)

    def _run(
        self,
        jobs: Sequence[SeedJob],
        stepper: Stepper,
        going_on: Callable[[Sequence[State]], bool] = lambda states: True,
        may_part: bool = False,
    ) -> list[int]:
        for job in jobs:
            job.progress.seeds_together = max(job.progress.seeds_together, len(jobs))
            self._watcher.began(job.seed, job.progress.iterations, job.anew)
        ended = _run_group(jobs, stepper, self._interrupt, self._watcher, self._keep, going_on, may_part)
        self.failed += ended.failed
        return ended.unfinished


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


class _Ended(NamedTuple):
    """How a group ended: which seeds failed, and which have only a checkpoint."""

    failed: list[int]
    unfinished: list[int]


def _run_group(
    jobs: Sequence[SeedJob],
    stepper: Stepper,
    interrupt: Interrupt,
    watcher: Watcher,
    keep: bool,
    going_on: Callable[[Sequence[State]], bool],
    may_part: bool,
) -> _Ended:
    """Run seeds side by side until all have stopped, or while they are to go on so.

    An error, for example of memory, fails the whole group; if it ``may_part`` its seeds go on apart, from
    their last checkpoints.
    """
    active = list(jobs)
    failed: list[int] = []
    while active and not interrupt.asked and going_on([job.state for job in active]):
        before, compiled = _clocks(active), stepper.compile_seconds
        iterations = min(job.chunk_length() for job in active)
        try:
            chunks = stepper.advance(
                [job.state for job in active], iterations, [job.budget() for job in active]
            )
        except _FAILURES as error:  # it took the states of the whole group with it
            if may_part:
                return _Ended(failed, [job.seed for job in active])
            for job in active:
                _fail(job, error, watcher)
            return _Ended([*failed, *(job.seed for job in active)], [])
        compiling, after = stepper.compile_seconds - compiled, _clocks(active)
        for job, chunk, began, ended in zip(active, chunks, before, after, strict=True):
            try:
                _take(job, chunk, (began, ended), compiling, watcher, keep)
            except _FAILURES as error:
                _fail(job, error, watcher)
                failed.append(job.seed)
        active = [job for job in active if job.stopped is None]
    for job in active:
        job.checkpoint()
    return _Ended(failed, [job.seed for job in active])


def _clocks(jobs: Sequence[SeedJob]) -> list[float]:
    """What their clocks show at one moment: seeds that share a limit of time reach it together."""
    with jobs[0].clock.pause():
        return [job.seconds for job in jobs]


def _take(
    job: SeedJob,
    chunk: ChunkResult,
    between: tuple[float, float],
    compiling: float,
    watcher: Watcher,
    keep: bool,
) -> None:
    """A chunk of one seed, and its end if that was the last one."""
    job.took(chunk, *between, compiling)
    watcher.update(job.snapshot())
    if job.stopped is not None:
        final = job.finish(keep)
        watcher.finished(job.snapshot(), final)


def _fail(job: SeedJob, error: Exception, watcher: Watcher) -> None:
    message = str(error) if isinstance(error, TargetError) else f"An iteration failed: {gist(error)}"
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
    final = read_final(files.final)
    if final is None:
        return False
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
    running = final["seconds"] - final["compile_seconds"]
    if limits.max_run_seconds is not None and running >= limits.max_run_seconds:
        return True
    most, before = limits.max_evaluations, final["limits"]["max_evaluations"]
    return final["stopped"] == "max_evaluations" and most is not None and most <= before
