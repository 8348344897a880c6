"""The covariance families by name."""

from typing import TypeVar

from natmix.gaussians.base import AbstractGaussians
from natmix.gaussians.diagonal import DiagonalGaussians
from natmix.gaussians.full import FullGaussians
from natmix.registry import registry_of
from natmix.text.suggestions import meant

Family = TypeVar("Family", bound=type[AbstractGaussians])

FAMILIES: dict[str, type[AbstractGaussians]] = registry_of(
    "covariance family", (FullGaussians, DiagonalGaussians), lambda family: family.name
)
"""What ``fit(covariance=name)`` accepts, in the order in which names are listed."""


def register(family: Family) -> Family:
    """Register a family under its `name`; usable as a class decorator.

    Raises:
        ValueError: another family has this name.
    """
    if FAMILIES.setdefault(family.name, family) is not family:
        raise ValueError(
            f"There is a covariance family {family.name!r} already, {FAMILIES[family.name].__name__}: "
            f"give {family.__name__} another name."
        )
    return family


def family_named(name: str) -> type[AbstractGaussians]:
    """The family of this name.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(name, str) or name not in FAMILIES:
        *others, last = map(repr, FAMILIES)
        raise ValueError(
            f"covariance must be {', '.join(others)} or {last}, got {name!r}.{meant(name, FAMILIES)}"
        )
    return FAMILIES[name]
