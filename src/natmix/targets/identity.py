"""Reuse compiled programs for a function as long as it computes the same.

JAX finds compiled programs by the identity of the target's function. A function whose data cannot be told
from its operations (`natmix.targets.traced`) may compute something else the next time, so its traced program
is compared: if that has changed, the function gets a new identity and is compiled anew.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
from jax.extend import core

from natmix.targets.traced import fingerprint

_CACHE_SIZE = 8
_FLAGS = ("dim", "batched", "returns_gradient", "stochastic", "values_only")
_known: OrderedDict[Any, tuple[str, Callable[..., Any]]] = OrderedDict()


def stable_identity(fn: Callable[..., Any], traced: core.ClosedJaxpr) -> Callable[..., Any]:
    """A wrapper of ``fn``: the same object as last time if ``fn`` still traces to the same program."""
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(fn)):
        return fn  # a pytree, for example an equinox module: its arrays are arguments of the program
    try:
        hash(fn)
        name: Any = fn
    except TypeError:
        name = id(fn)
    digest = fingerprint(traced)
    if name in _known and _known[name][0] == digest:
        _known.move_to_end(name)
        return _known[name][1]

    wrapper = _Wrapper(fn)
    _known[name] = (digest, wrapper)
    while len(_known) > _CACHE_SIZE:
        _known.popitem(last=False)
    return wrapper


def same_program(one: Any, other: Any) -> bool:
    """Whether two targets may be the same: False only if JAX traces them to different programs or data.

    Nothing is evaluated. Targets outside JAX, stochastic ones and those of different kinds are not compared.
    """
    kinds = [(type(t), *(getattr(t, flag, None) for flag in _FLAGS)) for t in (one, other)]
    if one is other or kinds[0] != kinds[1] or not one.inside_jax or one.stochastic:
        return True
    try:
        return fingerprint(_traced(one)) == fingerprint(_traced(other))
    except Exception:  # the functions are the user's
        return True


def _traced(target: Any) -> core.ClosedJaxpr:
    shape = (2, target.dim) if target.batched else (target.dim,)
    return jax.make_jaxpr(lambda x: target.fn(x))(jax.ShapeDtypeStruct(shape, jax.numpy.asarray(0.0).dtype))


class _Wrapper:
    """A function with its own identity; it can be pickled if the function can."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *args: Any) -> Any:
        return self.fn(*args)


def depends_on_last_argument(traced: core.ClosedJaxpr) -> bool:
    """Whether any output can change with the last argument."""
    reached = {traced.jaxpr.invars[-1]}
    for equation in traced.jaxpr.eqns:
        if any(not isinstance(v, core.Literal) and v in reached for v in equation.invars):
            reached.update(equation.outvars)
    return any(not isinstance(v, core.Literal) and v in reached for v in traced.jaxpr.outvars)
