"""Numbers and Markdown tables as text."""

import math
from collections.abc import Iterable, Sequence

from natmix.estimate import counted
from natmix.experiments.tables.paper import PaperNumber
from natmix.experiments.tables.summary import Statistic, Summary, rounded

NONE = "–"


def value(number: float, metric: str = "neg_elbo") -> str:
    """A mean as the paper prints it: two decimals, the MMD with two significant digits."""
    if not math.isfinite(number):
        return f"{number}"
    return f"{number:.1e}" if metric == "mmd" else f"{rounded(number):.2f}"


def error(number: float, metric: str = "neg_elbo") -> str:
    """An interval as the paper prints it: two decimals, the MMD with one significant digit."""
    return f"{number:.0e}" if metric == "mmd" and math.isfinite(number) else value(number, metric)


def ours(statistic: Statistic, metric: str = "neg_elbo") -> str:
    """Mean ± three standard errors; the mean alone for a single seed."""
    mean = value(statistic.mean, metric)
    return mean if statistic.number < 2 else f"{mean} ± {error(statistic.three_se, metric)}"


def theirs(number: PaperNumber | None, metric: str = "neg_elbo") -> str:
    """The paper's mean ± three standard errors."""
    return NONE if number is None else f"{value(number.mean, metric)} ± {error(number.three_se, metric)}"


def mark(summary: Summary) -> str:
    """✓ not above the paper's, ✓✓ clearly below, ✗ above."""
    if summary.not_above is None:
        return ""
    return "✗" if not summary.not_above else "✓✓" if summary.clearly_below else "✓"


def time_to_paper(summary: Summary) -> str:
    """The median in seconds without compilation, and how many seeds reached it if not all did."""
    if summary.paper is None:
        return NONE
    n = len(summary.seeds)
    share = "" if summary.reached == n else f" ({summary.reached} of {counted(n, 'seed')})"
    if math.isfinite(summary.time_to_paper):
        return f"{summary.time_to_paper:.0f}{share}"
    return f"not reached{share}" if summary.reached else "not reached"


def first_to_paper(summary: Summary) -> str:
    """The seconds of the first seed, if it compiled its own programs."""
    if summary.paper is None:
        return NONE
    if math.isnan(summary.first_to_paper):
        return "n/a"
    return f"{summary.first_to_paper:.0f}" if math.isfinite(summary.first_to_paper) else "not reached"


def seeds(numbers: Iterable[int]) -> str:
    """Seeds as on the command line: 0:10, or 0,3,5."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and parts[-1][1] == n:
            parts[-1][1] = n + 1
        else:
            parts.append([n, n + 1])
    return ",".join(str(a) if b == a + 1 else f"{a}:{b}" for a, b in parts)


def numbered(seeds: Iterable[int]) -> str:
    """Seed 3, or seeds 1, 2, 3."""
    names = [str(n) for n in seeds]
    return f"seed{'s' if len(names) > 1 else ''} {', '.join(names)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, all but the first columns aligned to the right."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
