"""Weights, births and deaths of components, made up."""

import numpy as np

from natmix.experiments.runs import WeightHistory


def history(components=300, evaluations=40, seed=0):
    """Components come one after the other and some go; one is there from the start and stays heavy."""
    rng = np.random.default_rng(seed)
    born = np.sort(rng.integers(0, evaluations, components))
    born[0] = 0
    dies = np.where(
        rng.random(components) < 0.3, born + rng.integers(1, evaluations + 1, components), evaluations
    )
    dies[0] = evaluations
    size = rng.gamma(1.0, 1.0, components)
    size[0] = 0.5 * size.sum()
    rows = []
    for t in range(evaluations):
        (ids,) = np.nonzero((born <= t) & (dies > t))
        rows.append((10 * t + 1, ids, size[ids] / size[ids].sum()))
    return WeightHistory.from_rows(rows)


def events(n=130, burst=0):
    rng = np.random.default_rng(1)
    added, deleted = rng.random(n) < 0.3, (rng.random(n) < 0.05).astype(int)
    deleted[n // 2] += burst
    return {"added": added, "deleted": deleted, "components": 200 + np.cumsum(added) - np.cumsum(deleted)}
