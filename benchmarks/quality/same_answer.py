"""Do fits give the same answer with other versions of Python and jax, and without native kernels?

Run: python benchmarks/quality/same_answer.py [--label TEXT] [--seeds 0:8], once with every interpreter
(PYTHONPATH=src where natmix is not installed), and with NATMIX_NATIVE=0 for XLA's kernels. Then --compare
writes results/same_answer.md.

Each call appends its fits to results/same_answer.csv: four cases, a fixed number of iterations from the same
seeds. What is compared is the ELBO of the final mixture by the fit's own samples. Seeds are the same
everywhere, but rounding differs, so that fits part after some iterations; what must agree is their
distribution. For each case the mean over seeds is compared with that of the first label (Welch's
test), and all seeds by the two-sample Kolmogorov-Smirnov test. With many tests some p-values are small by
chance: the table says how many are below 0.01, and how many are expected.
"""

import argparse
import csv
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import natmix  # noqa: E402
from natmix.kernels.plan import Plan  # noqa: E402

FIELDS = ("label", "python", "jax", "device", "native", "target", "algorithm", "seed", "elbo", "components")


def two_modes(x: Any) -> Any:
    """In five dimensions; log Z = 0."""
    both = jnp.stack([-0.5 * jnp.sum((x - 2) ** 2), -0.5 * jnp.sum((x + 2) ** 2)])
    return jax.nn.logsumexp(both) - jnp.log(2.0) - 0.5 * x.size * jnp.log(2 * jnp.pi)


def banana(x: Any) -> Any:
    """log Z = 0."""
    return -0.5 * (x[0] / 2) ** 2 - 0.5 * (x[1] - 0.3 * x[0] ** 2) ** 2 - jnp.log(4 * jnp.pi)


def student(x: Any) -> Any:
    """Student's t with 5 degrees of freedom in ten dimensions, not normalised."""
    return -0.5 * (5 + x.size) * jnp.log1p(jnp.sum(x**2) / 5)


TARGETS: dict[str, tuple[Any, int, str]] = {
    "two modes": (two_modes, 5, "samtron"),
    "banana": (banana, 2, "samtron"),
    "Student's t": (student, 10, "sepyrux"),
    "two modes, values": (two_modes, 5, "zamtrux"),
}
ITERATIONS = 150


def fit_all(label: str, seeds: list[int], path: Path) -> None:
    """Fits of all targets and seeds, appended to a file."""
    plan = Plan.detect()
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        for name, (target, dim, algorithm) in TARGETS.items():
            for seed in seeds:
                result = natmix.fit(
                    target,
                    dim,
                    algorithm=algorithm,
                    seed=seed,
                    accuracy=None,
                    verify=False,
                    max_iterations=ITERATIONS,
                    init_components=3,
                    sample_selector={"desired_samples": 60},
                    progress=False,
                )
                writer.writerow(
                    dict(
                        zip(
                            FIELDS,
                            (
                                label,
                                ".".join(map(str, sys.version_info[:3])),
                                jax.__version__,
                                plan.platform,
                                plan.native,
                                name,
                                algorithm,
                                seed,
                                f"{result.elbo.value:.6f}",
                                result.mixture.num_components,
                            ),
                            strict=True,
                        )
                    )
                )
                file.flush()


def compare(path: Path, table: Path) -> None:
    """The means by label and target, and how they differ from the first label's."""
    from case_table import markdown, provenance
    from scipy.stats import ks_2samp, ttest_ind

    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    labels = list(dict.fromkeys(row["label"] for row in rows))
    lines, p_values = [], []
    for label in labels:
        cells: list[str] = [label]
        for name in TARGETS:
            here, first = (
                np.array([float(r["elbo"]) for r in rows if r["label"] == which and r["target"] == name])
                for which in (label, labels[0])
            )
            if not len(here):
                cells.append("")
                continue
            cells.append(f"{here.mean():.4f} ± {here.std(ddof=1) / len(here) ** 0.5:.4f}")
            if label != labels[0]:
                p_values += [ttest_ind(here, first, equal_var=False).pvalue, ks_2samp(here, first).pvalue]
        lines.append(cells)
    low = sum(p < 0.01 for p in p_values)
    elbos: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        elbos.setdefault((row["target"], row["seed"]), []).append(float(row["elbo"]))
    apart = max(max(values) - min(values) for values in elbos.values())
    seeds = len({row["seed"] for row in rows})
    devices = sorted({row["device"] for row in rows})
    text = [
        "# The same answer",
        "",
        f"ELBOs of {seeds} seeds, mean and its standard error, by Python, jax and kernels: "
        "[same_answer.py](../benchmarks/quality/same_answer.py). "
        f"Devices: {', '.join(devices)}; a GPU was not measured." * ("gpu" not in devices),
        "",
        markdown(["", *TARGETS], lines),
        "",
        f"Of {len(p_values)} tests against the first row {low} have p < 0.01 (expected by chance: "
        f"{0.01 * len(p_values):.1f}); the smallest p is {min(p_values, default=1):.2g}. ELBOs of one case "
        f"and seed are at most {apart:.2g} apart.",
        "",
        provenance([]),
        "",
    ]
    table.write_text("\n".join(text))


def main() -> None:
    """Fit with this interpreter, or compare what there is."""
    from case_table import seed_range

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--label", default=f"{sys.version.split()[0]}, jax {jax.__version__}")
    parser.add_argument("--seeds", type=seed_range, default=list(range(8)))
    parser.add_argument("--csv", type=Path, default=ROOT / "results" / "same_answer.csv")
    parser.add_argument("--compare", action="store_true")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.csv, arguments.csv.with_suffix(".md"))
        return
    label = arguments.label + (", XLA's kernels" if os.environ.get("NATMIX_NATIVE") == "0" else "")
    fit_all(label, arguments.seeds, arguments.csv)


if __name__ == "__main__":
    main()
