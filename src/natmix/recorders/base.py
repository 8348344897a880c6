"""What the recorders have in common: numbers while a fit runs, and its verdict at the end."""

import abc
import math
from collections.abc import Mapping
from typing import Any

from natmix.engine.snapshot import FitSnapshot
from natmix.estimate import Estimate
from natmix.result.diagnosing import known_diagnosis
from natmix.result.result import Result

_NUMBERS = ("elbo", "kl", "components", "evaluations", "seconds")


class AbstractFitLog(abc.ABC):
    """A callback of `natmix.fit` that logs elsewhere.

    While the fit runs it logs ``natmix/elbo``, ``natmix/kl`` (estimates of KL(q || p) by the samples of the
    iterations), ``natmix/components``, ``natmix/evaluations`` and ``natmix/seconds``, at the iteration as the
    step. At the end it logs the final ELBO, log evidence and verdict with the settings of the fit, and closes
    what it has opened. Numbers that are not finite are left out. After an error of its own callback or an
    exception that is not the target's nothing is closed; `close` does it.
    """

    def __init__(self) -> None:
        self._open = False

    def __call__(self, snapshot: FitSnapshot) -> None:
        """Log the numbers of a snapshot."""
        self._ensure_open()
        numbers = {f"natmix/{name}": float(getattr(snapshot, name)) for name in _NUMBERS}
        self._log(_finite(numbers), snapshot.iteration)

    def finished(self, result: Result) -> None:
        """Log how the fit has ended; `natmix.fit` calls it."""
        self._ensure_open()
        try:
            self._end(_finite(final_numbers(result)), final_words(result), result)
        finally:
            self.close(failed=result.stopped == "failed")

    def close(self, failed: bool = False) -> None:
        """Close what was opened; another fit opens it again."""
        if self._open:
            self._open = False
            self._stop(failed)

    def _ensure_open(self) -> None:
        if not self._open:
            self._start()
            self._open = True

    @abc.abstractmethod
    def _start(self) -> None:
        """Open the log."""

    @abc.abstractmethod
    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        """Log numbers by name."""

    @abc.abstractmethod
    def _end(self, numbers: Mapping[str, float], words: Mapping[str, str], result: Result) -> None:
        """Log the final numbers, and the verdict with its reasons."""

    @abc.abstractmethod
    def _stop(self, failed: bool) -> None:
        """Close the log."""


def final_numbers(result: Result) -> dict[str, float]:
    """The numbers at the end of a fit by name; no evaluation is made for them."""
    numbers = {
        "natmix/final/elbo": float(result.elbo.value),
        "natmix/final/components": float(result.mixture.num_components),
        "natmix/final/evaluations": float(result.counts.evaluations),
        "natmix/final/seconds": float(result.timings.total),
    }
    found = known_diagnosis(result)
    if found is None:
        return numbers
    gap: Estimate = found.gap
    return numbers | {
        "natmix/final/kl": float(gap.value),
        "natmix/final/log_evidence": float(found.log_evidence.value),
        "natmix/final/k_hat": float(found.k_hat),
        "natmix/final/trusted": float(found.trusted),
    }


def final_words(result: Result) -> dict[str, str]:
    """The verdict, its reasons, why the fit ended, and the summary."""
    found = known_diagnosis(result)
    return {
        "verdict": "none" if found is None else found.verdict,
        "reasons": "" if found is None else " ".join(found.reasons),
        "stopped": result.stopped,
        "algorithm": result.algorithm.codename,
        "notes": " ".join(result.notes),
    }


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of a fit by dotted name."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat_settings(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _finite(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
