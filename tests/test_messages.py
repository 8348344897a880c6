"""What messages say: names that may be meant, extras to install, calls that work as printed."""

import ast
import builtins
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import natmix
from natmix.experiments import problems
from natmix.text import extras
from natmix.text.extras import install, installed_from, needs
from natmix.text.suggestions import closest, hint, meant

ROOT = Path(natmix.__file__).parent


# Names that may be meant --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("sgima", ["mu", "sigma"], "sigma"),
        ("Breast-Cancer", ["wine", "breast_cancer"], "breast_cancer"),
        ("y", ["Y"], "Y"),
        ("nothing", ["mu", "sigma"], None),
        (3, ["mu"], None),
        ("mu", [], None),
    ],
)
def test_the_closest_name(name, known, found):
    assert closest(name, known) == found
    assert meant(name, known) == ("" if found is None else f" Did you mean {found!r}?")


def test_names_are_listed_if_none_is_close():
    assert hint("foo", ["a", "b"]) == "There are a, b."
    assert hint("foo", []) == "There are none."
    assert hint("foo", [f"name{i}" for i in range(100)]).endswith("name39, ….")


def density(x):
    return -0.5 * jnp.sum(x**2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"algorithm": "samtrom"}, "Did you mean SAMTRON?"),
        ({"algorithm": "SAMTROON"}, "Did you mean SAMTRON?"),
        ({"algorithm": "samtro"}, "Did you mean SAMTRON?"),
        ({"start": "pathfinderr"}, "Did you mean 'pathfinder'?"),
        ({"covariance": "diag"}, "Did you mean 'diagonal'?"),
        ({"component_adaption": {}}, "Did you mean 'component_adaptation'?"),
        ({"max_evals": 10}, "Did you mean 'max_evaluations'?"),
        ({"sample_selector": {"desired_sample": 10}}, "Did you mean 'desired_samples'?"),
        ({"bounds": {"sgma": (0, 1)}, "position": {"sigma": 0.5}}, "Did you mean 'sigma'?"),
    ],
)
def test_misspelt_arguments(options, words):
    with pytest.raises(ValueError, match=words.removesuffix("?")) as caught:
        natmix.fit(density, None if "position" in options else 2, max_iterations=1, **options)
    assert not re.search(r"; [A-Z][a-z]", str(caught.value))


def test_misspelt_modules_options_problems_and_figures():
    with pytest.raises(ValueError, match="Did you mean 'weight_updater'"):
        natmix.GMMVI.from_codename("samtron", weight_updatr={})
    with pytest.raises(ValueError, match=r"no option 'componnts'\. Did you mean 'components'"):
        problems.load("gmm2", componnts=3)
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="Did you mean 'corner'"):
        natmix.plot.draw(None, "corners")


def test_an_algorithm_that_means_nothing_suggests_nothing():
    with pytest.raises(ValueError, match="seven letters") as caught:
        natmix.GMMVI.from_codename("adam")
    assert "Did you mean" not in str(caught.value)


# Extras -------------------------------------------------------------------------------------------


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    with (
        pytest.raises(ImportError, match=re.escape(f"This needs X: {install('plot')}.")),
        needs("X", "plot"),
    ):
        raise ImportError("no X")
    real = builtins.__import__

    def without(name, *args):
        if name.split(".")[0] in ("pandas", "sklearn", "arviz"):
            raise ImportError(name)
        return real(name, *args)

    result = natmix.fit(density, 2, algorithm="semydux", max_iterations=3, progress=False)
    monkeypatch.setattr(builtins, "__import__", without)
    for call, library, extra in (
        (result.to_pandas, "pandas", "arviz"),
        (natmix.fit_many(density, [], dim=2).to_pandas, "pandas", "arviz"),
        (result.to_arviz, "ArviZ", "arviz"),
        (result.mixture.to_sklearn, "scikit-learn", "sklearn"),
    ):
        with pytest.raises(ImportError, match=re.escape(f"needs {library}: {install(extra)}.")):
            call()


def clone(folder):
    (folder / "src" / "natmix").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    return folder


def command(monkeypatch, package, record):
    monkeypatch.setattr(extras, "_installed", lambda: installed_from(package, record))
    return install("plot")


def test_an_extra_is_installed_as_natmix_was(monkeypatch, tmp_path):
    root = clone(tmp_path / "a clone")
    package = tmp_path / "site-packages" / "natmix"
    folder = {"url": root.as_uri(), "dir_info": {}}
    wheel = {"url": "file:///tmp/natmix-0.2.0-py3-none-any.whl", "archive_info": {}}
    repository = {"url": "https://example.org/natmix.git", "vcs_info": {"vcs": "git"}}
    gone = {"url": "file:///nowhere/natmix", "dir_info": {}}
    for place, record, expected in (
        (package, {}, "pip install 'natmix[plot]'"),
        (package, wheel, "pip install 'natmix[plot]'"),
        (package, gone, "pip install 'natmix[plot]'"),
        (package, repository, "pip install 'natmix[plot] @ git+https://example.org/natmix.git'"),
        (package, folder, f"pip install '{root}[plot]'"),
        (root / "src" / "natmix", {}, f"pip install --editable '{root}[plot]'"),
    ):
        assert command(monkeypatch, place, record) == expected
    monkeypatch.chdir(root)
    assert command(monkeypatch, package, folder) == "pip install '.[plot]'"
    assert command(monkeypatch, root / "src" / "natmix", {}) == "pip install --editable '.[plot]'"
    monkeypatch.setattr("sys.platform", "win32")
    assert command(monkeypatch, package, {}) == 'pip install "natmix[plot]"'


def test_extras_exist():
    extras = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = {"needs": 1, "install": 0}.get(node.func.id)
                extra = None if place is None else node.args[place]
                if isinstance(extra, ast.Constant):
                    named.add(extra.value)
    assert {"plot", "numpyro", "pymc", "stan", "arviz", "sklearn"} <= named
    assert named <= set(extras)


# What is printed can be run -----------------------------------------------------------------------

_CALL = re.compile(r"(?<![\w.])(?:natmix|result)(?:\.\w+)+\((?:[^()]|\([^()]*\))*\)")


def messages() -> Iterator[tuple[str, str]]:
    """All texts in the code that are not docstrings, with a name in place of what is filled in."""
    for path in sorted(ROOT.rglob("*.py")):
        tree = ast.parse(path.read_text())
        inside = {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)
        }
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "VALUE" for p in node.values]
                yield where, "".join(map(str, parts))
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in inside | statements
            ):
                yield where, node.value


def calls() -> list[tuple[str, str]]:
    return [(where, call) for where, text in messages() for call in _CALL.findall(text)]


def test_there_are_calls_in_messages():
    assert {"result.diagnose", "result.resample", "natmix.Result.load"} <= {
        c.split("(")[0] for _, c in calls()
    }


@pytest.mark.parametrize(("where", "call"), calls(), ids=lambda v: v if "(" not in v else "")
def test_calls_in_messages_work(where, call):
    """They are Python, what they call exists, and takes these arguments."""
    expression = ast.parse(call, mode="eval").body
    assert isinstance(expression, ast.Call)
    path = ast.unparse(expression.func).split(".")
    found: Any = natmix.Result if path[0] == "result" else natmix
    for name in path[1:]:
        found = natmix.Mixture if name == "mixture" else getattr(found, name)
    arguments = [None] * len(expression.args)
    if ... in [getattr(a, "value", None) for a in expression.args]:
        return  # "natmix.fit(...)": the arguments are left to the reader
    owner = [None] if path[0] == "result" else []
    inspect.signature(found).bind(*owner, *arguments, **{str(k.arg): None for k in expression.keywords})


def test_no_sentence_begins_after_a_semicolon():
    names = r"(?!NumPyro|PyMC|Stan|BridgeStan|JAX|ArviZ|NUTS|None|Python|GMMVI|ELBO|Pareto|HostTarget|Ctrl)"
    found = [(where, text) for where, text in messages() if re.search(rf"; {names}[A-Z][a-z]", text)]
    assert not found
