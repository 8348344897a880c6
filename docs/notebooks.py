"""Run the tutorials as notebooks and keep them with their outputs: docs/tutorials/NAME.ipynb.

    python docs/notebooks.py [NAME ...]

A tutorial is written as a script in jupytext's percent format, so that changes of it can be read. A cell that
raises an error ends the command, and the notebook of before stays.
"""

import argparse
import os
import re
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).resolve().parent / "tutorials"
SECONDS = 1200
"""The longest that a cell may take."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def scripts() -> list[Path]:
    """All tutorials."""
    return sorted(TUTORIALS.glob("*.py"))


def executed(script: Path) -> nbformat.NotebookNode:
    """The notebook of a script with the outputs of all cells."""
    notebook = jupytext.read(script)
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(TUTORIALS)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = [_plain(output) for output in _joined(cell.outputs)]
    return notebook


def _joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with one piece of text for what was printed in several."""
    kept: list[nbformat.NotebookNode] = []
    for output in outputs:
        before = kept[-1] if kept else {}
        if output.output_type == "stream" and before.get("output_type") == "stream":
            before["text"] += output.text
        else:
            kept.append(output)
    return kept


def _plain(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """An output without colours and paths of this machine."""
    if output.output_type == "stream":
        output.text = ESCAPES.sub("", output.text).replace(str(Path.home()), "~")
    return output


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="tutorials, such as evidence; all if left out")
    names = parser.parse_args().names
    known = {script.stem: script for script in scripts()}
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"no tutorial is called {', '.join(unknown)}; there are {', '.join(known)}.")
    os.environ["PYTHONWARNINGS"] = "ignore"
    for name in names or known:
        start = time.perf_counter()
        notebook = executed(known[name])
        nbformat.write(notebook, known[name].with_suffix(".ipynb"))
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
