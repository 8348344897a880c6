"""Tables that are never cut short, however narrow the terminal."""

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def console() -> Console:
    """Where commands print their results."""
    return Console(highlight=False, markup=False)


def print_table(table: Table) -> None:
    """Print a table in its own width: a wrapped line is better than a truncated number."""
    where = console()
    wide = where.options.update(max_width=10_000)
    where.width = max(where.width, Measurement.get(where, wide, table).maximum)
    where.print(table)
