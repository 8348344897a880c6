"""HTML without inline styles, which a strict content security policy forbids; all text is escaped."""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Markup(str):
    """HTML that needs no escaping: only the functions here and the page's own files make it."""

    __slots__ = ()


class Cells(NamedTuple):
    """A table.

    Attributes:
        titles: of the columns; none are shown if all are empty.
        rows: text is escaped, `Markup` is not; the first cell of a row is its heading.
        words: which columns hold words, aligned to the left.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[bool]


class Section(NamedTuple):
    """A part of the page, which the table of contents links to."""

    name: str
    title: str
    html: Markup


_VOID = ("input",)
"""Elements without an end."""


def tag(name: str, *children: str, **attributes: str | bool) -> Markup:
    """An element; attributes in which Python forbids a name end in an underscore, ``data_x`` is data-x."""
    written = ""
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            written += f" {key}"
        elif value is not False:
            written += f' {key}="{html.escape(str(value))}"'
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(map(escaped, children))}</{name}>")


def escaped(text: str) -> Markup:
    """Text as HTML; `Markup` as it is."""
    return text if isinstance(text, Markup) else Markup(html.escape(text))


def named(name: str) -> Markup:
    """A user's name, whose own writing direction does not reach what is around it."""
    return tag("bdi", name)


def joined(parts: Iterable[str]) -> Markup:
    """Several pieces in a row."""
    return Markup("".join(map(escaped, parts)))


def table(cells: Cells, label: str, caption: bool = True) -> Markup:
    """A table that scrolls by itself; ``label`` is its caption, or for screen readers alone."""
    classes = ["words" if word else "number" for word in cells.words]
    head = ""
    if any(cells.titles):
        titles = joined(
            tag("th", title, scope="col", class_=c) for title, c in zip(cells.titles, classes, strict=True)
        )
        head = tag("thead", tag("tr", titles))
    rows = []
    for row in cells.rows:
        first, *others = row
        heading = tag("th", first, scope="row", class_=classes[0])
        rows.append(
            tag("tr", heading, *(tag("td", v, class_=c) for v, c in zip(others, classes[1:], strict=True)))
        )
    words = tag("caption", label) if caption else Markup("")
    made = tag("table", words, Markup(head), tag("tbody", *rows))
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=label)


def section(name: str, title: str, *children: str) -> Section:
    """A part of the page with a heading."""
    heading = tag("h2", title, id=f"{name}-title")
    return Section(name, title, tag("section", heading, *children, id=name, aria_labelledby=f"{name}-title"))


def folded(title: str, *children: str) -> Markup:
    """What a click on its title shows."""
    return tag("details", tag("summary", title), *children)
