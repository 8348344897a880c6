"""What every problem decides from where it runs."""

import jax


def block_size(cpu: int, accelerator: int) -> int:
    """Points evaluated at once: on a CPU what stays in its caches, elsewhere what fills the device."""
    return cpu if jax.default_backend() == "cpu" else accelerator
