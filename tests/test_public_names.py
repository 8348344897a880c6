"""The public names and signatures, as recorded in public_names.txt beside this file.

A difference is either a mistake or a change of what users may rely on. After a deliberate one, run

    python tests/test_public_names.py

look at the difference, and say in CHANGELOG.md what changed.
"""

import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

RECORD = Path(__file__).with_name("public_names.txt")
PACKAGES = (
    "natmix",
    "natmix.calibration",
    "natmix.diagnostics",
    "natmix.experiments",
    "natmix.gaussians",
    "natmix.initialization",
    "natmix.integrations.blackjax",
    "natmix.integrations.pymc",
    "natmix.mixture",
    "natmix.models",
    "natmix.plot",
    "natmix.recorders",
    "natmix.result",
    "natmix.targets",
)
WITH_METHODS = ("GMMVI", "Mixture", "Result", "JaxTarget", "HostTarget")
LAZY = ("calibration", "diagnostics", "experiments", "integrations", "models", "plot", "recorders")


def public_names() -> Iterator[str]:
    """A line for each public name; functions and methods with the names and kinds of their arguments."""
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(getattr(module, "__all__", ())):
            with_methods = package == "natmix" and name in WITH_METHODS
            yield from described(f"{package}.{name}", getattr(module, name), with_methods)


def described(path: str, value: object, with_methods: bool) -> Iterator[str]:
    if inspect.isclass(value):
        yield f"{path}{signature(value)}"
        if with_methods:
            for name in sorted(n for n in dir(value) if not n.startswith("_")):
                yield f"{path}.{name}{signature(inspect.getattr_static(value, name))}"
    else:
        yield f"{path}{signature(value)}"


def signature(value: object) -> str:
    """``(a, b=..., *, c=...)`` of a function or a class's constructor, empty for anything else."""
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    ours = str(getattr(function, "__module__", "")).startswith("natmix")
    if not ours or not callable(function):
        return ""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return "(...)"
    empty = inspect.Parameter.empty
    plain = [
        p.replace(annotation=empty, default=empty if p.default is empty else Shown()) for p in parameters
    ]
    return str(inspect.Signature(plain))


class Shown:
    """A default value, whatever it is."""

    def __repr__(self) -> str:
        return "..."


def test_public_names_are_those_recorded():
    now, recorded = list(public_names()), RECORD.read_text().splitlines()
    gone = [f"- {line}" for line in recorded if line not in now]
    new = [f"+ {line}" for line in now if line not in recorded]
    assert not gone + new, "\n".join(["public names changed (see the top of this file):", *gone, *new])


def fresh(code: str) -> str:
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


@pytest.mark.parametrize("name", LAZY)
def test_subpackages_are_attributes_in_a_fresh_process(name):
    public = fresh(f"import natmix; assert {name!r} in dir(natmix); print(*dir(natmix.{name}))").split()
    assert set(getattr(importlib.import_module(f"natmix.{name}"), "__all__", ())) <= set(public)


def test_readmes_examples_work_in_a_fresh_process():
    fresh("import natmix; natmix.diagnostics.agreement; natmix.calibration.simulation_check")


def test_importing_natmix_imports_no_more_than_it_needs():
    """Start-up time: what only some commands, figures or models need comes with them."""
    loaded = set(fresh("import natmix, sys; print(*sys.modules)").split())
    optional = {
        *("arviz", "blackjax", "click", "httpstan", "IPython", "matplotlib", "numpyro", "optax", "pandas"),
        *("pinocchio", "pymc", "pytensor", "sklearn", "stan", "typer", "xarray"),
        *("natmix.calibration", "natmix.cli", "natmix.plot", "natmix.recorders", "natmix.watch"),
        *("mlflow", "tensorboardX", "wandb"),
    }
    assert not optional & loaded


def test_importing_natmix_leaves_the_experiments_alone():
    loaded = fresh("import natmix, sys; print(*sys.modules)").split()
    assert not [name for name in loaded if name.startswith("natmix.experiments")]


def test_an_unknown_attribute_is_an_attribute_error():
    import natmix

    with pytest.raises(AttributeError, match="nosuch"):
        _ = natmix.nosuch


if __name__ == "__main__":
    RECORD.write_text("\n".join(public_names()) + "\n")
