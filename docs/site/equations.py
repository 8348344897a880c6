"""Equations become MathML when the site is built: browsers draw it without scripts, fonts or a network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.DOTALL)

OPERATOR = re.compile(r"<mi>(log|exp|max|min|arg)</mi>")


def on_page_content(content: str, **_: Any) -> str:
    """The page with its equations drawn by the browser."""
    content = INLINE.sub(lambda found: _mathml(found[1], "inline"), content)
    return BLOCK.sub(lambda found: f'<div class="equation">{_mathml(found[1], "block")}</div>', content)


def _mathml(escaped: str, display: str) -> str:
    drawn = convert(html.unescape(escaped), display=display)
    return OPERATOR.sub(r'<mo form="prefix" lspace="0.17em" rspace="0.17em">\1</mo>', drawn)
