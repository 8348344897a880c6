"""The main table in Markdown."""

from collections.abc import Mapping, Sequence

from natmix.estimate import counted
from natmix.experiments.problems import PAPER
from natmix.experiments.tables import formatting
from natmix.experiments.tables.cells import available
from natmix.experiments.tables.collection import COPIES, Collection
from natmix.experiments.tables.ordering import ordering
from natmix.experiments.tables.paper import MAIN_TABLE, SECONDARY, TITLES, paper_number
from natmix.experiments.tables.summary import Summary

Summaries = Mapping[tuple[str, str], Summary]

_MARKS = (
    "✓: our mean, at two decimals, is not above the paper's mean plus its interval; ✓✓: it is clearly below "
    "(the intervals do not meet); ✗: it is above."
)
_TITLES = {
    "SEPYFUX": "SEPYFUX (iBayes-GMM)",
    "ZAMTRUX": "ZAMTRUX (VIPS)",
}


def table3(
    summaries: Summaries, candidates: Sequence[str], collection: Collection, commands: Sequence[str]
) -> str:
    """The paper's main table (tab:exp3), with our numbers beside the printed ones."""
    problems = [p for p in PAPER if any((c, p) in summaries for c in candidates)]
    shown = [c for c in candidates if any((c, p) in summaries for p in problems)]
    parts = [
        "# Table 3: negated ELBO",
        "Mean ± 3 standard errors over the seeds (none for a single one), lower is better. The paper's "
        f"numbers are means over ten seeds with their printed intervals. {_MARKS} A dash: not run; N/A: not "
        "in the paper.",
        _main(summaries, shown, problems),
        "![Learning curves](table3_curves.png)",
        *(_details(summaries, c) for c in shown),
        _order(summaries, shown, problems),
        _notes(summaries, shown, collection.notes),
        _copies(collection.copies),
        _commands(commands),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _main(summaries: Summaries, candidates: Sequence[str], problems: Sequence[str]) -> str:
    header = ["problem"]
    for codename in candidates:
        header += [_TITLES.get(codename, codename), "paper"]
    rows = []
    for problem in problems:
        row = [problem]
        for codename in candidates:
            row += _pair(summaries.get((codename, problem)), codename, problem)
        rows.append(row)
    return formatting.table(header, rows)


def _pair(summary: Summary | None, codename: str, problem: str) -> list[str]:
    if not available(codename, problem):
        return ["N/A", "N/A"]
    printed = formatting.theirs(paper_number(codename, problem))
    if summary is None:
        return [formatting.NONE, printed]
    return [f"{formatting.ours(summary.neg_elbo)} {formatting.mark(summary)}".strip(), printed]


def _details(summaries: Summaries, codename: str) -> str:
    header = [
        "problem",
        "seeds",
        "-ELBO",
        "paper",
        "seconds to the paper's mean: first seed, with compilation",
        "median, without compilation",
        "evaluations",
        "iterations",
        "components",
        "seconds (compilation)",
        "second metric",
        "paper's",
        "hardware",
    ]
    rows = []
    for problem in PAPER:
        s = summaries.get((codename, problem))
        if s is not None:
            rows.append(
                [
                    problem,
                    str(len(s.seeds)),
                    f"{formatting.ours(s.neg_elbo)} {formatting.mark(s)}".strip(),
                    formatting.theirs(s.paper),
                    formatting.first_to_paper(s),
                    formatting.time_to_paper(s),
                    f"{s.evaluations:,.0f}",
                    f"{s.iterations:,.0f}",
                    f"{s.components:.1f}",
                    f"{s.seconds:.0f} ({s.compile_seconds:.0f})",
                    *_second(s),
                    s.device,
                ]
            )
    text = (
        f"## {codename}\n\n"
        "Means over the seeds; seconds with compilation (in brackets: of them, for compilation, which is "
        "little for seeds that use another's programs). Seconds to the paper's mean: until the first "
        "evaluation of the -ELBO not above it at two decimals (about every 10 % of the time), of the "
        "first seed with the compilation of its programs (n/a: it used another's), and as median over the "
        "seeds without compilation. Seeds that ran together share a clock, and each advances more slowly "
        "than alone."
    )
    return f"{text}\n\n{formatting.table(header, rows)}"


def _second(summary: Summary) -> list[str]:
    metric = SECONDARY[summary.problem]
    printed = formatting.theirs(paper_number(summary.codename, summary.problem, metric), metric)
    if summary.secondary is None:
        return [f"{TITLES[metric]}: {formatting.NONE}", printed]
    n = summary.secondary.number
    fewer = "" if n == len(summary.seeds) else f" ({counted(n, 'seed')})"
    return [f"{TITLES[metric]}: {formatting.ours(summary.secondary, metric)}{fewer}", printed]


def _order(summaries: Summaries, candidates: Sequence[str], problems: Sequence[str]) -> str:
    others = [c for c in candidates if c != "SAMTRON"]
    if "SAMTRON" not in candidates or not others:
        return ""
    rows, totals = [], [0, 0, 0, 0]
    for problem in problems:
        here = {c: summaries[c, problem] for c in candidates if (c, problem) in summaries}
        if len(here) > 1:
            order = ordering(here)
            cells = [order.first.get(c, formatting.NONE) for c in others]
            counts = (order.pairs, order.by_means, order.clearly, order.reversed)
            rows.append([problem, *cells, *(str(n) if order.pairs else formatting.NONE for n in counts)])
            totals = [total + n for total, n in zip(totals, counts, strict=True)]
    if not rows:
        return ""
    rows.append(["**all**", *([""] * len(others)), *(f"**{n}**" for n in totals)])
    text = (
        "## Ordering\n\n"
        "Is SAMTRON not above the others? *yes*: its mean is not above at two decimals; *no, within errors*: "
        "it is, but the intervals (3 standard errors) meet. Last columns: the pairs that are clearly apart "
        "in the paper (their intervals do not meet); of them, how many are in its order here by their means "
        "at two decimals; how many of these clearly, as the intervals do not meet here either (a single "
        "seed has no interval, so no pair with it is clear); and how many are reversed by their means. The "
        "rest are equal at two decimals."
    )
    header = ["problem", *(f"≤ {c}" for c in others), "pairs apart in the paper", "in its order"]
    header += ["clearly so", "reversed"]
    return f"{text}\n\n{formatting.table(header, rows)}"


def _notes(summaries: Summaries, candidates: Sequence[str], found: Sequence[str]) -> str:
    pairs = [key for key in summaries if key[0] in candidates]
    notes = []
    if any(problem == "wine" for _, problem in pairs):
        notes.append(
            "wine: rows that occur several times stay on one side of the split here, so the training data "
            "differ from the paper's."
        )
    if any(c == "SEPYFUX" and p in ("planar_robot_4", "talos") for c, p in pairs):
        notes.append(
            "SEPYFUX on planar_robot_4 and talos: the paper left out bad outliers; here all seeds count."
        )
    if ("SEPYFUX", "stm300") in pairs and paper_number("SEPYFUX", "stm300", table=MAIN_TABLE) is not None:
        notes.append(
            "SEPYFUX on stm300: the paper's main table has 26.87 ± 0.45, its full table 26.69 ± 0.39 (and "
            "26.87 ± 0.45 for SEPYRUX)."
        )
    notes += found
    return "## Notes\n\n" + "\n".join(f"- {note}" for note in notes) if notes else ""


def _copies(copies: Sequence[str]) -> str:
    """The rule, and the long list folded."""
    if not copies:
        return ""
    lines = "\n".join(f"- {line}" for line in copies)
    title = f"{counted(len(copies), 'seed')} found several times"
    folded = f"<details>\n<summary>{title}</summary>\n\n{lines}\n\n</details>"
    return f"## Seeds found several times\n\n{COPIES}\n\n{folded}"


def _commands(commands: Sequence[str]) -> str:
    return "## Commands\n\n```\n" + "\n".join(commands) + "\n```"
