"""Modes that are permutations of each other, as those of exchangeable components are: label switching."""

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.variables import Variables

_MAX_MODES = 32
"""Only so many modes, the largest, are compared."""
_NEAR, _ERRORS = 0.2, 4.0
"""Two means are equal up to this share of the modes' standard deviation, and so many standard errors. The
same share holds for the logarithms of standard deviations."""


class LabelSwitching(NamedTuple):
    """Modes that are the same up to a permutation.

    Attributes:
        modes: groups of such modes, by their numbers from 0 on.
        variables: whose entries are permuted.
    """

    modes: tuple[tuple[int, ...], ...]
    variables: tuple[str, ...]


class _ModeMoments(NamedTuple):
    mean: Float[np.ndarray, "M C"]
    sd: Float[np.ndarray, "M C"]
    relative_error: Float[np.ndarray, " M"]


def label_switching(variables: Variables, inside: Float[np.ndarray, "N M"]) -> LabelSwitching | None:
    """The modes that are permutations of others, or None; ``inside`` weighs each mode's samples."""
    inside = inside[:, :_MAX_MODES]
    if inside.shape[1] < 2 or not np.isfinite(variables.values).all():
        return None
    moments = _moments(variables.values, inside)
    groups: list[list[int]] = []
    permuted: list[str] = []
    for m in range(inside.shape[1]):
        for group in groups:
            names = _permuted(variables, moments, group[0], m)
            if names:
                group.append(m)
                permuted += [name for name in names if name not in permuted]
                break
        else:
            groups.append([m])
    switched = tuple(tuple(g) for g in groups if len(g) > 1)
    return LabelSwitching(switched, tuple(permuted)) if switched else None


def _moments(x: Float[np.ndarray, "N C"], inside: Float[np.ndarray, "N M"]) -> _ModeMoments:
    total = np.maximum(inside.sum(axis=0), np.finfo(float).tiny)
    share = inside / total
    mean = share.T @ x
    sd = np.sqrt(np.maximum(share.T @ x**2 - mean**2, 0))
    return _ModeMoments(mean, sd, np.sqrt(np.sum(share**2, axis=0)))


def _permuted(variables: Variables, moments: _ModeMoments, a: int, b: int) -> tuple[str, ...]:
    """The variables whose entries must be permuted to map mode ``b`` to mode ``a``; empty if that fails."""
    sizes = {size for shape in variables.shapes.values() for size in shape if size > 1}
    for size in sorted(sizes):
        having = tuple(name for name, shape in variables.shapes.items() if size in shape)
        for names in (having, *((name,) for name in having if len(having) > 1)):
            order = _assignment(variables, moments, a, b, size, names)
            if order is None or np.array_equal(order, np.arange(size)):
                continue
            columns = _columns(variables, order, size, names)
            if _same(moments, a, np.arange(len(columns)), b, columns):
                return names
    return ()


def _assignment(
    variables: Variables, moments: _ModeMoments, a: int, b: int, size: int, names: tuple[str, ...]
) -> np.ndarray | None:
    """Which entry of mode ``b`` corresponds to which of mode ``a``: the nearest, one to one."""
    from scipy.optimize import linear_sum_assignment

    scale = np.maximum(np.hypot(moments.sd[a], moments.sd[b]), np.finfo(float).tiny)
    scale = np.full_like(scale, np.median(scale)) if not variables.named else scale
    cost = np.zeros((size, size))
    for name, index in _indices(variables).items():
        if name not in names or list(index.shape).count(size) != 1:
            continue
        rows = np.moveaxis(index, index.shape.index(size), 0).reshape(size, -1)
        width = scale[rows].mean(axis=0)
        one, other = moments.mean[a][rows] / width, moments.mean[b][rows] / width
        cost += np.sum((one[:, None] - other[None]) ** 2, axis=-1)
    return linear_sum_assignment(cost)[1] if np.isfinite(cost).all() else None


def _indices(variables: Variables) -> dict[str, np.ndarray]:
    """The columns of every variable, in its shape."""
    sizes = [int(np.prod(shape)) for shape in variables.shapes.values()]
    starts = itertools.accumulate([0, *sizes[:-1]])
    return {
        name: start + np.arange(size).reshape(shape)
        for (name, shape), start, size in zip(variables.shapes.items(), starts, sizes, strict=True)
    }


def _columns(variables: Variables, order: np.ndarray, size: int, names: tuple[str, ...]) -> np.ndarray:
    """The order of all columns in which the entries of these variables are permuted."""
    out = []
    for name, index in _indices(variables).items():
        permuted = index
        for axis, length in enumerate(index.shape):
            if name in names and length == size:
                permuted = np.take(permuted, order, axis=axis)
        out.append(permuted.ravel())
    return np.concatenate(out)


def _same(moments: _ModeMoments, a: int, at_a: np.ndarray, b: int, at_b: np.ndarray) -> bool:
    """Whether two modes have equal means and standard deviations up to their errors."""
    sd_a, sd_b = moments.sd[a][at_a], moments.sd[b][at_b]
    error = _ERRORS * float(np.hypot(moments.relative_error[a], moments.relative_error[b]))
    allowed = (_NEAR + error) * np.maximum(sd_a, sd_b)
    means = np.abs(moments.mean[a][at_a] - moments.mean[b][at_b]) <= allowed
    with np.errstate(divide="ignore", invalid="ignore"):
        widths = np.abs(np.log(sd_a / sd_b)) <= _NEAR + error
    return bool(np.all(means) and np.all(widths))
