"""A row's problem as natmix has it, on the reference's training rows where `split` has kept them."""

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from natmix.experiments import problems
from side_by_side.split import FILE


def load(name: str, seed: int, directory: Path, dtype: Any) -> problems.Problem:
    problem = problems.load(name, seed=seed, dtype=dtype)
    rows = kept(directory)
    if rows is None:
        return problem
    features, quality = (jnp.asarray(rows[name], dtype) for name in ("features", "quality"))
    target, reference = (
        eqx.tree_at(lambda t: (t.fn.features, t.fn.quality), t, (features, quality))
        for t in (problem.target, problem.reference)
    )
    # The problem's own measures have test rows of another split, with the columns in another order.
    return dataclasses.replace(problem, target=target, reference=reference, secondary={})


def digest(directory: Path) -> dict[str, str]:
    """What tells one split from another, for the settings."""
    rows = kept(directory)
    if rows is None:
        return {}
    content = b"".join(np.ascontiguousarray(rows[name]).tobytes() for name in ("features", "quality"))
    return {"training_rows": hashlib.sha256(content).hexdigest()}


def kept(directory: Path) -> dict[str, np.ndarray] | None:
    if not (directory / FILE).exists():
        return None
    with np.load(directory / FILE) as stored:
        return dict(stored)
