"""A divergence in words."""

from natmix.estimate import Estimate


def nats(gap: Estimate) -> str:
    """Text with its error; a divergence cannot be negative, only its estimate can."""
    if gap.value + 2 * gap.standard_error < 1e-3:
        return "below 0.001 nats"
    return f"{gap} nats"
