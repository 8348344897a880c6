"""``natmix list``: problems, the paper's presets, runs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from natmix.cli._errors import one_sentence

if TYPE_CHECKING:
    from rich.table import Table

    from natmix.problems import Problem


def list_(
    runs: Annotated[Path, typer.Option(help="The folder to look for runs in.")] = Path("runs"),
) -> None:
    """List the test problems, the algorithms with hyperparameters by the paper, and the runs."""
    with one_sentence():
        from rich.console import Console

        from natmix import presets

        console = Console(highlight=False, markup=False)
        console.print("Problems, for natmix run PROBLEM", style="bold")
        console.print(_problems())
        console.print("gmmD and stmD exist for any number of dimensions D.")
        console.print("\nAlgorithms with the paper's hyperparameters (--preset paper)", style="bold")
        console.print(" ".join(presets.codenames()))
        console.print("All others start from the choices of natmix.fit; natmix options lists the letters.")
        console.print(f"\nRuns in {runs}", style="bold", soft_wrap=True)
        console.print(_runs(runs))


def _problems() -> "Table":
    from rich.table import Table

    from natmix import presets
    from natmix.problems import catalogue

    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("D", justify="right")
    table.add_column("what")
    table.add_column("known")
    table.add_column("preset")
    table.add_column("data")
    in_paper = {p for codename in presets.codenames() for p in presets.problems(codename)}
    for name, entry in catalogue().items():
        found = _loaded(name)
        known, data = ("", found) if isinstance(found, str) else (_known(found), "")
        table.add_row(
            name, str(entry.dim), entry.title, known, "paper" if name in in_paper else "", data or "ready"
        )
    return table


def _loaded(name: str) -> "Problem | str":
    """The problem, or how to get its data."""
    from natmix import problems

    try:
        # Of a family for any dimension the smallest says the same and is built at once.
        return problems.load(re.sub(r"^(gmm|stm)\d+$", r"\g<1>2", name))
    except ImportError as error:
        install = re.search(r"pip install '[^']*'", str(error))
        return install[0] if install else str(error)
    except ValueError as error:
        return str(error)


def _known(problem: "Problem") -> str:
    parts = []
    if problem.log_evidence is not None:
        error = f" ± {problem.log_evidence_se:g}" if problem.log_evidence_se else ""
        parts.append(f"log Z = {problem.log_evidence:g}{error}")
    if problem.modes is not None:
        parts.append("modes")
    if problem.sample is not None:
        parts.append("samples")
    return ", ".join(parts)


def _runs(folder: Path) -> "Table | str":
    from rich.table import Table

    from natmix.cli._run_table import mean_and_error
    from natmix.runs import find_runs, load_run

    paths = find_runs(folder)
    if not paths:
        return "none"
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("run", "problem", "algorithm", "preset", "seeds", "-ELBO"):
        table.add_column(name, justify="right" if name in ("seeds", "-ELBO") else "left")
    for path in paths:
        try:
            run = load_run(path)
            seeds = f"{len(run.finished)} of {len(run.config['seeds'])}"
            elbo = mean_and_error([s.final["neg_elbo"] for s in run.finished.values() if s.final])
            row = [run.problem, run.codename, run.config["preset"], seeds, elbo]
        except (ValueError, KeyError):
            row = ["cannot be read", "", "", "", ""]
        table.add_row(str(path), *row)
    return table
