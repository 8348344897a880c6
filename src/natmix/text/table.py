"""A table of text, printed or as HTML."""

from typing import NamedTuple

from natmix.text.html import block, headline, html_table, paragraph


class Column(NamedTuple):
    """A column: its title, and whether its cells are words, aligned to the left."""

    title: str
    words: bool = False


class TextTable(NamedTuple):
    """Rows of text below a headline.

    Attributes:
        title: the headline.
        columns: in their order.
        rows: a text for each column, or fewer: the last one then runs on.
        notes: lines below the table.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Lines, the columns as wide as they need to be."""
        full = [row for row in self.rows if len(row) == len(self.columns)]
        widths = [
            max(len(column.title), *(len(row[i]) for row in full), 0) for i, column in enumerate(self.columns)
        ]
        for row in self.rows:
            for i, cell in enumerate(row[:-1]):
                widths[i] = max(widths[i], len(cell))
        lines = [self.title, self._line(tuple(c.title for c in self.columns), widths)]
        lines += [self._line(row, widths) for row in self.rows]
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])

    def html(self) -> str:
        """The same for a notebook."""
        padded = [(*row, *[""] * (len(self.columns) - len(row))) for row in self.rows]
        titles = [column.title for column in self.columns]
        table = html_table(titles, padded, [column.words for column in self.columns])
        return block(headline(self.title), table, *map(paragraph, self.notes))

    def _line(self, row: tuple[str, ...], widths: list[int]) -> str:
        cells = []
        for i, cell in enumerate(row):
            runs_on = i == len(row) - 1 and len(row) < len(self.columns)
            if runs_on:
                cells.append(cell)
            else:
                cells.append(f"{cell:{'<' if self.columns[i].words else '>'}{widths[i]}}")
        return "  " + "  ".join(cells).rstrip()
