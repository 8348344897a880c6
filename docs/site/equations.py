"""Equations become MathML when the site is built: browsers draw it without scripts, fonts or a network."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', flags=re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', flags=re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """The page with its equations drawn by the browser."""
    content = INLINE.sub(lambda found: convert(html.unescape(found[1])), content)
    return BLOCK.sub(
        lambda found: f'<div class="equation">{convert(html.unescape(found[1]), display="block")}</div>', content
    )
