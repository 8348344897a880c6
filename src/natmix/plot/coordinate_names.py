"""Names of a mixture's coordinates for axes; a transformed variable is shown with its transformation."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from natmix.models.base import coordinate_names
from natmix.models.structure import leaf_name

if TYPE_CHECKING:
    from natmix.result.result import Result

_LONGEST, _LONGEST_OF_MANY, _MANY = 20, 14, 8
"""The longest name, the longest name among many, and how many that is."""
_BY_PYMC = re.compile(r"_[a-z]+__(?=\[|$)")
"""What PyMC adds to the name of a transformed variable."""


def names(result: Any, dim: int) -> list[str]:
    """The names by which coordinates can be chosen: the model's."""
    model = getattr(result, "model", None)
    return [f"x[{d}]" for d in range(dim)] if model is None else list(model.coordinates)


def bare(name: str) -> str:
    """The name without what PyMC adds."""
    return _BY_PYMC.sub("", name)


def axis_names(result: Any, dim: int, dims: Sequence[int]) -> tuple[list[str], bool]:
    """For the axes of these coordinates, and whether one of them is transformed."""
    plain = names(result, dim)
    longest = _LONGEST_OF_MANY if len(dims) >= _MANY else _LONGEST
    forms = _forms(result, plain)
    shown = [forms[d].format(_short(bare(plain[d]), longest - len(forms[d].format("")))) for d in dims]
    return shown, any(forms[d] != "{}" for d in dims)


def _forms(result: "Result | Any", plain: list[str]) -> list[str]:
    """For every coordinate: "{}" where it is the variable itself, "log {}", "logit {}", or something else."""
    model, draws = getattr(result, "model", None), getattr(result, "draws", None)
    if model is None:
        return ["{}"] * len(plain)
    if draws is None or not len(draws):
        return ["{} (unconstrained)"] * len(plain)
    own = _columns(model.constrain(draws.x))
    x = np.asarray(draws.x, float)
    return [_form(x[:, i], own.get(bare(name))) for i, name in enumerate(plain)]


def _columns(tree: Any) -> dict[str, np.ndarray]:
    """The model's own variables, number by number."""
    out: dict[str, np.ndarray] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        values = np.asarray(leaf, float)
        labels = coordinate_names(leaf_name(path) or "x", values.shape[1:])
        out |= dict(zip(labels, values.reshape(len(values), -1).T, strict=True))
    return out


def _form(x: np.ndarray, own: np.ndarray | None) -> str:
    if own is None:
        return "{} (unconstrained)"
    with np.errstate(divide="ignore", invalid="ignore"):
        for form, values in (
            ("{}", own),
            ("log {}", np.log(own)),
            ("logit {}", np.log(own) - np.log1p(-own)),
        ):
            if np.mean(np.abs(values - x) <= 1e-3 * (1 + np.abs(x))) > 0.95:  # single precision rounds
                return form
    return "{} (unconstrained)"


def _short(name: str, longest: int) -> str:
    longest = max(longest, 8)
    if len(name) <= longest:
        return name
    end = max(longest // 3, len(name) - name.rfind("[") if name.endswith("]") else 0)
    end = min(end, longest - 4)
    return f"{name[: longest - end - 1]}…{name[-end:]}"
