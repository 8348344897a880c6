"""ArviZ's container of samples: InferenceData, or DataTree from ArviZ 1 on."""

from collections.abc import Mapping, Sequence
from typing import Any

from natmix.text.extras import needs


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
    with needs("ArviZ", "arviz"):
        import arviz
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
