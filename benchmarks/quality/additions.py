"""Where components are added: the paper's rhythm and thresholds against the defaults of `natmix.fit`.

Run: python benchmarks/quality/additions.py [seeds]

Prints the final ELBO (0 is perfect: the targets are normalised), components, iterations and evaluations.
"""

import sys

import numpy as np

import natmix
from natmix.cli.target import log_density
from natmix.modules.component_adaptation.vips import PAPER_THRESHOLDS

SETTINGS = {
    "paper": {"add_iters": 30, "del_iters": 100, "thresholds": PAPER_THRESHOLDS, "prior_candidates": 0},
    "paper + prior": {"add_iters": 30, "del_iters": 100, "thresholds": PAPER_THRESHOLDS},
    "default": {},
}


def gaussians(seed, D, K=10):
    """K Gaussians with means uniform in [-50, 50] and random covariances."""
    rng = np.random.default_rng(seed)
    A = 0.1 * D * rng.normal(size=(K, D, D))
    return natmix.Mixture.full(
        np.ones(K), rng.uniform(-50, 50, size=(K, D)), np.swapaxes(A, 1, 2) @ A + np.eye(D)
    )


def problems(seed):
    yield "rings", natmix.JaxTarget(log_density, 2), 4.0
    yield "gmm10", natmix.JaxTarget(gaussians(seed, 10).log_prob, 10), 30.0


def main(seeds):
    print(f"{'problem':8} {'setting':14} seed      ELBO  components  iterations  evaluations")
    for seed in range(seeds):
        for name, target, scale in problems(seed):
            for setting, adaptation in SETTINGS.items():
                r = natmix.fit(
                    target, seed=seed, init_scale=scale, progress=False, component_adaptation=adaptation
                )
                print(
                    f"{name:8} {setting:14} {seed:4} {r.elbo.value:9.4f} {r.mixture.num_components:11} "
                    f"{r.counts.iterations:11} {r.counts.evaluations:12,}",
                    flush=True,
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
