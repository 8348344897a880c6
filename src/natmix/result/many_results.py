"""The results of many fits of one model, one for each data set."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from natmix.estimate import counted
from natmix.result.result import Result

if TYPE_CHECKING:
    import pandas

_MAX_ROWS = 40


class ManyResults(Sequence["Result | None"]):
    """A list of results in the order of the data sets; printing it shows a table of verdicts.

    Attributes:
        seeds: of the fits.
        seconds: of wall time that each fit took.
        errors: what a fit raised, by its place; its result is None, or what it had reached.
    """

    def __init__(
        self,
        results: Sequence["Result | None"],
        seeds: Sequence[int],
        seconds: Sequence[float],
        errors: dict[int, Exception],
    ) -> None:
        self._results = list(results)
        self.seeds, self.seconds, self.errors = list(seeds), list(seconds), dict(errors)

    @overload
    def __getitem__(self, place: int) -> "Result | None": ...
    @overload
    def __getitem__(self, place: slice) -> "list[Result | None]": ...
    def __getitem__(self, place: int | slice) -> "Result | list[Result | None] | None":
        return self._results[place]

    def __len__(self) -> int:
        return len(self._results)

    def __iter__(self) -> Iterator["Result | None"]:
        return iter(self._results)

    @property
    def verdicts(self) -> list[str]:
        """One for each data set, as in `Diagnosis.verdict`; "failed" where there is no result."""
        return [str(row["verdict"]) for row in self.rows()]

    def rows(self) -> list[dict[str, Any]]:
        """The table: a dictionary for each data set."""
        return [self._row(i) for i in range(len(self))]

    def _row(self, i: int) -> dict[str, Any]:
        result, nan = self._results[i], float("nan")
        row: dict[str, Any] = {
            "seed": self.seeds[i],
            "verdict": "failed",
            "elbo": nan,
            "log_evidence": nan,
            "log_evidence_se": nan,
            "k_hat": nan,
            "components": 0,
            "evaluations": 0,
            "stopped": "failed",
            "seconds": self.seconds[i],
            "error": "",
        }
        if i in self.errors:
            error = self.errors[i]
            return row | {"error": f"{type(error).__name__}: {error}"}
        if result is None:
            return row
        row |= {
            "verdict": "none",
            "elbo": float(result.elbo.value),
            "components": result.mixture.num_components,
            "evaluations": result.counts.evaluations,
            "stopped": result.stopped,
        }
        found = result.diagnosis
        if found is None:
            return row
        evidence = found.log_evidence
        return row | {
            "verdict": found.verdict,
            "log_evidence": evidence.value,
            "log_evidence_se": evidence.standard_error,
            "k_hat": found.k_hat,
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame, its index the places of the data sets."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs pandas: pip install pandas.") from error
        return pandas.DataFrame(self.rows())

    def __str__(self) -> str:
        rows = self.rows()
        kinds = {kind: sum(row["verdict"] == kind for row in rows) for kind in self.verdicts}
        title = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items(), key=_by_number))
        lines = [f"{counted(len(self), 'fit')}: {title}" if rows else "0 fits"]
        lines.append("  data set  verdict      log Z                 k-hat  components  evaluations  seconds")
        shown = range(len(rows)) if len(rows) <= _MAX_ROWS else self._worst(rows)
        lines += [_line(i, rows[i], self._results[i]) for i in shown]
        if len(shown) < len(rows):
            left = len(rows) - len(shown)
            lines.append(f"  … and {counted(left, 'more fit')}: to_pandas() has them all")
        return "\n".join(lines)

    __repr__ = __str__

    def _worst(self, rows: list[dict[str, Any]]) -> list[int]:
        """As many as are shown: those not trusted first, in the order of the data sets."""
        chosen = sorted(range(len(rows)), key=lambda i: (rows[i]["verdict"] == "trust", i))[:_MAX_ROWS]
        return sorted(chosen)


def _by_number(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _line(i: int, row: dict[str, Any], result: "Result | None") -> str:
    if row["error"]:
        message = textwrap.shorten(row["error"], 90, placeholder=" …")
        return f"  {i:8}  {row['verdict']:11}  {message}"
    found = None if result is None else result.diagnosis
    evidence = "" if found is None else str(found.log_evidence)
    k_hat = f"{row['k_hat']:.2f}" if np.isfinite(row["k_hat"]) else "-"
    return (
        f"  {i:8}  {row['verdict']:11}  {evidence:20}  {k_hat:>5}  {row['components']:10}  "
        f"{row['evaluations']:11,}  {row['seconds']:7.2f}"
    )
