"""A result as HTML for notebooks; showing it does not evaluate the target."""

from typing import TYPE_CHECKING

from natmix.estimate import counted
from natmix.result.diagnosing import known_diagnosis
from natmix.result.summary import summary_variables, title
from natmix.result.summary_table import TITLES, table_rows
from natmix.text.html import block, folded, headline, html_table, paragraph, preformatted

if TYPE_CHECKING:
    from natmix.result.result import Result


def result_html(result: "Result") -> str:
    """How the fit ended, the verdict, numbers and variables; more is folded away."""
    mixture, counts = result.mixture, result.counts
    numbers = [
        ("ELBO", str(result.elbo)),
        (
            "mixture",
            f"{counted(mixture.num_components, 'component')}, {mixture.covariance_family} covariances",
        ),
        ("evaluations", f"{counts.evaluations:,} of the target"),
        ("time", f"{result.timings.total:.1f} s, {result.timings.compilation:.1f} s of it compiling"),
    ]
    found = known_diagnosis(result)
    if found is not None:
        numbers.insert(1, ("log evidence", str(found.log_evidence)))
    parts = [headline(title(result)), html_table(("", ""), numbers, (True, True))]
    if result.model is not None and result.draws is not None and len(result.draws) > 1:
        rows = table_rows(summary_variables(result, result.model, result.draws.x))
        full = [(*row, *[""] * (len(TITLES) - len(row))) for row in rows]
        parts.append(html_table(TITLES, full, (True, *[False] * (len(TITLES) - 1))))
    if found is not None:
        first, *lines = str(found).splitlines()
        parts += [headline(first), *map(paragraph, found.reasons)]
        parts.append(folded("what the verdict rests on", preformatted("\n".join(lines))))
    if result.notes:
        parts.append(folded(counted(len(result.notes), "note"), block(*map(paragraph, result.notes))))
    return block(*parts)
