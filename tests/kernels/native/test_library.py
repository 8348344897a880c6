"""The compiled libraries: their tables, and which of them are refused."""

import ast
import ctypes
import importlib.util
import inspect
import shutil
import subprocess
import sys
import types
import warnings
from pathlib import Path

import jax
import pytest

from natmix.experiments import native as experiments
from natmix.experiments.native.calls import LIBRARY as EXPERIMENTS
from natmix.kernels import native
from natmix.kernels.native import library
from natmix.kernels.native.library import CORE, NativeLibrary
from natmix.kernels.native.sources import SHARED

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

ROOT = Path(__file__).parents[3]
LIBRARIES = {"core": (CORE, native), "experiments": (EXPERIMENTS, experiments)}


def called(module: types.ModuleType) -> set[str]:
    """Names of the kernels that a package's calls name, as text."""
    source = ast.parse(inspect.getsource(sys.modules[f"{module.__name__}.calls"]))
    texts = {n.value for n in ast.walk(source) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return {name for lib, _ in LIBRARIES.values() for name in lib.kernels} & texts


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_table_and_python_have_the_same_kernels(name: str) -> None:
    """One name for one operation, from Python to C."""
    lib, module = LIBRARIES[name]
    assert called(module) == set(lib.kernels)
    assert set(lib.kernels) == set(module.__all__) - {"available", "used"}


def test_the_core_has_no_target_of_the_paper() -> None:
    assert not set(CORE.kernels) & set(EXPERIMENTS.kernels)


def test_the_library_of_the_experiments_is_loaded_when_a_problem_needs_it() -> None:
    code = """
import natmix.experiments.problems
from natmix.experiments.native.calls import LIBRARY
print("kernels" in vars(LIBRARY))
natmix.experiments.problems.load("breast_cancer")
print("kernels" in vars(LIBRARY))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def fresh(path: Path) -> NativeLibrary:
    return NativeLibrary(path, SHARED, "natmix_other")


def refused(lib: NativeLibrary, why: str) -> None:
    """With one warning, however often it is asked."""
    with pytest.warns(RuntimeWarning, match=f"{why}; install natmix again") as record:
        assert not any(lib.available() for _ in range(2))
    assert len(record) == 1
    with pytest.raises(RuntimeError, match="installed without its native kernels"):
        lib.call("nonzero", {})


def test_where_there_is_no_library_nothing_is_said(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not fresh(tmp_path / "nothing.so").available()


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "libnatmix.so"
    broken.write_bytes(b"not a library")
    refused(fresh(broken), "it is not a library of natmix for this machine")


def test_another_library_is_refused() -> None:
    foreign = importlib.util.find_spec("_ctypes").origin
    refused(fresh(Path(foreign)), "it is not a library of natmix for this machine")


def test_a_library_of_other_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "digest", lambda *folders: "0" * 16)
    refused(fresh(Path(shutil.copy(CORE.path, tmp_path))), "they were not compiled from its sources")


@pytest.mark.parametrize("version", [(0, 0), (1, 9), None])
def test_a_library_for_another_interface_of_xla_is_refused(
    version: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One that is too old for it or incompatible, or a jaxlib whose version is not known."""
    monkeypatch.setattr(library, "_ffi_version", lambda: version)
    known = "an unknown one" if version is None else "{}.{}".format(*version)
    why = f"they were compiled for version .* of XLA's interface, and jaxlib has {known}"
    refused(fresh(Path(shutil.copy(CORE.path, tmp_path))), why)


def test_a_library_that_xla_itself_refuses_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def register(*arguments: object, **options: object) -> None:
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: an incompatible version")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", register)
    refused(fresh(Path(shutil.copy(CORE.path, tmp_path))), r"XLA refuses it \(INVALID_ARGUMENT: .*\)")


def test_the_version_of_the_interface_is_that_of_the_header() -> None:
    built = tuple((ctypes.c_int * 2).in_dll(ctypes.CDLL(str(CORE.path)), "natmix_ffi_version"))
    here = library._ffi_version()
    assert here is not None
    assert (built[0], built[1]) <= here


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    import build_native

    return build_native


def test_a_failed_compilation_leaves_the_library_that_works(
    builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "libnatmix.so"
    target.write_bytes(b"the one that works")
    monkeypatch.setattr(builder, "compiler", lambda: ("false",))
    with pytest.raises(builder.CannotBuildError):
        builder.build(builder.LIBRARIES[0], target)
    assert target.read_bytes() == b"the one that works"
    assert list(tmp_path.iterdir()) == [target]


def test_without_jaxlib_there_is_no_header(builder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (builder.ffi_include() / "xla" / "ffi" / "api" / "c_api.h").exists()
    monkeypatch.setattr(builder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(builder.CannotBuildError, match="no jaxlib with the header"):
        builder.ffi_include()


def test_no_kernel_ends_the_process() -> None:
    for lib, _ in LIBRARIES.values():
        for path in (path for folder in lib._folders for path in folder.glob("*.[ch]")):
            code = path.read_text(encoding="utf-8")
            assert not any(f"{name}(" in code for name in (" abort", " exit", " _exit", " assert")), path
