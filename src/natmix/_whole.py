"""Whole numbers that a user gives."""

import operator
from typing import Any

import numpy as np


def whole(value: Any, name: str, least: int = 1) -> int:
    """``value`` as an integer of at least ``least``; 1000.0 is not one, and neither is True."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, (bool, np.bool_)) or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return number
