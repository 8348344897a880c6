"""What every problem decides from where it runs."""

from natmix.kernels.plan import current


def block_size(cpu: int, accelerator: int) -> int:
    """Points evaluated at once: on a CPU what stays in its caches, elsewhere what fills the device."""
    return cpu if current().on_cpu else accelerator
