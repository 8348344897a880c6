"""The site has the repository's layout: pages link to files by their paths in it, on GitHub and here."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]+`", flags=re.DOTALL | re.MULTILINE)
LIST_ITEM = re.compile(r"^(?:[-*]|\d+\.) ")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """README, everything under docs, and every file of the repository that one of these pages links to."""
    for file in [f for f in files if f.src_dir == config.docs_dir]:
        files.remove(file)
    for path in sorted(_linked([ROOT / "README.md", *_documents()])):
        files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """GitHub's Markdown as Python-Markdown reads it.

    It wants an empty line around comments and before lists, and four spaces before what belongs to an item,
    and a word that there is Markdown in an HTML element.
    """
    done: list[str] = []
    fenced, indent = False, 0
    for line in markdown.replace("<details>", '<details markdown="1">').splitlines():
        before = done[-1] if done else ""
        item = None if fenced else LIST_ITEM.match(line)
        if item:
            if before and not LIST_ITEM.match(before):
                done.append("")
            indent = item.end()
        elif not fenced and (line.startswith("<!--") or before.startswith("<!--")) and before:
            done.append("")
        if not item and indent and line.strip():
            if line.startswith(" " * indent):
                line = " " * (4 - indent) + line
            elif not before:  # a paragraph after an empty line ends the list
                indent = 0
        fenced ^= line.lstrip().startswith("```")
        done.append(line)
        if not line.startswith(" ") and not item and line.strip():
            indent = 0
    return "\n".join(done)


def _documents() -> list[Path]:
    folder = ROOT / "docs"
    return [p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"]


def _linked(paths: list[Path]) -> set[Path]:
    """The files and, if they are pages, all files that they link to."""
    found: set[Path] = set()
    while paths:
        path = paths.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            text = CODE.sub("", path.read_text(encoding="utf-8"))
            targets = [(path.parent / link).resolve() for link in LINK.findall(text) if ":" not in link]
            paths += [t for t in targets if t.is_file() and t.is_relative_to(ROOT)]
    return found
