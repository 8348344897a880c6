"""Stan programs: compiled, given data, evaluated."""

from natmix.models._stan._choose import load
from natmix.models._stan._data import as_data
from natmix.models._stan._errors import stan_reason
from natmix.models._stan._labels import labels
from natmix.models._stan._names import Outputs, variables
from natmix.models._stan._program import Program, is_program

__all__ = ["Outputs", "Program", "as_data", "is_program", "labels", "load", "stan_reason", "variables"]
