"""Equations become MathML when the site is built: browsers draw it without scripts, fonts or a network."""

import html
import re
import unicodedata
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.DOTALL)

STYLED = re.compile(r'<mi mathvariant="(double-struck|script)">([A-Z])</mi>')
OPERATOR = re.compile(r"<mi>(log|exp|max|min|arg)</mi>")


def on_page_content(content: str, **_: Any) -> str:
    """The page with its equations drawn by the browser."""
    content = INLINE.sub(lambda found: _mathml(found[1], "inline"), content)
    return BLOCK.sub(lambda found: f'<div class="equation">{_mathml(found[1], "block")}</div>', content)


def _mathml(escaped: str, display: str) -> str:
    drawn = convert(html.unescape(escaped), display=display)
    drawn = STYLED.sub(lambda found: f"<mi>{_letter(found[1], found[2])}</mi>", drawn)
    return OPERATOR.sub(r'<mo form="prefix" lspace="0.17em" rspace="0.17em">\1</mo>', drawn)


def _letter(style: str, letter: str) -> str:
    """The letter in another alphabet: browsers know no other variant than normal."""
    name = f"{style.upper()} CAPITAL {letter}"
    try:
        return unicodedata.lookup(f"MATHEMATICAL {name}")
    except KeyError:  # a few are older than their alphabets
        return unicodedata.lookup(name)
