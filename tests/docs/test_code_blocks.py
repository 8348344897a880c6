"""What the documents show runs: Python blocks, install lines, commands, links, and the printed verdict."""

import os
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from natmix.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
README, CONTRIBUTING = ROOT / "README.md", ROOT / "CONTRIBUTING.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
DOCUMENTS = [*PAGES, CONTRIBUTING, ROOT / "results" / "README.md", ROOT / "benchmarks" / "README.md"]

FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
LONGEST = 600
"""Seconds for all blocks of one page."""


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [textwrap.dedent(code) for _, name, code in found if name == language]


def lines(page: Path, command: str) -> list[str]:
    """Lines of shell blocks that call this command."""
    shell = "\n".join(blocks(page, "bash")).splitlines()
    return [line.split("#")[0].strip() for line in shell if line.startswith(f"{command} ")]


def run_blocks(page: Path, folder: Path) -> str:
    """What all Python blocks of a page print, in one fresh process with the programs as shipped."""
    code = "\n".join(blocks(page, "python"))
    fresh = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    fresh |= {
        "MPLBACKEND": "Agg",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "JAX_ENABLE_X64": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=fresh, capture_output=True, text=True, timeout=LONGEST
    )
    assert done.returncode == 0, f"{page.name}: {done.stderr[-3000:]}"
    return done.stdout


def with_python(pages: list[Path]) -> list[Path]:
    return [page for page in pages if blocks(page, "python")]


def shape(verdict: str) -> list[str]:
    """The lines of a verdict without its numbers and without the list of modes."""
    kept = [line for line in verdict.strip().splitlines() if not re.match(r"\s+\d", line)]
    return [re.sub(r"[\d.,]+(e-?\d+)?%?", "#", line).replace("modes", "mode") for line in kept]


def test_the_readme_runs_as_pasted_and_prints_what_it_shows(tmp_path):
    printed = run_blocks(README, tmp_path)
    assert (tmp_path / "orbit.png").is_file()
    (shown,) = blocks(README, "text")
    assert printed.splitlines()[0] == shown.splitlines()[0]
    assert [line.split()[0] for line in shape(printed)] == [line.split()[0] for line in shape(shown)]
    assert shape(printed)[2:4] == shape(shown)[2:4]


def test_the_option_of_contributing_is_an_option(tmp_path):
    run_blocks(CONTRIBUTING, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", with_python(PAGES[1:]), ids=name_of)
def test_the_blocks_of_a_page_run(page, tmp_path):
    run_blocks(page, tmp_path)


@pytest.mark.slow
def test_the_result_that_is_read_line_by_line_is_the_one_that_is_printed(tmp_path):
    page = ROOT / "docs" / "reading.md"
    (shown,) = blocks(page, "text")
    printed = run_blocks(page, tmp_path)
    assert [line.split()[0] for line in shape(printed)] == [line.split()[0] for line in shape(shown)]


@pytest.mark.parametrize("page", with_python(PAGES), ids=name_of)
def test_every_block_is_python(page):
    for code in blocks(page, "python"):
        compile(code, page.name, "exec")


def test_the_readme_fits_a_few_screens():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


@pytest.fixture(scope="module")
def extras(tmp_path_factory) -> set[str]:
    """The extras that the built wheel offers."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = "import hatchling.build, sys; print(hatchling.build.build_wheel(sys.argv[1]))"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    environment["NATMIX_NATIVE"] = "0"  # kernels are compiled in vain here
    subprocess.run(
        [sys.executable, "-c", build, str(folder)], cwd=ROOT, env=environment, check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    return set(metadata.get_all("Provides-Extra") or [])


def named_extras(text: str) -> set[str]:
    found = re.findall(r"pip install '?(?:\.|natmix)\[([^\]]+)\]", text)
    return {extra for group in found for extra in group.split(",")}


def test_extras_named_anywhere_are_those_of_the_wheel(extras):
    named = set().union(*(named_extras(page.read_text(encoding="utf-8")) for page in DOCUMENTS))
    messages = set().union(
        *(named_extras(p.read_text(encoding="utf-8")) for p in (ROOT / "src").rglob("*.py"))
    )
    named |= {extra for extra in messages if "{" not in extra}
    assert {"plot", "numpyro", "arviz"} <= named <= extras


def test_the_list_of_other_extras_is_complete():
    text = README.read_text(encoding="utf-8")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    missing = {e for e in declared if f"`{e}`" not in text and e not in named_extras(text)}
    assert missing <= {"dev", "docs", "reference"}


def commands() -> list[str]:
    return sorted({line for page in DOCUMENTS for line in lines(page, "natmix")})


@pytest.mark.parametrize("line", commands())
def test_commands_and_their_options_exist(line):
    words = line.split()[1:]
    group = typer.main.get_command(app)
    while words and hasattr(group, "commands"):
        assert words[0] in group.commands, f"natmix has no command {words[0]}"
        group = group.commands[words.pop(0)]
    known = {name for parameter in group.params for name in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in words if word.startswith("--")}
    assert used <= known
    assert CliRunner().invoke(app, [*line.split()[1:2], "--help"]).exit_code == 0


@pytest.mark.parametrize("page", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if not link.startswith(("http", "#")):
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve()
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or anchor in anchors(target), f"{page.name} links to {link}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
