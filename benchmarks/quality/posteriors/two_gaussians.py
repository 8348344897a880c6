"""A mixture of two Gaussians whose names may be exchanged: two modes with half of the mass each."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from posteriors.nuts import truth
from posteriors.problem import Problem
from posteriors.symmetry import Points, Symmetry, permutation


def model(y: np.ndarray) -> None:
    """Means, standard deviations and the first one's share."""
    mean = numpyro.sample("mean", dist.Normal(0, 5).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(2).expand([2]).to_event(1))
    share = numpyro.sample("share", dist.Beta(2, 2))
    which = dist.Categorical(probs=jnp.stack([share, 1 - share]))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.MixtureSameFamily(which, dist.Normal(mean, sd)), obs=y)


def _data() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(-1.5, 0.7, 25), rng.normal(1.5, 1.1, 45)])


def _first_is_left(x: Points) -> np.ndarray:
    return x[:, 0] < x[:, 1]


# The coordinates: mean[0], mean[1], log sd[0], log sd[1], logit share.
_SWAP = permutation([1, 0, 3, 2, 4], [1, 1, 1, 1, -1])
TWO_GAUSSIANS = Problem(
    "two_gaussians",
    "Mixture of two Gaussians, labels free",
    model,
    {"y": _data()},
    ("mean", "sd", "share"),
    truth,
    Symmetry(np.stack([np.eye(5), _SWAP]), _first_is_left),
)
