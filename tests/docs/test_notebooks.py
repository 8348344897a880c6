"""Tutorials and gallery: notebooks are executed, say what their scripts say, and every figure is shown."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

import natmix

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
GALLERY = sorted((ROOT / "docs" / "gallery").glob("*.py"))
MARKER = re.compile(r"^# %%( \[markdown\])?$", re.MULTILINE)


def cells_of(script: Path) -> list[tuple[str, str]]:
    """Kind and text of the cells of a script in the percent format."""
    pieces = MARKER.split(script.read_text(encoding="utf-8"))
    found = []
    for kind, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if kind:
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines())
        found.append(("markdown" if kind else "code", text.strip()))
    return found


def notebook_of(script: Path) -> list[dict]:
    return json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))["cells"]


def text_of(cell: dict) -> str:
    source = cell["source"]
    return (source if isinstance(source, str) else "".join(source)).strip()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_has_the_cells_of_its_script(script):
    assert [(c["cell_type"], text_of(c)) for c in notebook_of(script)] == cells_of(script)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_a_notebook_is_executed_and_says_nothing_of_its_machine(script):
    code = [c for c in notebook_of(script) if c["cell_type"] == "code"]
    assert [c["execution_count"] for c in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert all(output["output_type"] != "error" for output in outputs)
    for output in outputs:
        if output["output_type"] == "stream":
            text = "".join(output["text"])
            assert "/root" not in text
            assert "/tmp/" not in text
            assert "Traceback" not in text
            assert "Skipped" not in text


def test_every_tutorial_is_listed():
    page = (ROOT / "docs" / "tutorials" / "README.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for script in SCRIPTS:
        assert f"({script.stem}.ipynb)" in page
        assert f"({script.name})" in page
        assert f"docs/tutorials/{script.stem}.md" in navigation


def test_every_figure_is_in_the_gallery():
    page = (ROOT / "docs" / "gallery" / "README.md").read_text(encoding="utf-8")
    scripts = "".join(script.read_text(encoding="utf-8") for script in GALLERY)
    for name in natmix.plot.__all__:
        if name.startswith("plot_"):
            assert f"natmix.plot.{name}(" in scripts
            assert f"natmix.plot.{name}`" in page
    for script in GALLERY:
        assert f"({script.stem}.png)" in page
        assert script.with_suffix(".png").is_file()


def test_the_equations_have_a_picture_for_each_module():
    page = (ROOT / "docs" / "equations.md").read_text(encoding="utf-8")
    pictures = re.findall(r"\]\((modules/\w+\.png)\)", page)
    assert len(pictures) == 7
    assert all((ROOT / "docs" / picture).is_file() for picture in pictures)


def test_a_notebook_becomes_a_page_with_its_outputs(tmp_path):
    pytest.importorskip("mkdocs")
    place = ROOT / "docs" / "site" / "notebooks.py"
    spec = importlib.util.spec_from_file_location("notebook_pages", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "text"]},
        {
            "cell_type": "code",
            "source": "print('<b>')",
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["<b>\n", "*x*\n"]},
                {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": "Figure"}},
                {"output_type": "display_data", "data": {"text/html": "<code>line</code>"}},
            ],
        },
    ]
    notebook = tmp_path / "one.ipynb"
    notebook.write_text(json.dumps({"cells": cells}))
    text, pictures = module.page_of(notebook)
    assert text.startswith("# Title\ntext\n\n```python\nprint('<b>')\n```\n\n")
    assert '<pre class="output">&lt;b&gt;&#10;*x*</pre>' in text
    assert "](one_1.png)" in text
    assert pictures == {"one_1.png": b"hi"}
    assert '<div class="output"><code>line</code></div>' in text
