"""Leapfrog steps of NUTS in NumPyro: plain, and started from a fit by the recipe of docs/verdict.md.

Run: python benchmarks/quality/nuts_start.py [--chains 4] [--seeds 0 1]

Counts all steps, those of the warm-up too, and the evaluations of the fit beside them. Each row has the least
effective sample size of a variable, so that fewer steps are not bought by worse draws.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import natmix

SAMPLES = 1000


def correlated_regression() -> Callable[[], None]:
    """Ten coefficients of inputs that are correlated by 0.99, and the noise."""
    rng = np.random.default_rng(0)
    x = np.sqrt(0.99) * rng.normal(size=(100, 1)) + np.sqrt(0.01) * rng.normal(size=(100, 10))
    y = x @ np.linspace(-1, 1, 10) + 0.5 * rng.normal(size=100)

    def model() -> None:
        b = numpyro.sample("b", dist.Normal(0, 2).expand([10]).to_event(1))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(jnp.asarray(x) @ b, noise), obs=jnp.asarray(y))

    return model


def eight_schools() -> Callable[[], None]:
    """Eight schools, not centred."""
    effect = jnp.array([28.0, 8, -3, 7, -1, 1, 18, 12])
    error = jnp.array([15.0, 10, 16, 11, 9, 11, 10, 18])

    def model() -> None:
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfCauchy(5))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([8]).to_event(1))
        numpyro.sample("y", dist.Normal(mu + tau * z, error), obs=effect)

    return model


MODELS = {"correlated regression": correlated_regression, "eight schools": eight_schools}


class Count(NamedTuple):
    """Of one run: leapfrog steps of warm-up and draws, least effective sample size, divergences."""

    warmup: int
    draws: int
    effective: float
    divergences: int


def counted(kernel: Any, warmup: int, chains: int, seed: int, start: Any = None) -> Count:
    """A run of NUTS."""
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=SAMPLES,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    key = jax.random.key(seed)
    fields = ("num_steps", "diverging")
    mcmc.warmup(key, init_params=start, extra_fields=fields, collect_warmup=True)
    before = int(mcmc.get_extra_fields()["num_steps"].sum())
    mcmc.run(mcmc.post_warmup_state.rng_key, extra_fields=fields)
    extra = mcmc.get_extra_fields()
    draws = mcmc.get_samples(group_by_chain=True)
    least = min(float(np.min(effective_sample_size(np.asarray(value)))) for value in draws.values())
    return Count(before, int(extra["num_steps"].sum()), least, int(extra["diverging"].sum()))


def rows(model: Callable[[], None], chains: int, seed: int) -> dict[str, Count]:
    """Plain NUTS, and NUTS started from a fit: by the recipe, and with a mass matrix that is adapted."""
    result = natmix.fit(model, seed=seed, progress=False)
    start = result.sampler_start(chains)
    print(f"  the fit: {result.counts.evaluations:,} evaluations, {result.diagnosis.verdict}", flush=True)
    fixed = NUTS(
        model, dense_mass=True, inverse_mass_matrix=start.inverse_mass_matrix, adapt_mass_matrix=False
    )
    adapted = NUTS(model, dense_mass=True, inverse_mass_matrix=start.inverse_mass_matrix)
    return {
        "plain NUTS, warm-up 1000": counted(NUTS(model), 1000, chains, seed),
        "plain NUTS, dense, warm-up 1000": counted(NUTS(model, dense_mass=True), 1000, chains, seed),
        "from the fit, warm-up 100": counted(fixed, 100, chains, seed, start.by_name),
        "from the fit, adapted, warm-up 100": counted(adapted, 100, chains, seed, start.by_name),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--only", nargs="+", choices=tuple(MODELS), default=tuple(MODELS))
    asked = parser.parse_args()
    for name in asked.only:
        for seed in asked.seeds:
            print(f"{name}, {asked.chains} chains of {SAMPLES} draws, seed {seed}")
            for title, count in rows(MODELS[name](), asked.chains, seed).items():
                print(
                    f"  {title:36} {count.warmup:>9,} + {count.draws:>7,} = {count.warmup + count.draws:>9,} "
                    f"steps, effective sample size {count.effective:>6,.0f}, divergences {count.divergences}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
