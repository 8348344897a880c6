"""Packages import downwards only, and the core knows nothing of the experiments of the paper."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import natmix

ROOT = Path(natmix.__file__).parent
LAYERS = (
    ("cli", "__main__", "watch"),
    ("experiments", "calibration"),
    ("fit", "fit_many", "integrations", "result", "plot", "recorders", "report"),
    ("engine",),
    ("diagnostics", "initialization"),
    ("gmmvi",),
    ("modules", "targets", "models"),
    ("mixture",),
    ("gaussians",),
    ("kernels",),
    (
        "array_types",
        "checks",
        "estimate",
        "files",
        "host_memory",
        "interrupts",
        "random_keys",
        "registry",
        "text",
        "_version",
    ),
)
"""From the top: each line may import what is on its own and on the lines below."""
LEVEL = {name: len(LAYERS) - depth for depth, line in enumerate(LAYERS) for name in line}
MAY_IMPORT_EXPERIMENTS = {"cli", "experiments", "watch"}


def modules() -> dict[str, Path]:
    """All modules below natmix by dotted name; `natmix` itself has the public names and stands above all."""
    paths = sorted(ROOT.rglob("*.py"))
    dotted = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    return {name.removesuffix(".__init__"): path for name, path in dotted.items() if name != "__init__"}


MODULES = modules()


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """The modules of natmix that a module imports anywhere, but for type checkers alone."""
    if isinstance(tree, ast.Import):
        for alias in tree.names:
            if alias.name.split(".")[0] == "natmix":
                yield alias.name.removeprefix("natmix").removeprefix(".")
    elif isinstance(tree, ast.ImportFrom):
        yield from imported_from(tree, module, is_package)
    elif isinstance(tree, ast.If) and ast.unparse(tree.test).endswith("TYPE_CHECKING"):
        for node in tree.orelse:
            yield from imports(node, module, is_package)
    else:
        for node in ast.iter_child_nodes(tree):  # type: ignore[assignment]
            yield from imports(node, module, is_package)


def imported_from(node: ast.ImportFrom, module: str, is_package: bool) -> Iterator[str]:
    if node.level:
        here = module.split(".") if is_package else module.split(".")[:-1]
        parents = here[: len(here) - node.level + 1]
        source = ".".join([*parents, *([node.module] if node.module else [])])
    elif node.module and node.module.split(".")[0] == "natmix":
        source = node.module.removeprefix("natmix").removeprefix(".")
    else:
        return
    for alias in node.names:
        name = f"{source}.{alias.name}".removeprefix(".")
        yield name if name in MODULES else source


def imported(module: str) -> list[str]:
    path = MODULES[module]
    return sorted(set(imports(ast.parse(path.read_text()), module, path.name == "__init__.py")))


def top(module: str) -> str:
    return module.split(".")[0]


def test_every_module_has_a_layer():
    """A new folder or file at the root goes into LAYERS; one that is gone leaves it."""
    assert {top(module) for module in MODULES} == set(LEVEL)


@pytest.mark.parametrize("layer", [name for line in LAYERS for name in line])
def test_layers_import_downwards(layer):
    upwards = {
        f"natmix.{module} imports natmix.{other}" if other else f"natmix.{module} imports natmix itself"
        for module in MODULES
        if top(module) == layer
        for other in imported(module)
        if not other or LEVEL[top(other)] > LEVEL[layer]
    }
    assert not upwards, "\n".join(["imports upwards:", *sorted(upwards)])


def test_only_experiments_and_commands_import_experiments():
    importers = {
        top(module) for module in MODULES for other in imported(module) if top(other) == "experiments"
    }
    assert importers <= MAY_IMPORT_EXPERIMENTS


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import natmix.gmmvi", ["gmmvi"]),
        ("from natmix import gmmvi, fit", ["gmmvi", "fit"]),
        ("from natmix.gmmvi import GMMVI", ["gmmvi"]),
        ("from natmix.modules import state", ["modules.state"]),
        ("from .state import State", ["modules.state"]),
        ("def f():\n    from natmix.gmmvi import GMMVI", ["gmmvi"]),
        ("import natmix", [""]),
        ("from natmix import Mixture", [""]),
        ("if TYPE_CHECKING:\n    import natmix.gmmvi\nelse:\n    import natmix.fit", ["fit"]),
        ("import jax", []),
    ],
)
def test_the_imports_of_a_module_are_found(source, expected):
    assert list(imports(ast.parse(source), "modules.codenames", is_package=False)) == expected


def test_one_class_name_is_one_class():
    places: dict[str, list[str]] = {}
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {name: where for name, where in places.items() if len(where) > 1}
