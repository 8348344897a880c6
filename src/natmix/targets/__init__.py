"""What to approximate: functions inside JAX, and functions outside it."""

from natmix.targets._base import AbstractTarget, TargetError
from natmix.targets._detect import as_target
from natmix.targets.host import HostTarget
from natmix.targets.inside import JaxTarget

__all__ = ["AbstractTarget", "HostTarget", "JaxTarget", "TargetError", "as_target"]
