"""The appendix's table of accuracies of logistic regression."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from natmix.experiments import metrics
from natmix.experiments.problems.logistic_regression import probabilities, standardised_features
from natmix.experiments.runs import Run
from natmix.experiments.tables import formatting
from natmix.experiments.tables.cells import HELD_OUT
from natmix.experiments.tables.collection import Collection
from natmix.experiments.tables.paper import ACCURACY_TABLE, ALL, paper_number
from natmix.experiments.tables.summary import Statistic, metric_of

SEEN = ("breast_cancer", "breast_cancer_mb", "german_credit", "german_credit_mb")
SAMPLES = 2000

_TEXT = """# Accuracy of Bayesian predictions

In percent, from 2000 samples of the final mixture; mean ± 3 standard errors over the seeds. A dash: not
run, or the files of the mixtures are not there.

The paper does not say on which rows it measured. The -ELBO it prints beside the accuracies is that of the
posterior given all rows, and the accuracies are like this posterior's on those same rows: the first table
compares these. The second is about rows that were held out (the last 227 and 600), from runs
on the others; the paper's numbers do not belong beside it.

## On the rows given
"""


def accuracy_markdown(collection: Collection, commands: Sequence[str]) -> str:
    """The table (tab:exp3_accuracy), and accuracies on held-out rows."""
    rows = []
    for problem in SEEN:
        ours, theirs = [], []
        for codename in ALL:
            run = collection.runs.get((codename, problem))
            ours.append(_cell(None if run is None else seen_accuracy(run)))
            printed = paper_number(codename, problem, "accuracy", ACCURACY_TABLE)
            theirs.append(formatting.theirs(printed))
        rows += [[problem, "ours", *ours], ["", "paper", *theirs]]
    held_out = [
        [problem, *(_cell(_held_out(collection.runs.get((c, problem)))) for c in ALL)] for problem in HELD_OUT
    ]
    return (
        f"{_TEXT}\n{formatting.table(['problem', '', *ALL], rows, left=2)}\n\n"
        f"## On held-out rows\n\n{formatting.table(['problem', *ALL], held_out)}\n\n"
        "## Commands\n\n```\n" + "\n".join(commands) + "\n```\n"
    )


def seen_accuracy(run: Run) -> Statistic | None:
    """Accuracies in percent on the training rows, over the seeds whose mixture is stored."""
    features, labels = standardised_features(run.problem.removesuffix("_mb"))
    values = []
    for n, seed in run.finished.items():
        try:
            mixture = seed.mixture
        except FileNotFoundError:  # the large files may have stayed on another machine
            continue
        seen = jnp.asarray(features, mixture.dtype), jnp.asarray(labels, mixture.dtype)
        key = jax.random.key(n)
        values.append(
            100 * float(metrics.predictive_accuracy(probabilities, mixture, key, *seen, samples=SAMPLES))
        )
    return Statistic.of(values) if values else None


def _held_out(run: Run | None) -> Statistic | None:
    finals = [] if run is None else [s.final for s in run.finished.values() if s.final is not None]
    share = metric_of(finals, "accuracy")
    return None if share is None else Statistic(100 * share.mean, 100 * share.three_se, share.number)


def _cell(statistic: Statistic | None) -> str:
    return formatting.NONE if statistic is None else formatting.ours(statistic)
