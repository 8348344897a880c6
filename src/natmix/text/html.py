"""Text and tables as HTML for notebooks; everything is escaped."""

import html
from collections.abc import Sequence

_CELL = "padding: 0.15em 0.8em; text-align: {}"
_NOTE = "margin: 0.3em 0"


def block(*parts: str) -> str:
    """Several pieces of HTML as one."""
    return f"<div>{''.join(parts)}</div>"


def headline(text: str) -> str:
    """A line in bold."""
    return f'<p style="{_NOTE}"><b>{html.escape(text)}</b></p>'


def paragraph(text: str) -> str:
    """A line."""
    return f'<p style="{_NOTE}">{html.escape(text)}</p>'


def html_line(text: str) -> str:
    """One line in a font of fixed width."""
    return f'<code style="white-space: pre-wrap; font-family: monospace">{html.escape(text)}</code>'


def preformatted(text: str) -> str:
    """Lines as they are."""
    return f'<pre style="line-height: 1.25; font-family: monospace">{html.escape(text)}</pre>'


def folded(title: str, inside: str) -> str:
    """HTML that a click on its title shows."""
    return f"<details><summary>{html.escape(title)}</summary>{inside}</details>"


def html_table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """A table of text; ``left`` says which columns are aligned to the left."""

    def line(tag: str, cells: Sequence[str]) -> str:
        styled = zip(cells, left, strict=True)
        inner = "".join(
            f'<{tag} style="{_CELL.format("left" if to_left else "right")}">{html.escape(cell)}</{tag}>'
            for cell, to_left in styled
        )
        return f"<tr>{inner}</tr>"

    head = f"<thead>{line('th', titles)}</thead>" if any(titles) else ""
    return f"<table>{head}<tbody>{''.join(line('td', row) for row in rows)}</tbody></table>"
