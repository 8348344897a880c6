"""The number of points that a problem evaluates at once."""

from natmix.kernels.plan import current


def block_size(cpu: int, accelerator: int) -> int:
    """How many points to evaluate at once: as many as fit into a CPU's caches, or fill another device."""
    return cpu if current().on_cpu else accelerator
