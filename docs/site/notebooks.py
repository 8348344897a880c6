"""Notebooks as pages: text, code and outputs of docs/tutorials/*.ipynb, as they were executed."""

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(\]\([^)\s#]+)\.ipynb((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Each notebook's page and pictures, in its place."""
    for file in [f for f in files if f.src_uri.endswith(".ipynb")]:
        assert file.abs_src_path is not None
        text, pictures = page_of(Path(file.abs_src_path))
        page = file.src_uri.removesuffix(".ipynb")
        files.append(File.generated(config, f"{page}.md", content=text))
        folder = page.rpartition("/")[0]
        for name, picture in pictures.items():
            files.append(File.generated(config, f"{folder}/{name}", content=picture))
        files.remove(file)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to notebooks lead to their pages."""
    return LINK.sub(r"\1.md\2", markdown)


def page_of(notebook: Path) -> tuple[str, dict[str, bytes]]:
    """Its Markdown, and the pictures that this refers to, by name."""
    pieces: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = _text(cell["source"])
        if cell["cell_type"] == "markdown":
            pieces.append(source)
            continue
        pieces.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{notebook.stem}_{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode(_text(data["image/png"]))
                pieces.append(f"![Figure {len(pictures)} of this page]({name})")
            elif "text/html" in data:
                pieces.append(f'<div class="output">{_text(data["text/html"])}</div>')
            else:
                pieces.append(_printed(_text(output.get("text", data.get("text/plain", "")))))
    return "\n\n".join(pieces) + "\n", pictures


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "".join(value)


def _printed(text: str) -> str:
    """Text as it is, in one element: Markdown in it means nothing."""
    return f'<pre class="output">{html.escape(text.rstrip())}</pre>'.replace("\n", "&#10;")
