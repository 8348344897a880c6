"""How many slots to keep for components: each capacity is a program of its own, and empty slots cost time."""

from natmix.gmmvi import GMMVI
from natmix.kernels.plan import current
from natmix.kernels.sharding import round_up_slots

_CPU_FEWEST = ((16, 32), (64, 8))
"""(dimensions at most, slots of the first program) on a CPU. In few dimensions an iteration is cheap beside
the compilation of a second and a third program, which 32 slots spare most runs."""
_CPU_FEWEST_BEYOND = 4
"""Slots of the first program in more dimensions than these."""
_CPU_DOUBLES_BELOW = 48
"""On a CPU, fewer slots than this double. More grow by half: empty slots then cost more than a program."""
_NATIVE_QUADRUPLES_BELOW = 32
_NATIVE_DOUBLES_UP_TO_DIM = 32
_NATIVE_MAX_PAIRS = 2**24
_NATIVE_MAX_ENTRIES = 2**20
"""On a CPU with native kernels, which skip empty slots. Fewer slots than the first number grow by 4. Up to
the second number of dimensions more slots double, and a run starts with as many empty slots as taken ones.
Both hold up to so many pairs of a sample and a component, and so many entries of all covariances."""
_REUSE_FEWEST = 2
_REUSE_QUADRUPLES_UP_TO = 8
"""On a CPU with reuse of samples: the least number of slots at first, and the most slots that grow by 4.
Every slot holds hundreds of samples, and an iteration goes through all of them."""
_ACCELERATOR_FEWEST = 32
"""The least number of slots at first, on an accelerator."""
_STEP = 8
"""Capacities that are not powers of two are multiples of this."""
_QUADRUPLES_BELOW = 128
_CHEAP = 2**17
_EXPENSIVE = 2**21
"""On an accelerator, by the entries of all covariances. Up to `_CHEAP` many slots cost as much as few, and a
new program is slow to compile: slots grow by 4. Beyond `_EXPENSIVE` time grows with the square of the slots:
an eighth is kept to spare at first, and slots grow by a quarter."""


def fewest_slots(dim: int) -> int:
    """The smallest capacity that is worth a program of its own."""
    if current().on_cpu:
        return next((slots for most, slots in _CPU_FEWEST if dim <= most), _CPU_FEWEST_BEYOND)
    return _ACCELERATOR_FEWEST


def grown(algorithm: GMMVI, slots: int, dim: int) -> int:
    """The next larger capacity after ``slots``."""
    if current().on_cpu:
        few_to_reuse = slots <= _REUSE_QUADRUPLES_UP_TO and _reuses(algorithm)
        if few_to_reuse or (
            slots < _NATIVE_QUADRUPLES_BELOW and _empty_slots_are_cheap(algorithm, 4 * slots, dim)
        ):
            return 4 * slots
        cheap = dim <= _NATIVE_DOUBLES_UP_TO_DIM and _empty_slots_are_cheap(algorithm, 2 * slots, dim)
        return 2 * slots if slots < _CPU_DOUBLES_BELOW or cheap else _round_up(slots + slots // 2)
    if slots < _QUADRUPLES_BELOW and slots * dim**2 <= _CHEAP:
        return 4 * slots
    return 2 * slots if slots * dim**2 <= _EXPENSIVE else _round_up(slots + slots // 4)


def shrunk(slots: int, dim: int) -> int:
    """The next smaller capacity, once at most a quarter of the ``slots`` are taken."""
    return max(_round_up(slots // 2) if slots > _STEP else slots // 2, fewest_slots(dim))


def initial_capacity(algorithm: GMMVI, components: int, dim: int) -> int:
    """Slots of the first program: some to spare if components may be added, just enough otherwise."""
    most = algorithm.component_adaptation.most_components(components)
    fewest = fewest_slots(dim)
    if current().on_cpu and _reuses(algorithm):
        fewest = max(_REUSE_FEWEST, fewest // 4)
    ample = fewest if components < fewest else _round_up(components + components // 8)
    many = _power_of_two(2 * components)
    if (
        components >= fewest
        and dim <= _NATIVE_DOUBLES_UP_TO_DIM
        and _empty_slots_are_cheap(algorithm, many, dim)
    ):
        ample = many
    if not current().on_cpu:
        rounded = max(fewest, _power_of_two(components))
        ample = rounded if rounded * dim**2 <= _EXPENSIVE else _round_up(components + components // 8)
    return round_up_slots(min(most, ample), algorithm.mesh)


def _empty_slots_are_cheap(algorithm: GMMVI, slots: int, dim: int) -> bool:
    """Whether native kernels skip empty slots, no slot stores samples, and pairs need little memory."""
    selector = algorithm.sample_selector
    alone = current().native and algorithm.mesh is None and not _reuses(algorithm)
    return (
        alone
        and selector.max_draws(slots) * slots <= _NATIVE_MAX_PAIRS
        and slots * dim**2 <= _NATIVE_MAX_ENTRIES
    )


def _reuses(algorithm: GMMVI) -> bool:
    return algorithm.sample_selector.reused_per_slot > 0


def _power_of_two(slots: int) -> int:
    """The next power of two."""
    return 1 << (slots - 1).bit_length()


def _round_up(slots: int) -> int:
    """The next multiple of `_STEP`."""
    return -(-max(slots, 1) // _STEP) * _STEP
