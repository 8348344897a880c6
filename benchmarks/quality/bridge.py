"""Log evidence by importance sampling and by bridge sampling, at the same number of evaluations.

``python benchmarks/quality/bridge.py`` prints, for targets with known evidence and mixtures that fit well
and badly, the root mean square error of log Z over repetitions and the error that each method claims.
Bridge sampling gets exact draws of the target for half of its evaluations, or, to show that they will not do,
resampled ones of the mixture.
"""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import natmix
from natmix import Mixture
from natmix.diagnostics import diagnose
from natmix.diagnostics.bridge_sampling import bridge_estimate
from natmix.diagnostics.draws import EvaluatedDraws

jax.config.update("jax_enable_x64", True)
EVALUATIONS, REPETITIONS = 4000, 100


def student(dim, df):
    """Log density and sampler of Student's t, normalised: log Z = 0."""
    known = stats.multivariate_t(np.zeros(dim), np.eye(dim), df=df)
    top = float(known.logpdf(np.zeros(dim)))

    def log_density(x):
        return top - 0.5 * (df + dim) * jnp.log1p(jnp.sum(x * x, axis=-1) / df)

    return log_density, lambda n, rng: known.rvs(n, random_state=rng).reshape(n, dim)


def fits():
    """Name, mixture, log density, sampler of the target."""
    for dim, df, options in (
        (10, 3, {"algorithm": "semtron", "init_components": 1, "max_iterations": 200}),
        (10, 3, {"max_evaluations": 100_000}),
        (10, 10, {"max_evaluations": 100_000}),
        (2, 5, {"max_evaluations": 200_000}),
    ):
        log_density, sample = student(dim, df)
        result = natmix.fit(log_density, dim=dim, init_scale=2.0, progress=False, **options)
        count = result.mixture.num_components
        yield (
            f"t with {df} degrees of freedom, D={dim}, {count} components",
            result.mixture,
            log_density,
            sample,
        )


def log_ratio(mixture: Mixture, log_density, x):
    """log p~ - log q."""
    return np.asarray(log_density(x), float) - np.asarray(mixture.log_prob(x), float)


def main() -> None:
    """Print the table."""
    print("| target and mixture | k-hat | importance | claimed | bridge | claimed | bridge, resampled |")
    print("|---|---|---|---|---|---|---|")
    for name, mixture, log_density, sample in fits():
        rows = []
        for seed in range(REPETITIONS):
            rng = np.random.default_rng(seed)
            x = np.asarray(mixture.sample(EVALUATIONS, key=seed))
            at_q = log_ratio(mixture, log_density, x)
            log_q = np.asarray(mixture.log_prob(x), float)
            found = diagnose(mixture, EvaluatedDraws(x, at_q + log_q, log_q))
            half = EVALUATIONS // 2
            at_p = log_ratio(mixture, log_density, sample(half, rng))
            built = bridge_estimate(at_p[None], at_q[:half])
            weights = np.exp(at_q[half:] - at_q[half:].max())
            chosen = rng.choice(half, half, p=weights / weights.sum())
            fake = bridge_estimate(at_q[half:][chosen][None], at_q[:half])
            importance = found.log_evidence
            rows.append((importance.value, importance.standard_error, *built, fake.value, found.k_hat))
        r = np.array(rows)
        rms = np.sqrt(np.mean(r[:, [0, 2, 4]] ** 2, axis=0))
        claimed = np.sqrt(np.mean(r[:, [1, 3]] ** 2, axis=0))
        print(
            f"| {name} | {np.median(r[:, 5]):.2f} | {rms[0]:.4f} | {claimed[0]:.4f} | {rms[1]:.4f} | "
            f"{claimed[1]:.4f} | {rms[2]:.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
