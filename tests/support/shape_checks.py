"""Shapes and types of arrays checked at run time: jaxtyping's import hook with beartype.

Checked are the arguments and fields annotated with arrays, and all results, while a program is traced as well
as in plain Python. Not checked, because mypy knows them and this cannot:

- arguments that are no arrays, or need not be (a seed or a key): public functions answer wrong ones with a
  sentence of their own, and tests ask for it;
- the fields of `natmix.modules.state`: a batch of runs has one more axis there, and parts travel as None;
- `typing.Self`, because beartype sees functions one by one and not the class around them;
- protocols that isinstance cannot answer for;
- names that a module defines later or imports for type checkers alone (jaxtyping leaves them out).
"""

import types
import typing

import jax
import jaxtyping
import numpy as np
from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))  # as for mypy, an int is accepted as a float


def install() -> None:
    """Check whatever of natmix is imported from here on."""
    # As for jax, a numpy array is an array too; where only shapes are asked for, a shape is.
    vars(jaxtyping)["Array"] = jax.Array | np.ndarray | jax.ShapeDtypeStruct
    jaxtyping.install_import_hook("natmix", "shape_checks.checked")


def checked(fn):
    """Beartype's check of one function, without the hints named above."""
    batched = fn.__module__ == "natmix.modules.state" and fn.__name__ == "__init__"
    fn.__annotations__ = {
        name: hint
        for name, hint in fn.__annotations__.items()
        if (name == "return" or (_has_arrays(hint) and not batched)) and not _any_part(_is_for_mypy, hint)
    }
    return _beartype(fn)


def _any_part(holds: typing.Callable[[typing.Any], bool], hint: typing.Any) -> bool:
    """Whether it holds for a hint or anything within it; a list has the arguments of a Callable."""
    parts = hint if isinstance(hint, list) else typing.get_args(hint)
    return holds(hint) or any(_any_part(holds, part) for part in parts)


def _has_arrays(hint: typing.Any) -> bool:
    """Whether a hint has arrays in it, and nothing else in their place but None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return all(_has_arrays(part) for part in typing.get_args(hint) if part is not type(None))
    return _any_part(_is_array, hint)


def _is_array(hint: typing.Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


def _is_for_mypy(hint: typing.Any) -> bool:
    is_protocol = getattr(hint, "_is_protocol", False)
    return hint is typing.Self or (is_protocol and not getattr(hint, "_is_runtime_protocol", False))
