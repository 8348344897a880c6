"""Names of unconstrained coordinates."""

import numpy as np

from natmix.models.stan_backends.backend import AbstractBackend
from natmix.models.stan_backends.names import Flat, flat_name

_STEP = 0.5


def labels(backend: AbstractBackend) -> tuple[str, ...]:
    """``A[2,1]`` for Stan's ``A.2.1``.

    Stan lists the unconstrained entries of an array of vectors in another order than it reads them. So for
    a variable with several indices each coordinate is moved, and named after the first entry that follows.
    """
    names = [flat_name(text) for text in backend.coordinates]
    several = [i for i, name in enumerate(names) if len(name.at) > 1]
    if several:
        for i, entry in zip(several, _followers(backend, several), strict=True):
            if entry is not None:
                names[i] = entry
        if len(set(names)) < len(names):  # as when every entry follows every coordinate
            names = [flat_name(text) for text in backend.coordinates]
    return tuple(map(str, names))


def _followers(backend: AbstractBackend, coordinates: list[int]) -> list[Flat | None]:
    points = np.zeros((len(coordinates) + 1, backend.dim))
    points[range(1, len(points)), coordinates] = _STEP
    try:
        outputs = backend.constrain(points, 0)
    except RuntimeError:  # the program rejects one of these points
        return [None] * len(coordinates)
    outputs_names = [flat_name(text) for text in backend.names]
    found = []
    for i, row in zip(coordinates, outputs[1:], strict=True):
        own = flat_name(backend.coordinates[i]).name
        moved = [outputs_names[j] for j in np.flatnonzero(row != outputs[0]) if outputs_names[j].name == own]
        found.append(min(moved, key=lambda entry: entry.at, default=None))
    return found
