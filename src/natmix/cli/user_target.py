"""The target that a command names: ``module:name``, ``file.py:name`` or a Stan program."""

import importlib
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from natmix.text.suggestions import hint

_FORMS = "module:name, path/to/file.py:name or a .stan file"


def load_object(text: str) -> Any:
    """The object that a command names; the path of a .stan file.

    Raises:
        ValueError: there is none, in one sentence that says what there is.
    """
    if text.lower().endswith(".stan"):
        path = Path(text)
        if not path.is_file():
            raise FileNotFoundError(f"There is no Stan program {path}.")
        return path
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name:
        raise ValueError(_without_name(text))
    module = _module(where)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"{where} has no {name!r}. {hint(part, defined(module))}")
        found = getattr(found, part)
    return found


def defined(module: ModuleType) -> list[str]:
    """Names that a module makes itself, imported ones left out."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", module.__name__) == module.__name__
    ]


def _without_name(text: str) -> str:
    if text.endswith(".py") and Path(text).is_file():
        return f"Name the target in {text} too, as in {text}:NAME. {hint('', defined(_module(text)))}"
    return f"A target is named as {_FORMS}, got {text!r}."


def _module(where: str) -> ModuleType:
    return _from_file(Path(where)) if where.endswith(".py") else _by_name(where)


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    name = path.stem
    if name in sys.modules or not name.isidentifier():
        name = "natmix_target_" + re.sub(r"\W", "_", path.stem)  # numpy.py must not take numpy's place
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _find_beside(path.resolve().parent)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(_broken(str(path), error)) from error
    return module


def _by_name(name: str) -> ModuleType:
    _find_beside(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        parts = name.split(".")
        if error.name in {".".join(parts[: i + 1]) for i in range(len(parts))}:
            raise ValueError(
                f"There is no module {error.name!r}, here ({Path.cwd()}) or installed; for a file write "
                "path/to/file.py:name."
            ) from error
        raise ValueError(_broken(name, error)) from error
    except (Exception, SystemExit) as error:
        raise ValueError(_broken(name, error)) from error


def _find_beside(folder: Path) -> None:
    """Modules beside the user's are found, as by ``python file.py`` and ``python -m module``."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _broken(where: str, error: BaseException) -> str:
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).stem == Path(where).stem or frame.filename.endswith(
            where.replace(".", "/") + ".py"
        ):
            line = f" in line {frame.lineno}"
    if isinstance(error, SyntaxError):
        line = f" in line {error.lineno}"
    text = str(error).splitlines()
    return f"{where} cannot be imported: it raised {type(error).__name__}{line}: {text[0] if text else ''}"
