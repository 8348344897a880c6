"""Reference samples of test problems whose targets cannot be sampled at will.

``natmix references`` makes them once and keeps them in the cache directory.
"""

from natmix.experiments.references.generate import GENERATORS, Settings, generate, load_for, reference_name
from natmix.experiments.references.store import Reference, cache_directory, load

NAMES = tuple(GENERATORS)
"""The test problems there can be reference samples of."""

__all__ = [
    "NAMES",
    "Reference",
    "Settings",
    "cache_directory",
    "generate",
    "load",
    "load_for",
    "reference_name",
]
