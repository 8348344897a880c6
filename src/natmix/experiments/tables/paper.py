"""The paper's printed numbers.

``paper_table3.csv`` holds its tables tab:exp3, tab:exp3_full and tab:exp3_accuracy as printed: means over
ten seeds and three standard errors. The first two agree except for SEPYFUX on stm300 (26.87 ± 0.45 and
26.69 ± 0.39; the full table has 26.87 ± 0.45 in the next column, for SEPYRUX).
"""

import csv
import dataclasses
import functools
import importlib.resources

MAIN = ("SAMTRON", "SAMYRON", "SEPYFUX", "ZAMTRUX")
"""The candidates of the paper's main table."""

ALL = ("SAMTRUX", "SAMTROX", "SAMTRON", "SAMYRUX", "SAMYROX", "SAMYRON", "SEPYFUX", "SEPYRUX", "ZAMTRUX")
"""The candidates of the full table, in its order."""

MAIN_TABLE, FULL_TABLE, ACCURACY_TABLE = "exp3", "exp3_full", "exp3_accuracy"

SECONDARY = {
    "breast_cancer": "mmd",
    "breast_cancer_mb": "mmd",
    "german_credit": "mmd",
    "german_credit_mb": "mmd",
    "planar_robot_4": "mmd",
    "gmm20": "detected_modes",
    "gmm100": "detected_modes",
    "stm20": "detected_modes",
    "stm300": "detected_modes",
    "wine": "test_mse",
    "talos": "entropy",
}
"""The second metric that the full table has for each problem."""

TITLES = {
    "neg_elbo": "-ELBO",
    "mmd": "MMD",
    "detected_modes": "modes",
    "test_mse": "MSE",
    "entropy": "H(q)",
    "accuracy": "accuracy",
}
"""What the paper calls the metrics."""


@dataclasses.dataclass(frozen=True)
class PaperNumber:
    """A mean over ten seeds, with three standard errors."""

    mean: float
    three_se: float


def paper_number(
    codename: str, problem: str, metric: str = "neg_elbo", table: str | None = None
) -> PaperNumber | None:
    """What the paper prints, or None where it prints nothing.

    Args:
        codename: the algorithm, in capitals.
        problem: its name.
        metric: "neg_elbo" or the problem's second one.
        table: "exp3", "exp3_full" or "exp3_accuracy"; the first of exp3 and exp3_full that has the number
            if left out.
    """
    tables = (MAIN_TABLE, FULL_TABLE) if table is None else (table,)
    found = (_numbers().get((name, codename, problem, metric)) for name in tables)
    return next((number for number in found if number is not None), None)


@functools.cache
def _numbers() -> dict[tuple[str, str, str, str], PaperNumber]:
    file = importlib.resources.files("natmix.experiments.tables").joinpath("paper_table3.csv")
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    return {
        (row["table"], row["algorithm"], row["problem"], row["metric"]): PaperNumber(
            float(row["mean"]), float(row["3se"])
        )
        for row in rows
    }
