"""A mixture as HTML for notebooks."""

import jax
import numpy as np

from natmix.mixture.mixture import Mixture
from natmix.text.html import block, headline, html_table, paragraph

_MAX_ROWS, _MAX_COLUMNS = 8, 8


def mixture_html(mixture: Mixture) -> str:
    """The heaviest components: weights, means, standard deviations."""
    arrays = jax.tree.leaves(mixture)
    title = headline(repr(mixture))
    plain = all(isinstance(a, (jax.Array, np.ndarray)) and not isinstance(a, jax.core.Tracer) for a in arrays)
    if not arrays or not plain or np.ndim(mixture.log_weights) != 1:
        return block(title)
    top = mixture.top(min(_MAX_ROWS, mixture.num_components))
    shares = np.sort(np.asarray(mixture.weights, float))[::-1]
    shown = min(mixture.dim, _MAX_COLUMNS)
    means, scales = np.asarray(top.means, float), np.asarray(top.components.std(), float)
    rows = [
        (f"{share:.2%}", *(f"{m:.4g} ± {s:.2g}" for m, s in zip(mean[:shown], scale[:shown], strict=True)))
        for share, mean, scale in zip(shares, means, scales, strict=False)
    ]
    table = html_table(("weight", *(f"x[{d}]" for d in range(shown))), rows, (False,) * (1 + shown))
    left = mixture.num_components - len(rows)
    notes = ["Means ± standard deviations of the components."]
    if left:
        notes.append(f"… and {left} more components with {shares[len(rows) :].sum():.2%} together")
    if shown < mixture.dim:
        notes.append(f"… and {mixture.dim - shown} more dimensions")
    return block(title, table, *map(paragraph, notes))
