"""The contract of a metric."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from natmix.array_types import PRNGKey
from natmix.mixture import Mixture

if TYPE_CHECKING:
    from natmix.experiments.problems.base import Problem


class Measured(NamedTuple):
    """What a metric may use.

    Attributes:
        problem: with its reference target.
        mixture: with absent components up to a power of two.
        key: the same for all metrics of the mixture's samples: they evaluate the target at the same points.
        samples: how many of the mixture.
        target_samples: of the target; None unless the metric needs them.
    """

    problem: "Problem"
    mixture: Mixture
    key: PRNGKey
    samples: int
    target_samples: Float[np.ndarray, "N D"] | None = None


class Metric(NamedTuple):
    """Numbers about a mixture.

    Attributes:
        names: of the numbers, standard errors (``name_se``) apart.
        measure: gives them, with standard errors where there are any.
        needs_target_samples: whether it compares with samples of the target.
    """

    names: tuple[str, ...]
    measure: Callable[[Measured], dict[str, float]]
    needs_target_samples: bool = False
