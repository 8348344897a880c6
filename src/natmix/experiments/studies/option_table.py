"""The results of a study in the layout of the paper's tables tab:exp1 and tab:exp2, beside its numbers."""

import csv
import functools
import importlib.resources
from collections.abc import Sequence

from natmix.estimate import counted
from natmix.experiments.studies.study_results import OptionBest, StudyResults
from natmix.experiments.tables.formatting import NONE, table


def option_table(results: StudyResults, commands: Sequence[str] = ()) -> str:
    """The best value of each option and of each codename on each problem, in Markdown.

    Args:
        results: of the study.
        commands: that ran it, printed at the end.
    """
    study = results.study
    parts = [
        f"# {study.title or study.name}",
        f"Best {_objective(study.objective.metric)} of all settings that were tried with an option, as in "
        "the paper's tables. This estimate is optimistic: it is the best of many noisy numbers. The number "
        "after ± is its standard error. Bold: the best of a module, at two decimals.",
        _options(results),
        "## Codenames",
        _codenames(results),
        "## Budgets",
        _budgets(results),
    ]
    if commands:
        parts += ["## Commands", "```bash\n" + "\n".join(commands) + "\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


@functools.cache
def paper_numbers() -> dict[tuple[str, str], float]:
    """The printed -ELBO by problem and letter (tables tab:exp1 and tab:exp2)."""
    file = importlib.resources.files("natmix.experiments.tables").joinpath("paper_options.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {(row["problem"], row["letter"]): float(row["neg_elbo"]) for row in rows}


def _options(results: StudyResults) -> str:
    found = {(each.problem, each.letter): each for each in results.options()}
    problems = [name for name in results.study.problems if any(key[0] == name for key in found)]
    if not problems:
        return ""
    beside = results.study.objective.metric == "neg_elbo"
    header = ["module", "option"]
    for problem in problems:
        header += [problem, "paper"] if beside else [problem]
    rows = []
    for letter in dict.fromkeys(key[1] for key in found):
        some = next(each for each in found.values() if each.letter == letter)
        row = [some.module.replace("_", " "), f"{some.title} ({letter})"]
        for problem in problems:
            row.append(_cell(found.get((problem, letter)), list(found.values()), results.sign))
            if beside:
                printed = paper_numbers().get((problem, letter))
                row.append(NONE if printed is None else f"{printed:.2f}")
        rows.append(row)
    return table(header, rows, left=2)


def _cell(best: OptionBest | None, every: Sequence[OptionBest], sign: int) -> str:
    if best is None or best.value is None:
        return NONE
    rivals = [
        o.value for o in every if (o.problem, o.module) == (best.problem, best.module) and o.value is not None
    ]
    text = f"{best.value:.2f}"
    first = sign * round(best.value, 2) <= min(sign * round(value, 2) for value in rivals)
    error = f" ± {best.error:.2g}" if best.error == best.error else ""
    return (f"**{text}**" if first else text) + error


def _codenames(results: StudyResults) -> str:
    rows = []
    for cell in results.cells:
        chosen = results.best(*cell.cell)
        counts = [str(cell.count(state)) for state in ("complete", "pruned", "failed")]
        value = NONE if chosen is None else f"{chosen[1].value:.2f}"
        rows.append(
            [cell.cell.problem, cell.cell.codename, value, *counts, f"{len(cell.results)} of {cell.total}"]
        )
    header = [
        "problem",
        "codename",
        _objective(results.study.objective.metric),
        "complete",
        "pruned",
        "failed",
        "settings",
    ]
    return table(header, rows, left=2)


def _budgets(results: StudyResults) -> str:
    study = results.study
    lines = []
    for name, problem in study.problems.items():
        limits = problem.limits
        words = [
            counted(limits.max_iterations, "iteration") if limits.max_iterations else "",
            f"{limits.max_evaluations:,} evaluations" if limits.max_evaluations else "",
            f"{limits.max_seconds:g} s" if limits.max_seconds else "",
            f"{limits.max_run_seconds:g} s without compilation" if limits.max_run_seconds else "",
        ]
        lines.append(f"- {name}: {', '.join(word for word in words if word)}")
    return "Of every trial; the first that is reached ends it.\n\n" + "\n".join(lines)


def _objective(metric: str) -> str:
    return {"neg_elbo": "-ELBO", "best_neg_elbo": "best -ELBO"}.get(metric, metric)
