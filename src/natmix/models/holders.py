"""Objects of other packages that hold a model: a Bambi model, a posterior of posteriordb.

They are recognised by their classes' names, without importing these packages.
"""

from typing import Any


def has_class(target: Any, package: str, name: str) -> bool:
    """Whether it is of this class of this package, or of one derived from it."""
    classes = type(target).__mro__
    return any(c.__module__.split(".")[0] == package and c.__name__ == name for c in classes)


def holds_pymc_model(target: Any) -> bool:
    """Whether it is a `bambi.Model`."""
    return has_class(target, "bambi", "Model")


def pymc_model(target: Any) -> Any:
    """The `pymc.Model` of a `bambi.Model`, built if it is not yet; anything else as it is."""
    if not holds_pymc_model(target):
        return target
    if not target.built:
        target.build()
    return target.backend.model


def holds_stan_program(target: Any) -> bool:
    """Whether it is a `posteriordb.Posterior`."""
    return has_class(target, "posteriordb", "Posterior")


def stan_program(target: Any) -> tuple[str, dict[str, Any]]:
    """The code and the data of a `posteriordb.Posterior`.

    Raises:
        ValueError: it has no Stan program.
    """
    try:
        return target.model.code("stan"), target.data.values()
    except KeyError as error:
        raise ValueError(f"The entry {target.name!r} of posteriordb has no Stan program.") from error
