"""What tables of several fits show of each: its verdict, log evidence and cost."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from natmix.text.extras import needs

if TYPE_CHECKING:
    import pandas

    from natmix.result.result import Result

_NAN = float("nan")
NO_FIT: dict[str, Any] = {
    "verdict": "failed",
    "elbo": _NAN,
    "log_evidence": _NAN,
    "log_evidence_se": _NAN,
    "k_hat": _NAN,
    "components": 0,
    "evaluations": 0,
    "stopped": "failed",
}
"""The row where there is no result."""


def verdict_row(result: "Result | None") -> dict[str, Any]:
    """The row of one fit; its diagnosis is made if it has not been."""
    if result is None:
        return dict(NO_FIT)
    row = NO_FIT | {
        "verdict": "none",
        "elbo": float(result.elbo.value),
        "components": result.mixture.num_components,
        "evaluations": result.counts.evaluations,
        "stopped": result.stopped,
    }
    found = result.diagnosis
    if found is None:
        return row
    return row | {
        "verdict": found.verdict,
        "log_evidence": found.log_evidence.value,
        "log_evidence_se": found.log_evidence.standard_error,
        "k_hat": found.k_hat,
    }


def data_frame(rows: Sequence[dict[str, Any]], index: Sequence[Any] | None = None) -> "pandas.DataFrame":
    """Rows as a data frame."""
    with needs("pandas", "arviz", "to_pandas()"):
        import pandas
    return pandas.DataFrame(list(rows), index=None if index is None else list(index))
