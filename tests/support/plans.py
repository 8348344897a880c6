"""Plans of devices that tests pretend to run on."""

import pytest

from natmix.kernels import native
from natmix.kernels.plan import Plan

XLA = Plan("cpu")
"""A CPU without native kernels."""
NATIVE = Plan("cpu", native_kernels=True)
GPU = Plan("gpu", memory=2**36)
"""Of a data centre: float64 is fast."""
DESKTOP_GPU = Plan("gpu", fast_float64=False, memory=2**33)
PLANS = {"native": NATIVE, "xla": XLA, "gpu": GPU, "desktop gpu": DESKTOP_GPU}

native_only = pytest.mark.skipif(not native.available(), reason="installed without native kernels")
