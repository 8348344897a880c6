"""What to approximate: JAX functions, and Python functions outside JAX."""

from natmix.targets.base import AbstractTarget, TargetError
from natmix.targets.detection import as_target
from natmix.targets.host import HostTarget
from natmix.targets.jax_target import JaxTarget
from natmix.targets.two_forms import AbstractTwoForms

__all__ = ["AbstractTarget", "AbstractTwoForms", "HostTarget", "JaxTarget", "TargetError", "as_target"]
