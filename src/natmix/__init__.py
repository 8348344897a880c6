"""natmix: variational inference with Gaussian mixtures by natural gradients."""

from natmix._algorithm import GMMVI
from natmix._codenames import MODULES
from natmix._estimate import Estimate
from natmix._fit import fit
from natmix._io import load_metadata
from natmix._result import Result
from natmix._state import Info, State
from natmix._version import __version__
from natmix.gaussians import DiagonalGaussians, FullGaussians
from natmix.mixture import Mixture
from natmix.targets import HostTarget, JaxTarget, TargetError

__all__ = [
    "GMMVI",
    "MODULES",
    "DiagonalGaussians",
    "Estimate",
    "FullGaussians",
    "HostTarget",
    "Info",
    "JaxTarget",
    "Mixture",
    "Result",
    "State",
    "TargetError",
    "__version__",
    "fit",
    "load_metadata",
]
