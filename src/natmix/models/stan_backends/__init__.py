"""Stan programs: compiled, given data, evaluated."""

from natmix.models.stan_backends.choose import load
from natmix.models.stan_backends.compiling import showing
from natmix.models.stan_backends.data import as_data
from natmix.models.stan_backends.errors import stan_reason
from natmix.models.stan_backends.labels import labels
from natmix.models.stan_backends.names import Outputs, variables
from natmix.models.stan_backends.program import Program, is_program

__all__ = [
    "Outputs",
    "Program",
    "as_data",
    "is_program",
    "labels",
    "load",
    "showing",
    "stan_reason",
    "variables",
]
