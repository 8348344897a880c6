"""ArviZ's container of samples: InferenceData, or DataTree from ArviZ 1 on."""

from collections.abc import Mapping, Sequence
from typing import Any


def inference_data(
    groups: dict[str, dict[str, Any]],
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Any] | None = None,
) -> Any:
    """InferenceData, or a DataTree from ArviZ 1 on; arrays have chains and draws first.

    Args:
        groups: arrays by group and name.
        dims: names of the axes after chains and draws.
        coords: labels along them.
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError("This needs ArviZ: pip install 'natmix[arviz]'.") from error
    make: Any = arviz.from_dict
    named = {"dims": {k: list(v) for k, v in (dims or {}).items()}, "coords": dict(coords or {})}
    return make(groups, **named) if int(arviz.__version__.split(".")[0]) >= 1 else make(**groups, **named)


def joined(data: Any, other: Any) -> Any:
    """The first container, with the groups of the second added."""
    if hasattr(data, "extend"):
        data.extend(other)
    else:
        for name, group in other.children.items():
            data[name] = group
    return data
