"""``natmix list``: problems, the paper's presets, runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natmix.cli.errors import one_sentence

if TYPE_CHECKING:
    from rich.table import Table

    from natmix.experiments.problems import Problem


def list_(
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
) -> None:
    """List the test problems, the presets of the paper, and the runs."""
    with one_sentence():
        from rich.console import Console

        from natmix.cli.console import print_table
        from natmix.experiments import presets

        console = Console(highlight=False, markup=False)
        console.print("Problems, for natmix run PROBLEM", style="bold")
        table, remarks = _problems()
        print_table(table)
        for remark in remarks:
            console.print(remark, soft_wrap=True)
        console.print(
            "± is one standard error. gmmD and stmD exist for any D from 1 on; their modes are known."
        )
        console.print("\nPresets of the paper's Experiment 3, for natmix run --preset paper", style="bold")
        console.print(" ".join(presets.codenames()))
        console.print(f"for {_of_the_paper()}.", soft_wrap=True)
        console.print(
            "\nPresets of the paper's Experiment 1, for natmix run --preset paper-exp1", style="bold"
        )
        console.print(f"{_of_experiment_1()}.")
        console.print(
            "All other combinations run with the defaults of natmix.fit. natmix options explains the letters."
        )
        console.print(f"\nRuns in {runs}", style="bold", soft_wrap=True)
        found = _runs(runs)
        if isinstance(found, str):
            console.print(found)
        else:
            print_table(found)


def _of_the_paper() -> str:
    from natmix.experiments import presets
    from natmix.experiments.problems import catalogue

    in_paper = {p for codename in presets.codenames() for p in presets.problems(codename)}
    out = [name for name in catalogue() if name not in in_paper]
    out += [f"{p} ({c})" for c in presets.codenames() for p in in_paper if p not in presets.problems(c)]
    return f"all of these problems but {', '.join(out)}" if out else "all of these problems"


def _of_experiment_1() -> str:
    from natmix.experiments import presets

    experiment = presets.EXPERIMENTS["paper-exp1"]
    names = presets.codenames(experiment)
    return f"{' '.join(names)} for {', '.join(presets.problems(names[0], experiment))}"


def _problems() -> "tuple[Table, list[str]]":
    """One row per problem, and notes on missing data, once each."""
    from rich.table import Table

    from natmix.experiments.problems import catalogue

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("name", "D", "what", "log Z", "data"):
        table.add_column(name, justify="right" if name == "D" else "left", no_wrap=True)
    wrong: dict[str, list[str]] = {}
    for name, entry in catalogue().items():
        found = _loaded(name)
        known, data = "", "ready"
        if isinstance(found, str):
            data = "missing" if found.startswith("pip ") else "bad file"
            wrong.setdefault(found, []).append(name)
        else:
            known = _known(found)
        table.add_row(name, str(entry.dim), entry.short, known, data)
    return table, [f"{', '.join(names)}: {why}" for why, names in wrong.items()]


def _loaded(name: str) -> "Problem | str":
    """The problem, or how to get its data."""
    from natmix.experiments import problems

    try:
        # Of a family for any dimension, the smallest problem has the same text and is built fastest.
        return problems.load(re.sub(r"^(gmm|stm)\d+$", r"\g<1>2", name))
    except ImportError as error:
        install = re.search(r"pip install (--editable )?(['\"]).*?\2", str(error))
        return install[0] if install else str(error)
    except ValueError as error:
        return str(error)


def _known(problem: "Problem") -> str:
    if problem.log_evidence is None:
        return ""
    error = f" ± {problem.log_evidence_se:g}" if problem.log_evidence_se else ""
    return f"{problem.log_evidence:g}{error}"


def _runs(folder: Path) -> "Table | str":
    from rich.table import Table

    from natmix.cli.run_table import mean_and_error
    from natmix.experiments.runs import find_runs, load_run

    paths = find_runs(folder)
    if not paths:
        return "none"
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0), pad_edge=False)
    for name in ("run", "problem", "algorithm", "preset", "seeds", "-ELBO"):
        table.add_column(name, justify="right" if name in ("seeds", "-ELBO") else "left", no_wrap=True)
    for path in paths:
        try:
            run = load_run(path)
            seeds = f"{len(run.finished)} of {len(run.config['seeds'])}"
            elbo = mean_and_error([s.final["neg_elbo"] for s in run.finished.values() if s.final])
            row = [run.problem, run.codename, run.config["preset"], seeds, elbo]
        except (ValueError, KeyError):
            row = ["cannot be read", "", "", "", ""]
        table.add_row(str(path.relative_to(folder)), *row)
    return table
