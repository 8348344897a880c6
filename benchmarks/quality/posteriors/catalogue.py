"""All problems by name; data are read when one is asked for."""

from collections.abc import Callable

from posteriors.funnel import FUNNEL
from posteriors.logistic import logistic
from posteriors.problem import Problem
from posteriors.schools import CENTRED, NON_CENTRED
from posteriors.squared_regression import SQUARED_REGRESSION
from posteriors.two_gaussians import TWO_GAUSSIANS

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "schools_centred": lambda: CENTRED,
    "schools_non_centred": lambda: NON_CENTRED,
    "two_gaussians": lambda: TWO_GAUSSIANS,
    "squared_regression": lambda: SQUARED_REGRESSION,
    "funnel": lambda: FUNNEL,
    "breast_cancer": lambda: logistic("breast_cancer", "Logistic regression, breast cancer, 31 dimensions"),
    "german_credit": lambda: logistic("german_credit", "Logistic regression, German credit, 25 dimensions"),
}
