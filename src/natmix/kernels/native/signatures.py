"""The arrays of a native kernel, as the table in C has them (`c/kernels.def`)."""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array

_ARRAY = re.compile(r"(\??)(\w+):(\w+)\[([^]]*)\]")
_TYPES = {"F32": jnp.float32, "S32": jnp.int32, "U32": jnp.uint32, "BOOL": jnp.bool_}


@dataclasses.dataclass(frozen=True)
class ArrayDeclaration:
    """One array: its name, its type and its sizes, letters or numbers."""

    name: str
    type: str
    sizes: tuple[str, ...]
    optional: bool = False

    @classmethod
    def parse(cls, text: str) -> tuple[Self, ...]:
        """All arrays of a text such as ``x:T[N, D] count:S32[]``."""
        return tuple(
            cls(name, kind, tuple(s.strip() for s in sizes.split(",") if s.strip()), optional == "?")
            for optional, name, kind, sizes in _ARRAY.findall(text)
        )

    def dtype(self, common: Mapping[str, Any]) -> Any:
        """The type; T and ANY are those of the call."""
        return _TYPES.get(self.type, common.get(self.type))

    def shape(self, known: Mapping[str, int], rest: tuple[int, ...]) -> tuple[int, ...]:
        """The shape, by the sizes of letters; ``rest`` are those that ... stands for."""
        fixed = tuple(_size(s, known) for s in self.sizes if s != "...")
        return fixed + rest if "..." in self.sizes else fixed


def _size(text: str, known: Mapping[str, int]) -> int:
    terms = (term.strip() for term in text.split("+"))
    return sum(int(term) if term.isdigit() else known[term] for term in terms)


@dataclasses.dataclass(frozen=True)
class Signature:
    """Arguments and results of a kernel, which checks their types and sizes itself."""

    kernel: str
    arguments: tuple[ArrayDeclaration, ...]
    results: tuple[ArrayDeclaration, ...]

    def in_order(self, arrays: Mapping[str, Array]) -> tuple[list[Array], dict[str, Any]]:
        """The arguments as the kernel takes them, real numbers in one type; and what T and ANY are."""
        expected = [a.name for a in self.arguments]
        if set(expected) != set(arrays):
            raise TypeError(
                f"The native kernel {self.kernel} takes {', '.join(expected)}, got {', '.join(arrays)}."
            )
        given = [arrays[a.name] for a in self.arguments]
        real = [x.dtype for a, x in zip(self.arguments, given, strict=True) if a.type == "T"]
        untyped = [x.dtype for a, x in zip(self.arguments, given, strict=True) if a.type == "ANY"]
        common = {"T": jnp.result_type(jnp.float32, *real), "ANY": untyped[0] if untyped else None}
        ordered = [_converted(x, a, common) for a, x in zip(self.arguments, given, strict=True)]
        return ordered, common

    def result_shapes(
        self,
        arguments: list[Array],
        common: Mapping[str, Any],
        sizes: Mapping[str, int],
        optional: bool,
    ) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Of the results; ``sizes`` are those of letters that no argument has."""
        known = dict(sizes)
        rest: tuple[int, ...] = ()
        for declared, x in zip(self.arguments, arguments, strict=True):
            fixed = [s for s in declared.sizes if s != "..."]
            known |= {s: n for s, n in zip(fixed, x.shape, strict=False) if s.isalpha() and s not in known}
            rest = x.shape[len(fixed) :] if "..." in declared.sizes and not rest else rest
        return tuple(
            jax.ShapeDtypeStruct(r.shape(known, rest), r.dtype(common))
            for r in self.results
            if optional or not r.optional
        )


def _converted(x: Array, declared: ArrayDeclaration, common: Mapping[str, Any]) -> Array:
    """Real numbers in the type of the call, and integers in 32 bits; nothing else is converted."""
    if declared.type == "T" and jnp.issubdtype(x.dtype, jnp.floating):
        return x.astype(common["T"])
    if declared.type == "S32" and jnp.issubdtype(x.dtype, jnp.integer):
        return x.astype(jnp.int32)
    return x
