"""What a run needs in memory, estimated before it is made, and compared with what there is."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from natmix.estimate import counted
from natmix.gaussians import AbstractGaussians
from natmix.gmmvi import GMMVI
from natmix.kernels.plan import current, free_memory
from natmix.mixture import Mixture

SWITCH = "NATMIX_CHECK_MEMORY"
"""The environment variable that turns the comparison off when it is 0."""

_SMALL = 2**28
"""Bytes that are not worth a look at what there is."""
_NATIVE_PAIRS, _PAIRS, _SAMPLES, _COMPONENTS = 2.0, 4.0, 6.0, 3.2
_NUMBERS_PER_SAMPLE = 5
_REGRESSIONS_PER_CORE, _MOST_REGRESSIONS = 4, 32
"""How many temporary arrays of each kind an iteration has at once (benchmarks/speed/memory.py)."""


class MemoryNeed(NamedTuple):
    """Bytes.

    Attributes:
        state: what is kept between iterations: components, stored samples.
        temporaries: what an iteration needs besides.
        samples: the part of both that grows with the number of samples.
        components: the part of both that grows with the covariances.
        store: the part of both that is for stored candidates.
    """

    state: int
    temporaries: int
    samples: int
    components: int
    store: int

    @property
    def total(self) -> int:
        """Both."""
        return self.state + self.temporaries


def bytes_needed(
    algorithm: GMMVI, family: type[AbstractGaussians], dim: int, dtype: Any, slots: int
) -> MemoryNeed:
    """What an algorithm needs with so many slots for components; the target's own needs are not known."""
    item = jnp.dtype(dtype).itemsize
    selector, adaptation = algorithm.sample_selector, algorithm.component_adaptation
    new, old = selector.max_draws(slots), selector.ring_size(slots)
    component = component_bytes(family, dim, dtype)
    parts = _state_bytes(algorithm, family, dim, dtype, slots)
    pairs = _NATIVE_PAIRS if current().native else _PAIRS
    points = new + old + adaptation.num_candidates()
    samples = item * int(pairs * (new + old) * slots + _SAMPLES * points * (dim + _NUMBERS_PER_SAMPLE))
    components = int(_COMPONENTS * slots * component)
    if not algorithm.ng_estimator.needs_gradient:
        matrices = min(_REGRESSIONS_PER_CORE * current().cores, _MOST_REGRESSIONS)
        components += item * matrices * (family.num_features(dim) + 1) ** 2
    state = sum(parts.values())
    return MemoryNeed(
        state,
        samples + components,
        samples + parts["ring"],
        components + slots * component,
        parts["store"],
    )


def component_bytes(family: type[AbstractGaussians], dim: int, dtype: Any) -> int:
    """Bytes of one component."""
    return _bytes(jax.eval_shape(lambda: family.isotropic(jnp.zeros((1, dim), dtype), jnp.ones(1, dtype))))


def _state_bytes(
    algorithm: GMMVI, family: type[AbstractGaussians], dim: int, dtype: Any, slots: int
) -> dict[str, int]:
    """Bytes of a state by its parts; nothing is computed."""

    def parts() -> dict[str, Any]:
        def mixture(n: int) -> Mixture:
            components = family.isotropic(jnp.zeros((n, dim), dtype), jnp.ones(n, dtype))
            return Mixture(jnp.zeros(n, dtype), components)

        present, prior = mixture(slots), mixture(1)
        return {
            "components": (present, prior, algorithm.component_stepsize.init(present)),
            "ring": algorithm.sample_selector.init(present, algorithm.ng_estimator.needs_gradient),
            "estimator": algorithm.ng_estimator.init(present),
            "store": algorithm.component_adaptation.init(present, prior),
        }

    return {name: _bytes(tree) for name, tree in jax.eval_shape(parts).items()}


def _bytes(tree: Any) -> int:
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(tree))


def shortage(
    algorithm: GMMVI, family: type[AbstractGaussians], dim: int, dtype: Any, slots: int, runs: int = 1
) -> str | None:
    """Why memory is short for so many slots, and what to lower; None if it is not, or if that is unknown."""
    if os.environ.get(SWITCH) == "0":
        return None
    need = bytes_needed(algorithm, family, dim, dtype, slots)
    if runs * need.total < _SMALL:
        return None
    free = free_memory()
    if free is None or runs * need.total <= free:
        return None
    each = f"{slots:,} component slots in {dim:,} dimensions"
    what = each if runs == 1 else f"{runs} runs with {each}"
    return (
        f"{what[0].upper()}{what[1:]} need about {_size(runs * need.total)} of memory, and "
        f"{_free_words(free)}; lower "
        f"{_remedy(algorithm, family, need)} ({SWITCH}=0 tries it nevertheless)."
    )


def check_memory(
    algorithms: Sequence[GMMVI],
    family: type[AbstractGaussians],
    dim: int,
    dtype: Any,
    slots: int,
    runs: int = 1,
) -> None:
    """Raise a ValueError if one of the algorithms that a run goes through needs more than there is."""
    for algorithm in algorithms:
        why = shortage(algorithm, family, dim, dtype, slots, runs)
        if why is not None:
            raise ValueError(why)


def check_mixture_memory(family: type[AbstractGaussians], dim: int, dtype: Any, components: int) -> None:
    """The same of a mixture alone, which a fit makes before it knows its algorithm."""
    needed = int(_COMPONENTS * components * dim**2 * jnp.dtype(dtype).itemsize)
    if needed < _SMALL or os.environ.get(SWITCH) == "0":
        return
    needed = int((1 + _COMPONENTS) * components * component_bytes(family, dim, dtype))
    free = free_memory()
    if free is not None and needed > free:
        raise ValueError(
            f"A mixture of {counted(components, 'component')} in {dim:,} dimensions needs about "
            f"{_size(needed)} of memory, and {_free_words(free)}; lower "
            f"{_smaller_mixture(family, 'init_components')} ({SWITCH}=0 tries it nevertheless)."
        )


def _remedy(algorithm: GMMVI, family: type[AbstractGaussians], need: MemoryNeed) -> str:
    """What to lower, by what takes most."""
    adds = algorithm.component_adaptation.adds_components
    number = "init_components, component_adaptation.max_components" if adds else "init_components"
    largest = max(need.samples, need.components, need.store)
    if largest == need.store:
        return "component_adaptation.database_size"
    if largest == need.samples:
        which = "desired_samples (or reuse_ratio)" if _reuses(algorithm) else "desired_samples"
        return f"{number} or sample_selector.{which}"
    return _smaller_mixture(family, number)


def _smaller_mixture(family: type[AbstractGaussians], number: str) -> str:
    if family.name == "full":
        return f'{number}, take covariance="diagonal" or fewer dimensions'
    return f"{number}, or take fewer dimensions"


def _free_words(free: int) -> str:
    return f"{_size(free)} {'are' if current().on_cpu else 'of the device are'} free"


def _reuses(algorithm: GMMVI) -> bool:
    """Whether samples are reused."""
    return algorithm.sample_selector.reused_per_slot > 0


def _size(number: float) -> str:
    """Bytes in words: 3.2 GB, 640 MB."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB"
