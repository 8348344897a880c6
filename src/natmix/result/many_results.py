"""The results of many fits of one model, one for each data set."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from natmix.estimate import counted
from natmix.result.result import Result
from natmix.result.verdict_table import data_frame, verdict_row
from natmix.text.table import Column, TextTable

if TYPE_CHECKING:
    import pandas

_MAX_ROWS = 40
_COLUMNS = (
    Column("data set"),
    Column("verdict", words=True),
    Column("log Z", words=True),
    *(Column(title) for title in ("k-hat", "components", "evaluations", "seconds")),
)


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
        error = self.errors.get(i)
        found = verdict_row(None if error is not None else self._results[i])
        message = "" if error is None else f"{type(error).__name__}: {error}"
        return {"seed": self.seeds[i], **found, "seconds": self.seconds[i], "error": message}

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame, its index the places of the data sets."""
        return data_frame(self.rows())

    def table(self) -> TextTable:
        """The table as text; of many fits those not trusted come first."""
        rows = self.rows()
        kinds = {kind: sum(row["verdict"] == kind for row in rows) for kind in self.verdicts}
        title = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items(), key=_by_number))
        shown = list(range(len(rows))) if len(rows) <= _MAX_ROWS else self._worst(rows)
        left = len(rows) - len(shown)
        return TextTable(
            f"{counted(len(self), 'fit')}: {title}" if rows else "0 fits",
            _COLUMNS,
            tuple(_cells(i, rows[i], self._results[i]) for i in shown),
            (f"… and {counted(left, 'more fit')}: to_pandas() has them all",) if left else (),
        )

    def __str__(self) -> str:
        return self.table().text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.table().html()

    def _worst(self, rows: list[dict[str, Any]]) -> list[int]:
        """As many as are shown: those not trusted first, in the order of the data sets."""
        chosen = sorted(range(len(rows)), key=lambda i: (rows[i]["verdict"] == "trust", i))[:_MAX_ROWS]
        return sorted(chosen)


def _by_number(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _cells(i: int, row: dict[str, Any], result: "Result | None") -> tuple[str, ...]:
    if row["error"]:
        return str(i), row["verdict"], textwrap.shorten(row["error"], 90, placeholder=" …")
    found = None if result is None else result.diagnosis
    return (
        str(i),
        row["verdict"],
        "" if found is None else str(found.log_evidence),
        f"{row['k_hat']:.2f}" if np.isfinite(row["k_hat"]) else "-",
        str(row["components"]),
        f"{row['evaluations']:,}",
        f"{row['seconds']:.2f}",
    )
