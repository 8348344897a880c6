"""The structure of a pytree: names of its leaves, and plain data for files."""

from typing import Any

import jax


def leaf_name(path: tuple[Any, ...]) -> str:
    """The path to a leaf, ``a/b``; empty for a leaf alone."""
    keys = (getattr(p, "key", getattr(p, "name", getattr(p, "idx", None))) for p in path)
    return "/".join(str(k) for k in keys)


def declared_names(tree: Any, above: str = "") -> list[str]:
    """Names of the leaves in the order in which the dictionaries were written; JAX sorts their keys."""
    if type(tree) is dict:
        return [name for key, inner in tree.items() for name in declared_names(inner, f"{above}{key}/")]
    return [f"{above}{leaf_name(path)}".rstrip("/") for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def encoded(tree: Any) -> Any:
    """Dictionaries, lists and tuples, numbers in place of the leaves; None if there is anything else."""
    numbers = iter(range(len(jax.tree.leaves(tree))))
    try:
        return _encoded(tree, numbers)
    except TypeError:
        return None


def _encoded(tree: Any, numbers: Any) -> Any:
    if type(tree) is dict and all(isinstance(k, str) for k in tree):
        # As JAX counts leaves: by sorted keys.
        return {"dict": {k: _encoded(tree[k], numbers) for k in sorted(tree)}}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_encoded(v, numbers) for v in tree]}
    if tree is None:
        return {"none": None}
    if jax.tree_util.all_leaves([tree]):
        return next(numbers)
    raise TypeError(f"{type(tree).__name__} is not plain.")


def decoded(structure: Any, leaves: list[Any]) -> Any:
    """The tree with these leaves."""
    if isinstance(structure, int):
        return leaves[structure]
    ((kind, inner),) = structure.items()
    if kind == "dict":
        return {k: decoded(v, leaves) for k, v in inner.items()}
    if kind == "none":
        return None
    return {"list": list, "tuple": tuple}[kind](decoded(v, leaves) for v in inner)
