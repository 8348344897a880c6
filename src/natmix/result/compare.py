"""`natmix.compare`: models by their log evidences."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from natmix.estimate import Estimate, counted
from natmix.result.result import Result
from natmix.result.verdict_table import data_frame, verdict_row
from natmix.text.table import Column, TextTable

if TYPE_CHECKING:
    import pandas

UNRELIABLE = ("distrust", "undecided")
"""Verdicts by which the log evidence is not reliable."""
_COLUMNS = (
    Column("fit", words=True),
    Column("log Z"),
    Column("log Bayes factor"),
    Column("probability"),
    Column("verdict", words=True),
    Column("evaluations"),
)


class Comparison:
    """Models by their log evidences, the best first; printing it shows a table.

    Attributes:
        names: of the fits, in the order of the table.
        log_evidences: by importance sampling, as in `Diagnosis.log_evidence`.
        log_bayes_factors: against the fit of the largest log evidence.
        probabilities: of the models, equally probable before the data.
        verdicts: as in `Diagnosis.verdict`.
        evaluations: of each target.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        rows = {name: verdict_row(result) for name, result in results.items()}
        order = sorted(rows, key=lambda name: -rows[name]["log_evidence"])
        self.names = tuple(order)
        self.log_evidences = tuple(
            Estimate(rows[name]["log_evidence"], rows[name]["log_evidence_se"]) for name in order
        )
        self.verdicts = tuple(str(rows[name]["verdict"]) for name in order)
        self.evaluations = tuple(int(rows[name]["evaluations"]) for name in order)
        values, errors = np.array(self.log_evidences).T
        self.log_bayes_factors = _bayes_factors(values, errors)
        self.probabilities = _probabilities(values, errors)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def best(self) -> str:
        """The name of the fit with the largest log evidence."""
        return self.names[0]

    @property
    def unreliable(self) -> tuple[str, ...]:
        """Names of the fits whose log evidence is not reliable by their verdicts."""
        return tuple(
            name for name, verdict in zip(self.names, self.verdicts, strict=True) if verdict in UNRELIABLE
        )

    def rows(self) -> list[dict[str, Any]]:
        """The table: a dictionary for each fit."""
        return [
            {
                "log_evidence": self.log_evidences[i].value,
                "log_evidence_se": self.log_evidences[i].standard_error,
                "log_bayes_factor": self.log_bayes_factors[i].value,
                "log_bayes_factor_se": self.log_bayes_factors[i].standard_error,
                "probability": self.probabilities[i].value,
                "probability_se": self.probabilities[i].standard_error,
                "verdict": self.verdicts[i],
                "reliable": self.verdicts[i] not in UNRELIABLE,
                "evaluations": self.evaluations[i],
            }
            for i in range(len(self))
        ]

    def to_pandas(self) -> "pandas.DataFrame":
        """The table as a data frame, its index the names."""
        return data_frame(self.rows(), self.names)

    def table(self) -> TextTable:
        """The table as text."""
        rows = [
            (
                name,
                str(self.log_evidences[i]),
                str(self.log_bayes_factors[i]) if i else "0",
                self.probabilities[i].percent(),
                self.verdicts[i] + (" !" if self.verdicts[i] in UNRELIABLE else ""),
                f"{self.evaluations[i]:,}",
            )
            for i, name in enumerate(self.names)
        ]
        notes = []
        if "unsearched" in self.verdicts:
            notes.append("The log evidence of an unsearched fit holds if it misses no mode.")
        if self.unreliable:
            notes.append(
                "! The log evidence is not reliable by the verdict, nor is what rests on it: see "
                f"result.diagnosis of {', '.join(self.unreliable)}."
            )
        return TextTable(
            f"{counted(len(self), 'model')} by log evidence", _COLUMNS, tuple(rows), tuple(notes)
        )

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()


def compare(results: Sequence[Result] | Mapping[str, Result]) -> Comparison:
    """Compare models of the same data by their log evidences.

    The table has log evidences and log Bayes factors against the best model with their standard errors,
    posterior probabilities of the models (equally probable a priori), verdicts and evaluations. Fits whose
    verdict says that their log evidence is not reliable are marked.

    Args:
        results: at least two results of fits to the same data, in a list or by name. The log densities must
            hold all constants, as those of NumPyro, PyMC and Stan models do.

    Raises:
        ValueError: they cannot be compared.
    """
    return Comparison(_checked(results))


def _checked(results: Any) -> dict[str, Result]:
    if isinstance(results, Mapping):
        named = {str(name): result for name, result in results.items()}
    elif isinstance(results, Sequence) and not isinstance(results, (str, bytes)):
        named = {f"fit {i}": result for i, result in enumerate(results)}
    else:
        raise ValueError(
            "compare() takes several results, in a list or by name: compare({'one': fit, 'other': another}), "
            f"got {type(results).__name__}."
        )
    for name, result in named.items():
        if not isinstance(result, Result):
            raise ValueError(f"compare() takes results of natmix.fit, but {name} is {type(result).__name__}.")
    if len(named) < 2:
        raise ValueError(f"compare() needs at least two results, got {len(named)}.")
    for name, result in named.items():
        found = result.diagnosis
        if found is None:
            raise ValueError(
                f"{name} has no log evidence, because it has no samples: fit with elbo_samples=2000."
            )
        if np.isnan(found.log_evidence.value):
            raise ValueError(f"{name} has no log evidence: see its result.diagnosis, and leave it out.")
    if all(result.diagnosis.log_evidence.value == -np.inf for result in named.values() if result.diagnosis):
        raise ValueError("No sample of any fit has a positive density: there is nothing to compare.")
    return named


def _bayes_factors(values: Float[np.ndarray, " M"], errors: Float[np.ndarray, " M"]) -> tuple[Estimate, ...]:
    """Against the first; the errors of two log evidences are independent."""
    both = np.hypot(errors, errors[0])
    both[0] = 0.0
    return tuple(Estimate(float(v), float(e)) for v, e in zip(values - values[0], both, strict=True))


def _probabilities(values: Float[np.ndarray, " M"], errors: Float[np.ndarray, " M"]) -> tuple[Estimate, ...]:
    """Shares of the evidence, with errors to first order: dp_i = p_i (dl_i - sum_j p_j dl_j)."""
    shares = np.exp(values - logsumexp(values))
    slopes = shares[:, None] * (np.eye(len(values)) - shares)
    spread = np.sqrt((slopes**2) @ np.where(shares > 0, errors, 0.0) ** 2)
    return tuple(Estimate(float(p), float(e)) for p, e in zip(shares, spread, strict=True))
