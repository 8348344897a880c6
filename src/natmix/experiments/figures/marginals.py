"""Marginals of a run's mixture, beside samples of the target where there are any."""

from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Float

from natmix.experiments.figures.base import Drawing, RunFigure, Subject
from natmix.experiments.figures.talos import coordinate_labels as talos_coordinates
from natmix.plot.marginals import plot_marginals
from natmix.plot.style import figure_of

_SAMPLES = 100_000
_COORDINATES: Mapping[str, Callable[[], Sequence[str]]] = {"talos": talos_coordinates}


def _draw(subject: Subject) -> Drawing:
    mixture = subject.seed.mixture
    labels = _COORDINATES.get(subject.run.problem, lambda: None)()
    source, samples, note = _target_samples(subject)
    panels = plot_marginals(mixture, samples, source=source, labels=labels)
    return Drawing(figure_of(panels[0]), note)


def _target_samples(subject: Subject) -> tuple[str, Float[np.ndarray, "N D"] | None, str]:
    """The source of the target's samples, the samples if there are any, and why not if they are missing."""
    from natmix.experiments.references import load_for

    try:
        problem = subject.problem
        if problem.sample is not None:
            x = problem.sample(_SAMPLES, key=jax.random.key(subject.seed.seed))
            return f"target ({_SAMPLES:,} exact samples)", np.asarray(x), ""
        reference = load_for(problem)
    except (FileNotFoundError, ImportError) as error:
        return "", None, f"the fit alone: {error}"
    if reference is None:
        return "", None, ""
    return f"target ({len(reference.samples):,} reference samples)", reference.samples, ""


MARGINALS = RunFigure("marginals", _draw)
