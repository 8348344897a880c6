"""The variables that a report shows, number by number, and the coordinates that they belong to."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.diagnostics.modes import mode_membership
from natmix.diagnostics.variables import real_parts
from natmix.models.base import coordinate_names
from natmix.models.scalar_maps import ScalarEntry, ScalarMap, map_through, model_variables, values_by_name
from natmix.plot.coordinate_names import bare

if TYPE_CHECKING:
    from natmix.result.result import Result

FRESH = 2000
"""Samples of a mixture whose result has kept none."""


class ReportVariable(NamedTuple):
    """One number of a model.

    Attributes:
        name: of the number, such as ``wave[0]``.
        values: at the samples.
        entry: the coordinate that it is a function of; None where it depends on several.
        latent: whether it is a parameter, not computed from others.
    """

    name: str
    values: Float[np.ndarray, " N"]
    entry: ScalarEntry | None
    latent: bool


class ReportDraws(NamedTuple):
    """Samples of the mixture with all that a report says about each.

    Attributes:
        x: in the mixture's coordinates.
        weights: importance weights with a mean of 1; None where the target's density is not known.
        mode: the number of the mode that each most likely belongs to.
        variables: at the samples.
    """

    x: Float[np.ndarray, "N D"]
    weights: Float[np.ndarray, " N"] | None
    mode: np.ndarray
    variables: tuple[ReportVariable, ...]


def report_draws(result: "Result", weights: Float[np.ndarray, " N"] | None) -> ReportDraws:
    """The samples behind the ELBO whose density is a number, or fresh ones without weights."""
    draws = result.draws
    if draws is None or weights is None:
        x = np.asarray(result.mixture.sample(FRESH, key=0), float)
        kept = np.ones(len(x), bool)
    else:
        x, kept = draws.x, draws.log_target < np.inf
    mode = np.argmax(mode_membership(result.mixture, x[kept]).samples, axis=1)
    found = _variables(result, x)
    shown = tuple(v._replace(values=v.values[kept]) for v in found)
    return ReportDraws(x[kept], weights, mode, shown)


def _variables(result: "Result", x: Float[np.ndarray, "N D"]) -> list[ReportVariable]:
    model = result.model
    if model is None:
        names = coordinate_names("x", (x.shape[1],))
        return [ReportVariable(n, x[:, d], ScalarEntry(d, ScalarMap()), True) for d, n in enumerate(names)]
    try:
        by_name = values_by_name(model, x)
    except ValueError:  # a model from a file knows its variables at the saved samples only
        return [
            ReportVariable(n, x[:, d], ScalarEntry(d, ScalarMap()), True)
            for d, n in enumerate(model.coordinates)
        ]
    try:
        entries = {v.name: v.entries for v in model_variables(model).values()}
    except ValueError:
        entries = {}
    out = []
    for name, value in by_name.items():
        latent = not model.latent or name in model.latent
        labels = model.labels(name, value.shape[1:])
        size = math.prod(value.shape[1:])
        known = entries.get(name, (None,) * size)
        if len(labels) != size:
            labels = coordinate_names(name, value.shape[1:])
        for part, numbers in real_parts(name, value):
            suffix = part.removeprefix(name)
            columns = numbers.reshape(len(numbers), size)
            out += [
                ReportVariable(label + suffix, column, None if suffix else entry, latent)
                for label, column, entry in zip(labels, columns.T, known, strict=True)
            ]
    return out if entries else [_with_entry(v, x, model.coordinates) for v in out]


def _with_entry(
    variable: ReportVariable, x: Float[np.ndarray, "N D"], coordinates: tuple[str, ...]
) -> ReportVariable:
    """The variable with the coordinate of its name, if the samples show how it depends on that."""
    for d, name in enumerate(coordinates):
        if variable.name in (name, bare(name)):
            found = map_through(x[:, d], variable.values)
            if found is not None:
                return variable._replace(entry=ScalarEntry(d, found))
    return variable
