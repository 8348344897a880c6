"""The number of points that a problem evaluates at once."""

from natmix.kernels.plan import current


def block_size(cpu: int, accelerator: int) -> int:
    """Points evaluated at once: as many as fit into the caches of a CPU, or fill another device."""
    return cpu if current().on_cpu else accelerator
