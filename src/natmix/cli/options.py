"""``natmix options``: the seven modules, their options and hyperparameters."""

import dataclasses
import importlib
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from natmix.gmmvi import GMMVI
from natmix.modules.codenames import MODULES
from natmix.modules.component_adaptation.vips import FIT_DEFAULTS
from natmix.modules.hyperparameters import Option

_HOW = (
    "A codename takes one letter from each of seven modules, in any order and case. "
    "The first option of every module gives SAMTRON.",
    "In Python: natmix.fit(target, dim=2, algorithm='zamtrux', component_stepsize={'stepsize': 0.05}).",
)
_ADAPTED = (
    "natmix.GMMVI.from_codename uses the defaults above. natmix.fit has other defaults for some: "
    "desired_samples and prior_candidates depend on the target, and "
    + ", ".join(f"{name} = {value}" for name, value in FIT_DEFAULTS.items())
    + "."
)


def options() -> None:
    """List the options of the seven modules with their letters and hyperparameters."""
    console = Console(highlight=False)
    for line in _HOW:
        console.print(Text(line))
    for module, choices in MODULES.items():
        console.print()
        console.print(Text.assemble((module, "bold"), f": {_purpose(choices[0])}"))
        console.print(_table(choices))
    console.print()
    console.print(Text("The whole algorithm", style="bold"))
    console.print(Padding(_lines(_whole_algorithm()), (0, 0, 0, 2)))
    console.print()
    console.print(Text(_ADAPTED))


def _table(choices: tuple[type[Option], ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 1))
    table.add_column(width=1, style="bold cyan")
    table.add_column(width=15)
    table.add_column(ratio=1)
    for option in choices:
        table.add_row(option.letter, option.title, _lines(option.hyperparameters()))
    return table


def _lines(hyperparameters: list[tuple[str, Any, str]]) -> Text:
    if not hyperparameters:
        return Text("no hyperparameters", style="dim")
    lines = [
        Text.assemble((f"{name} = {_value(default)}", "green"), f"  {purpose}")
        for name, default, purpose in hyperparameters
    ]
    return Text("\n").join(lines)


def _value(default: Any) -> str:
    if isinstance(default, bool) or not isinstance(default, (int, float)):
        return str(default)
    return f"{default:,}".replace(",", "_") if isinstance(default, int) else f"{default:g}"


def _purpose(option: type[Option]) -> str:
    """What a module does: the docstring of its package, after the name it has in the paper."""
    package = importlib.import_module(option.__module__.rpartition(".")[0])
    return (package.__doc__ or "").splitlines()[0].partition(": ")[2]


def _whole_algorithm() -> list[tuple[str, Any, str]]:
    fields = [f for f in dataclasses.fields(GMMVI) if "doc" in f.metadata]
    return [(f.name, f.metadata["default"], f.metadata["doc"]) for f in fields]
