"""The appendix's full table: nine candidates, with the problems' second metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

from natmix.experiments.problems import PAPER
from natmix.experiments.tables import formatting
from natmix.experiments.tables.cells import available
from natmix.experiments.tables.paper import ALL, FULL_TABLE, SECONDARY, TITLES, paper_number
from natmix.experiments.tables.summary import Statistic, Summary

COLUMNS = ("algorithm", "problem", "metric", "seeds", "mean", "3se", "paper_mean", "paper_3se")

Summaries = Mapping[tuple[str, str], Summary]


def full_markdown(summaries: Summaries, commands: Sequence[str]) -> str:
    """The table (tab:exp3_full) with our numbers above the paper's."""
    rows = []
    for problem in [p for p in PAPER if any((c, p) in summaries for c in ALL)]:
        for metric in ("neg_elbo", SECONDARY[problem]):
            ours, theirs = [], []
            for codename in ALL:
                statistic = _statistic(summaries, codename, problem, metric)
                there = available(codename, problem)
                printed = paper_number(codename, problem, metric, FULL_TABLE)
                ours.append(_ours(summaries.get((codename, problem)), statistic, metric) if there else "N/A")
                theirs.append(formatting.theirs(printed, metric) if there else "N/A")
            rows += [[problem, f"{TITLES[metric]}, ours", *ours], ["", f"{TITLES[metric]}, paper", *theirs]]
    return (
        "# Full table of Experiment 3\n\n"
        "Mean ± 3 standard errors over the seeds. ✓, ✓✓ and ✗ as in [table3.md](table3.md). A dash: not "
        "run, or a metric whose reference samples were missing (`natmix references`).\n\n"
        f"{formatting.table(['problem', 'metric', *ALL], rows, left=2)}\n\n"
        "![Learning curves](table3_full_curves.png)\n\n"
        "## Commands\n\n```\n" + "\n".join(commands) + "\n```\n"
    )


def full_rows(summaries: Summaries) -> list[dict[str, Any]]:
    """The same as rows of numbers."""
    rows = []
    for codename in ALL:
        for problem in PAPER:
            for metric in ("neg_elbo", SECONDARY[problem]):
                statistic = _statistic(summaries, codename, problem, metric)
                if statistic is not None:
                    paper = paper_number(codename, problem, metric, FULL_TABLE)
                    numbers = (statistic.number, statistic.mean, statistic.three_se)
                    printed = (paper.mean, paper.three_se) if paper else (None, None)
                    rows.append(
                        dict(zip(COLUMNS, (codename, problem, metric, *numbers, *printed), strict=True))
                    )
    return rows


def _statistic(summaries: Summaries, codename: str, problem: str, metric: str) -> Statistic | None:
    summary = summaries.get((codename, problem))
    if summary is None:
        return None
    return summary.neg_elbo if metric == "neg_elbo" else summary.secondary


def _ours(summary: Summary | None, statistic: Statistic | None, metric: str) -> str:
    if summary is None or statistic is None:
        return formatting.NONE
    mark = formatting.mark(summary) if metric == "neg_elbo" else ""
    return f"{formatting.ours(statistic, metric)} {mark}".strip()
