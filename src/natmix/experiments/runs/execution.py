"""Seeds of a run, in batches or one after another, into a run directory."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from natmix.engine.batch_runner import BatchRunner
from natmix.engine.capacity import initial_capacity
from natmix.engine.checkpoint_schedule import CHECKPOINT_SECONDS
from natmix.engine.chunk_runner import ChunkRunner
from natmix.engine.clock import Clock
from natmix.engine.convergence import CHECK_EVERY
from natmix.engine.fit_loop import FitLoop
from natmix.engine.limits import Limits
from natmix.engine.memory import check_memory
from natmix.engine.runner import AbstractRunner
from natmix.engine.stacking import obstacle
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs.batch_choice import BatchChoice
from natmix.experiments.runs.checkpoint import load_records
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.runs.directory import ENVIRONMENT, SeedFiles, fingerprint, prepare, restore
from natmix.experiments.runs.environment import environment
from natmix.experiments.runs.loading import Run, load_run
from natmix.experiments.runs.rows import read_final
from natmix.experiments.runs.seed import Seed
from natmix.experiments.runs.watcher import Silence, Watcher
from natmix.files.generations import exists
from natmix.files.lock import lock
from natmix.files.saving import Saving
from natmix.files.seal import ENVIRONMENT as ENVIRONMENT_FORMAT
from natmix.files.sealed_json import write_sealed_json
from natmix.gaussians import family_named
from natmix.interrupts import Interrupt
from natmix.modules.state import State
from natmix.targets.failures import FAILURES

LOCKS = ".locks"
"""In a run directory: who runs which seed."""


@dataclasses.dataclass(frozen=True)
class RunOutcome:
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
) -> RunOutcome:
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
            `natmix.experiments.runs.batch_choice.faster_together`.
    """
    out, seeds, watcher = Path(out), list(seeds), watcher or Silence()
    check_budget(config)
    _check_memory(config, len(seeds) if together else 1)
    joint, where = prepare(out, config.to_json(), seeds), environment()
    run = fingerprint(joint)
    todo = [seed for seed in seeds if not is_finished(out, seed, config.limits, run)]
    for seed in seeds:
        if seed not in todo:
            watcher.skipped(seed)
    if todo:
        write_sealed_json(out / ENVIRONMENT, ENVIRONMENT_FORMAT, where)
    interrupt = Interrupt()
    saving = Saving(out, functools.partial(restore, out, joint, where))
    execution = _Execution(
        config, out, load, watcher, saving, checkpoint_seconds, keep_checkpoints, interrupt
    )
    with holding(out, todo), interrupt.watching():
        try:
            choice = BatchChoice(config, together)
            rest = execution.in_batches(todo, choice) if choice.at_first(len(todo)) else todo
            execution.apart(rest)
        except KeyboardInterrupt:  # the second one: the last checkpoint holds
            interrupt.asked = True
    saving.finish()
    return RunOutcome(load_run(out), interrupt.asked, tuple(execution.failed))


@contextlib.contextmanager
def holding(out: Path, seeds: Sequence[int]) -> Iterator[None]:
    """No other process may run these seeds meanwhile."""
    with contextlib.ExitStack() as held:
        for seed in seeds:
            if not held.enter_context(lock(out / LOCKS / f"seed-{seed}", wait=False)):
                raise ValueError(
                    f"Seed {seed} in {out} is being run by another process; wait for it, or choose other "
                    "--seeds or another --out."
                )
        yield


class _Execution:
    """Runs seeds one after another, or in batches."""

    def __init__(
        self,
        config: RunConfig,
        out: Path,
        load: Callable[[int], Problem],
        watcher: Watcher,
        saving: Saving,
        checkpoint_seconds: float,
        keep_checkpoints: bool,
        interrupt: Interrupt,
    ) -> None:
        self.failed: list[int] = []
        self._config, self._out, self._load, self._watcher = config, out, load, watcher
        self._checkpoint_seconds, self._keep = checkpoint_seconds, keep_checkpoints
        self._saving, self._interrupt = saving, interrupt
        self._most = config.algorithm.component_adaptation.most_components(config.components)

    def apart(self, seeds: Sequence[int]) -> None:
        """One seed after another, each with a clock of its own."""
        for number in seeds:
            if self._interrupt.asked:
                return
            seed = self._seed(number, Clock())
            self._run([seed], ChunkRunner(self._config.algorithm, seed.problem.target, self._most))

    def in_batches(self, seeds: Sequence[int], choice: BatchChoice) -> list[int]:
        """All that can be in batches; returns the seeds that are to go on apart.

        A batch has seeds at the same iteration, on a clock they share. Batches that have grown too large
        leave checkpoints, from which their seeds can go on.
        """
        problems = {seed: self._load(seed) for seed in seeds}
        self._load = problems.__getitem__
        reason = obstacle([p.target for p in problems.values()])
        if reason is not None:
            if choice.together:
                raise ValueError(f"These seeds cannot run together: {reason}; leave out --together.")
            return list(seeds)
        starts = {seed: self._stored_iterations(seed) for seed in seeds}
        rest: list[int] = []
        for start in sorted(set(starts.values())):
            numbers = [seed for seed in seeds if starts[seed] == start]
            alone = len(numbers) == 1 or self._interrupt.asked
            rest += numbers if alone else self._batch(numbers, choice, fresh=start == 0)
        return [seed for seed in seeds if seed in rest]

    def _batch(self, numbers: Sequence[int], choice: BatchChoice, fresh: bool) -> list[int]:
        """One batch; returns the seeds that are to go on apart."""
        clock = Clock()
        batch = [self._seed(number, clock) for number in numbers]
        if fresh:  # all spend what it takes to start, so that a limit ends them together
            with clock.pause():
                longest = max(seed.run.now() for seed in batch)
                for seed in batch:
                    seed.run.set_clock(longest)
        runner = BatchRunner(self._config.algorithm, [seed.problem.target for seed in batch], self._most)

        def going_on(states: Sequence[State]) -> bool:
            return choice.still(runner, states)

        if not going_on([seed.run.state for seed in batch]):
            return list(numbers)
        return self._run(batch, runner, going_on, may_part=choice.together is None)

    def _stored_iterations(self, number: int) -> int:
        """After how many iterations a seed goes on."""
        path = SeedFiles(self._out, number).checkpoint
        return load_records(path).progress["iterations"] if exists(path) else 0

    def _seed(self, number: int, clock: Clock) -> Seed:
        with clock.pause():
            problem = self._load(number)
        files = SeedFiles(self._out, number)
        return Seed(
            number,
            problem,
            self._config,
            files,
            clock,
            self._watcher,
            self._saving,
            self._checkpoint_seconds,
            self._keep,
        )

    def _run(
        self,
        seeds: Sequence[Seed],
        runner: AbstractRunner,
        going_on: Callable[[Sequence[State]], bool] = lambda states: True,
        may_part: bool = False,
    ) -> list[int]:
        """Run seeds in step until all have ended, or while ``going_on``; returns those that have not ended.

        An error of the runner, for example of memory, fails all of them; if they ``may_part`` they go on
        apart, from their last checkpoints.
        """
        for seed in seeds:
            seed.joined_by(len(seeds))
        rule_every = (CHECK_EVERY,) if self._config.limits.until_converged else ()
        loop = FitLoop(runner, [seed.run for seed in seeds], self._interrupt, rule_every, FAILURES)
        loop.run(going_on)
        if loop.failure is not None and not may_part:
            loop.fail_active()
        unfinished = [seed for seed in seeds if seed.run.stopped is None]
        if loop.failure is None and not loop.broken_off:
            for seed in unfinished:
                seed.checkpoint()
        self.failed += [seed.number for seed in seeds if seed.run.failure is not None]
        return [seed.number for seed in unfinished]


def check_budget(config: RunConfig) -> None:
    """Raise if the evaluations do not suffice for one iteration."""
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


def _check_memory(config: RunConfig, runs: int) -> None:
    dim = len(config.start.mean)
    slots = initial_capacity(config.algorithm, config.components, dim)
    family = family_named(config.covariance)
    check_memory([config.algorithm], family, dim, config.dtype, slots, runs)


def is_finished(out: Path, seed: int, limits: Limits, run: str | None = None) -> bool:
    """Whether there is nothing left to do for a seed under these limits.

    Args:
        out: the run directory.
        seed: its number.
        limits: of the run.
        run: the fingerprint of its configuration.
    """
    files = SeedFiles(out, seed)
    final = read_final(files.final, seed, run)
    if final is None:
        return False
    if final["limits"] == dataclasses.asdict(limits) or _reached(final, limits):
        return True
    if not exists(files.checkpoint):
        raise ValueError(
            f"Seed {seed} in {out} has finished under other limits and its checkpoint was not kept "
            "(--keep-checkpoints), so it cannot go on; choose another --out."
        )
    return False


def _reached(final: dict[str, Any], limits: Limits) -> bool:
    if limits.reached(final["iterations"], final["seconds"], final["compile_seconds"]) is not None:
        return True
    if limits.until is not None and final["neg_elbo"] <= limits.until:
        return True
    if limits.until_converged and final["stopped"] == "converged":
        return True
    most, before = limits.max_evaluations, final["limits"]["max_evaluations"]
    return final["stopped"] == "max_evaluations" and most is not None and most <= before
