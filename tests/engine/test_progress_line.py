"""The live line: how much of the budget is spent, and where it is shown."""

import io
import sys
import types
from typing import Any

import jax.numpy as jnp
import pytest
from quick_fits import LEAST
from rich.text import Text

import natmix
from natmix.engine.limits import Limits
from natmix.engine.live_line import LiveLine
from natmix.engine.progress_line import Spent, duration
from natmix.text.notebook_line import in_notebook


class Run(types.SimpleNamespace):
    """What `Spent` reads of a run."""

    def __init__(self, **values):
        usual = {"iterations": 0, "evaluations": 0, "seconds": 0.0, "compile_seconds": 0.0}
        usual |= {"running_seconds": 0.0, "aside": 0, "seconds_aside": 0.0}
        super().__init__(**(usual | values))


def spent(**values) -> Spent:
    run: Any = Run(**values)
    return Spent.of(run)


def test_the_share_is_that_of_the_limit_reached_first():
    limits = Limits(max_evaluations=11_000, max_iterations=100, max_seconds=300)
    now = spent(
        limits=limits, iterations=10, evaluations=5000, aside=1000, running_seconds=20.0, seconds=30.0
    )
    assert now == (pytest.approx(0.5), pytest.approx(20.0))  # as much again; 180 s by the iterations
    assert now.text() == "  50% of the budget, up to 20 s left"
    late = spent(limits=limits, iterations=1, evaluations=10, running_seconds=20.0, seconds=297.0)
    assert late == (pytest.approx(0.99), pytest.approx(3.0))


def test_without_limits_nothing_is_said():
    assert spent(limits=Limits(), iterations=5, running_seconds=3.0).text() == ""
    assert spent(limits=Limits(max_iterations=10)).text() == ""
    done = spent(limits=Limits(max_iterations=10), iterations=10, running_seconds=3.0)
    assert done.text() == "  100% of the budget, up to 0 s left"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2 min"), (9000, "2.5 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, data, raw):
        assert raw
        self.shown.append(data)


@pytest.fixture
def kernel(monkeypatch):
    """IPython in a Jupyter kernel; the lines of the cell's only output."""
    shown: list[dict[str, str]] = []

    def display(data, raw, display_id):
        assert raw
        assert display_id
        assert not shown
        shown.append(data)
        return Handle(shown)

    class ZMQInteractiveShell:
        pass

    class Shell(ZMQInteractiveShell):
        """Colab's is derived from it."""

    ipython: Any = types.ModuleType("IPython")
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    ipython.get_ipython = Shell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_a_notebook_is_known_by_its_shell(kernel, monkeypatch):
    assert in_notebook()
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: types.SimpleNamespace())
    assert not in_notebook()  # IPython on a terminal
    monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
    assert not in_notebook()
    monkeypatch.delitem(sys.modules, "IPython")
    assert not in_notebook()


def test_a_fit_in_a_notebook_shows_one_line(kernel, capfd):
    options = {**LEAST, "progress": None}
    natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, **options)
    assert kernel[0]["text/plain"] == "SEMYDUX  compiling …"
    last = kernel[-1]["text/plain"]
    assert "iteration 3 " in last
    assert last.endswith("100% of the budget")  # nothing is left
    assert "\n" not in last
    assert kernel[-1]["text/html"].startswith("<code")
    assert capfd.readouterr() == ("", "")


def test_no_line_without_progress(kernel, capfd):
    natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, **LEAST)
    assert not kernel
    assert capfd.readouterr() == ("", "")


def test_few_of_many_updates_are_sent_and_the_last_one_is(kernel):
    with LiveLine(Text("first"), None, 2.0) as line:
        for i in range(1000):
            line.say(Text(f"<{i}>"))
    assert 2 < len(kernel) < 20
    assert kernel[-1] == {
        "text/plain": "<999>",
        "text/html": '<code style="white-space: pre-wrap; font-family: monospace">&lt;999&gt;</code>',
    }


def test_elsewhere_a_line_is_shown_on_a_terminal_only(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    with LiveLine(Text("first"), None, 2.0) as line:
        line.say(Text("second"))
    assert written.getvalue() == ""


def test_in_a_real_notebook(tmp_path):
    """One output for the line, one for the result, and nothing printed."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    code = (
        "import jax.numpy as jnp, natmix, matplotlib; matplotlib.use('agg')\n"
        "result = natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, max_evaluations=20_000)\n"
        "axes = result.plot()\n"
        "result"
    )
    silent = "result.plot()", "natmix.plot.plot_corner(result)", "natmix.plot.plot_trajectory(result)"
    cells = [nbformat.v4.new_code_cell(text) for text in (code, *silent)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = notebook.cells[0].outputs
    assert [o.output_type for o in outputs] == ["display_data", "execute_result"]
    assert "of the budget" in outputs[0].data["text/plain"]
    assert "<table>" in outputs[1].data["text/html"]
    assert not any(cell.outputs for cell in notebook.cells[1:])  # axes do not print


@pytest.mark.slow
def test_a_notebook_of_everything_that_has_a_view(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    nbconvert = pytest.importorskip("nbconvert")
    pytest.importorskip("ipykernel")
    code = (
        "import jax.numpy as jnp, natmix\n"
        "result = natmix.fit(lambda x: -0.5 * jnp.sum(x**2), 2, max_evaluations=20_000)\n"
    )
    shown = {
        "result": "ELBO",
        "result.diagnosis": "k-hat",
        "result.mixture": "weight",
        "natmix.compare({'<a>': result, 'b': result})": "&lt;a&gt;",
        "natmix.experiments.problems.load('gmm2')": "gmm2",
    }
    cells = [nbformat.v4.new_code_cell(text) for text in (code, *shown)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell, words in zip(notebook.cells[1:], shown.values(), strict=True):
        (output,) = cell.outputs
        assert output.output_type == "execute_result"
        assert words in output.data["text/html"]
    page, _ = nbconvert.HTMLExporter().from_notebook_node(notebook)
    assert all(words in page for words in shown.values())
