"""Stan's outputs: flat names such as ``A.2.1`` assembled to arrays."""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

_FLAT = re.compile(r"(?P<name>.*?)(?P<index>(\.\d+)*)(?P<part>\.real|\.imag)?")


class Flat(NamedTuple):
    """One number of Stan's."""

    name: str
    at: tuple[int, ...] = ()
    """Its indices, from zero on."""
    part: str = ""
    """``.real`` or ``.imag`` of a complex number."""

    def __str__(self) -> str:
        """As in Stan, which counts from one."""
        index = f"[{','.join(str(i + 1) for i in self.at)}]" if self.at else ""
        return f"{self.name}{self.part}{index}"


def flat_name(text: str) -> Flat:
    """``A.2.1`` taken apart."""
    match = _FLAT.fullmatch(text)
    assert match is not None
    return Flat(match["name"], tuple(int(i) - 1 for i in match["index"].split(".")[1:]), match["part"] or "")


def variables(flat: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the variables that these numbers belong to, each once."""
    return tuple(dict.fromkeys(flat_name(text).name for text in flat))


class _Variable(NamedTuple):
    shape: tuple[int, ...]
    columns: Int[np.ndarray, " M"]
    """Where its entries stand among Stan's, in the order of a NumPy array."""


class Outputs:
    """Which of Stan's numbers belong to which variable.

    Entries are placed by the indices in their names, so Stan's column-major order does not matter. Parts of a
    tuple have Stan's names, ``t:1``; complex numbers become complex arrays.

    Args:
        flat: Stan's names of all numbers, in its order.
    """

    def __init__(self, flat: tuple[str, ...]) -> None:
        groups: dict[tuple[str, str], list[tuple[tuple[int, ...], int]]] = {}
        for column, text in enumerate(flat):
            name, index, part = flat_name(text)
            groups.setdefault((name, part), []).append((index, column))
        self._variables = {key: _variable(entries) for key, entries in groups.items()}

    def arrays(self, numbers: Float[np.ndarray, "N M"]) -> dict[str, np.ndarray]:
        """Arrays by name, samples first."""
        out: dict[str, np.ndarray] = {}
        for (name, part), variable in self._variables.items():
            value = numbers[:, variable.columns].reshape(len(numbers), *variable.shape)
            if part == ".imag":
                out[name] = out[name] + 1j * value
            else:
                out[name] = value
        return out


def _variable(entries: list[tuple[tuple[int, ...], int]]) -> _Variable:
    indices = np.array([index for index, _ in entries], int).reshape(len(entries), -1)
    shape = tuple(int(n) for n in indices.max(axis=0) + 1) if indices.shape[1] else ()
    columns = np.empty(shape, int)
    for index, column in entries:
        columns[index] = column
    return _Variable(shape, columns.ravel())
