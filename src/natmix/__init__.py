"""natmix: variational inference with Gaussian mixtures by natural gradients."""

import gc
import importlib
from typing import TYPE_CHECKING, Any

# Importing makes many objects that stay: a full collection in the midst of it takes 40 ms and frees nothing.
_collecting = gc.isenabled()
gc.disable()
try:
    from natmix._version import __version__
    from natmix.engine.snapshot import FitSnapshot
    from natmix.estimate import Estimate
    from natmix.fit import fit
    from natmix.fit_many import fit_many
    from natmix.gaussians import DiagonalGaussians, FullGaussians
    from natmix.gmmvi import GMMVI
    from natmix.kernels.compilation_cache import compilation_cache
    from natmix.mixture import Mixture
    from natmix.mixture.files import load_metadata
    from natmix.modules.codenames import MODULES
    from natmix.modules.state import Info, State
    from natmix.result import Result
    from natmix.targets import HostTarget, JaxTarget, TargetError
finally:
    if _collecting:
        gc.enable()

if TYPE_CHECKING:
    from natmix import calibration, diagnostics, experiments, integrations, models, plot, recorders
    from natmix.result.combine import combine
    from natmix.result.compare import compare

_SUBPACKAGES = ("calibration", "diagnostics", "experiments", "integrations", "models", "plot", "recorders")
_LAZY_FUNCTIONS = ("combine", "compare")

__all__ = [
    "GMMVI",
    "MODULES",
    "DiagonalGaussians",
    "Estimate",
    "FitSnapshot",
    "FullGaussians",
    "HostTarget",
    "Info",
    "JaxTarget",
    "Mixture",
    "Result",
    "State",
    "TargetError",
    "__version__",
    "calibration",
    "combine",
    "compare",
    "compilation_cache",
    "diagnostics",
    "experiments",
    "fit",
    "fit_many",
    "integrations",
    "load_metadata",
    "models",
    "plot",
    "recorders",
]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"natmix.{name}")
    if name in _LAZY_FUNCTIONS:
        return getattr(importlib.import_module(f"natmix.result.{name}"), name)
    raise AttributeError(f"module 'natmix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
