"""How many rows to keep for components: another number is another program, and empty rows cost time."""

from natmix.gmmvi import GMMVI
from natmix.kernels.plan import current
from natmix.kernels.sharding import whole_rows

_CPU_FEWEST = ((16, 32), (64, 8))
"""On a CPU, up to so many dimensions: the rows of the first program. Where there are few dimensions an
iteration takes little beside a second and a third program, which 32 rows spare most runs."""
_CPU_FEWEST_BEYOND = 4
_CPU_DOUBLES_BELOW = 48
"""On a CPU, rows that double; more of them grow by half, as empty ones cost more than programs do."""
_LOOPS_QUADRUPLE_BELOW = 32
_LOOPS_DOUBLE_UP_TO_DIM = 32
_LOOPS_PAIRS = 2**24
_LOOPS_ENTRIES = 2**20
"""On a CPU where loops in machine code leave out empty rows: rows that grow by 4, and up to how many
dimensions more of them double, with as many empty as taken ones to begin with; up to so many pairs of samples
and components, and entries of all covariances."""
_REUSE_FEWEST = 2
_REUSE_QUADRUPLES_UP_TO = 8
"""On a CPU, where old samples are reused: rows to start with, at least, and how many grow by 4. Every row is
room for hundreds of samples, which an iteration goes through."""
_ACCELERATOR_FEWEST = 32
"""Rows to start with, at least, while they are cheap."""
_STEP = 8
"""Rows that are not cheap come in multiples of this; on a CPU all beyond the fewest do."""
_QUADRUPLES_BELOW = 128
_CHEAP = 2**17
_DEAR = 2**21
"""Entries of all covariances, on an accelerator. While they are few, few rows cost as much as many and a
new program takes long: rows grow by 4. When they are many, time grows with the square of the rows: an eighth
is kept to spare, and rows grow by a quarter."""


def fewest_rows(dim: int) -> int:
    """The fewest rows worth a program of their own."""
    if current().on_cpu:
        return next((rows for most, rows in _CPU_FEWEST if dim <= most), _CPU_FEWEST_BEYOND)
    return _ACCELERATOR_FEWEST


def grown(algorithm: GMMVI, rows: int, dim: int) -> int:
    """Rows for more components than ``rows``."""
    if current().on_cpu:
        few_to_reuse = rows <= _REUSE_QUADRUPLES_UP_TO and _reuses(algorithm)
        if few_to_reuse or (rows < _LOOPS_QUADRUPLE_BELOW and _empty_cost_little(algorithm, 4 * rows, dim)):
            return 4 * rows
        cheap = dim <= _LOOPS_DOUBLE_UP_TO_DIM and _empty_cost_little(algorithm, 2 * rows, dim)
        return 2 * rows if rows < _CPU_DOUBLES_BELOW or cheap else _whole(rows + rows // 2)
    if rows < _QUADRUPLES_BELOW and rows * dim**2 <= _CHEAP:
        return 4 * rows
    return 2 * rows if rows * dim**2 <= _DEAR else _whole(rows + rows // 4)


def shrunk(rows: int, dim: int) -> int:
    """Rows for a quarter as many components or fewer."""
    return max(_whole(rows // 2) if rows > _STEP else rows // 2, fewest_rows(dim))


def initial_capacity(algorithm: GMMVI, components: int, dim: int) -> int:
    """Rows to start with: some to spare if components may be added, just enough otherwise."""
    most = algorithm.component_adaptation.most_components(components)
    fewest = fewest_rows(dim)
    if current().on_cpu and _reuses(algorithm):
        fewest = max(_REUSE_FEWEST, fewest // 4)
    ample = fewest if components < fewest else _whole(components + components // 8)
    many = _power_of_two(2 * components)
    if components >= fewest and dim <= _LOOPS_DOUBLE_UP_TO_DIM and _empty_cost_little(algorithm, many, dim):
        ample = many
    if not current().on_cpu:
        rounded = max(fewest, _power_of_two(components))
        ample = rounded if rounded * dim**2 <= _DEAR else _whole(components + components // 8)
    return whole_rows(min(most, ample), algorithm.mesh)


def _empty_cost_little(algorithm: GMMVI, rows: int, dim: int) -> bool:
    """Whether loops leave out empty rows, no ring of samples grows with them, and pairs need little room."""
    selector = algorithm.sample_selector
    alone = current().native and algorithm.mesh is None and not _reuses(algorithm)
    return alone and selector.max_draws(rows) * rows <= _LOOPS_PAIRS and rows * dim**2 <= _LOOPS_ENTRIES


def _reuses(algorithm: GMMVI) -> bool:
    return algorithm.sample_selector.reused_per_row > 0


def _power_of_two(rows: int) -> int:
    """The next one."""
    return 1 << (rows - 1).bit_length()


def _whole(rows: int) -> int:
    """The next multiple of `_STEP`."""
    return -(-max(rows, 1) // _STEP) * _STEP
