"""A regression that sees only a square, y = (w . x)^2 + noise: w and -w are equally likely."""

import numpy as np
import numpyro
import numpyro.distributions as dist

from posteriors.nuts import truth
from posteriors.problem import Problem
from posteriors.symmetry import Points, Symmetry, permutation

FEATURES, ROWS = 4, 25


def model(x: np.ndarray, y: np.ndarray) -> None:
    """Weights and the noise's standard deviation."""
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.Normal(0, 2).expand([FEATURES]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal((x @ w) ** 2, noise), obs=y)


def _data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, FEATURES))
    y = (x @ np.array([1.0, -0.5, 0.3, 0.1])) ** 2 + rng.normal(size=ROWS)
    return {"x": x, "y": y}


def _first_weight_positive(x: Points) -> np.ndarray:
    return x[:, 1] > 0


# The coordinates: log noise, then w.
_NEGATED = permutation(list(range(1 + FEATURES)), [1, *[-1] * FEATURES])
SQUARED_REGRESSION = Problem(
    "squared_regression",
    "Regression on a square, sign free",
    model,
    _data(),
    ("noise", "w"),
    truth,
    Symmetry(np.stack([np.eye(1 + FEATURES), _NEGATED]), _first_weight_positive),
)
