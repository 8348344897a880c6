"""The API reference of the site: every public name is in it, and everything in it exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
API = sorted((ROOT / "docs" / "api").glob("*.md"))
ENTRY = re.compile(r"^::: (\S+)$", re.MULTILINE)


def entries() -> list[str]:
    return [name for page in API for name in ENTRY.findall(page.read_text(encoding="utf-8"))]


def documented(name: str):
    """The object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public_objects() -> dict[str, object]:
    """Public classes and functions, without their methods; no constants."""
    lines = (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").splitlines()
    names = [line.split("(")[0] for line in lines if "(" in line]
    tops = [n for n in names if not any(n.startswith(f"{other}.") for other in names)]
    return {name: documented(name) for name in tops}


@pytest.mark.parametrize("name", entries())
def test_an_entry_is_a_public_name_with_a_docstring(name):
    assert documented(name).__doc__


def test_no_entry_occurs_twice():
    found = entries()
    assert sorted(set(found)) == sorted(found)


def test_every_public_class_and_function_is_in_the_reference():
    there = [documented(name) for name in entries()]
    assert [n for n, o in public_objects().items() if not any(o is other for other in there)] == []


@pytest.mark.parametrize("page", [p for p in API if p.name != "README.md"], ids=lambda p: p.name)
def test_a_page_of_the_reference_has_an_example_and_is_in_its_index(page):
    assert "```python\n" in page.read_text(encoding="utf-8")
    assert f"]({page.name})" in (ROOT / "docs" / "api" / "README.md").read_text(encoding="utf-8")


def test_every_page_of_docs_is_in_the_navigation():
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if page not in config] == []
