"""What advances the states of the seeds of a group."""

from collections.abc import Sequence
from typing import Protocol

from natmix.engine.chunk_runner import ChunkResult, Runner
from natmix.gmmvi import GMMVI
from natmix.modules.state import State
from natmix.targets import AbstractTarget


class Stepper(Protocol):
    """Advances several seeds at once.

    Attributes:
        compile_seconds: spent tracing and compiling so far.
    """

    compile_seconds: float

    def advance(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[ChunkResult]:
        """At most ``iterations`` more steps of each state, within its budget of evaluations.

        The states are those last returned, less the ones whose seed has finished.
        """


class Alone:
    """A stepper for one seed.

    Seeds that run one after another share their compiled programs, because a target's data are
    arguments of the program.
    """

    def __init__(self, algorithm: GMMVI, target: AbstractTarget, start_components: int) -> None:
        most = algorithm.component_adaptation.most_components(start_components)
        self._runner = Runner(algorithm, target, most)

    @property
    def compile_seconds(self) -> float:
        """Spent tracing and compiling so far."""
        return self._runner.compile_seconds

    @compile_seconds.setter
    def compile_seconds(self, value: float) -> None:
        self._runner.compile_seconds = value

    def advance(
        self, states: Sequence[State], iterations: int, budgets: Sequence[int | None]
    ) -> list[ChunkResult]:
        """At most ``iterations`` more steps of the one state."""
        (state,), (budget,) = states, budgets
        return [self._runner.advance(state, iterations, budget)]
