"""What a verdict can advise: calls that work for the result it belongs to."""

from typing import NamedTuple

import numpy as np

_LOAD = "load the result with a model that can be evaluated, natmix.Result.load(path, model=model)"


CLEAR = "the verdict is clear without"
"""The reason for no search where it would change nothing; none is advised then."""


class Remedies(NamedTuple):
    """What can be done about a result.

    Attributes:
        evaluate: its target is known, so that more samples can be evaluated.
        search: a mode search can be made.
        explore: Markov chains make sense: the target has gradients and no random values.
        float64: the fit was in a shorter float type, and float64 can be asked for.
    """

    evaluate: bool = True
    search: bool = True
    explore: bool = True
    float64: bool = False

    def samples(self, number: int, joint: str) -> str:
        """Words that advise to evaluate more samples."""
        if not self.evaluate:
            return f"{joint}{_LOAD}, to evaluate more"
        return f"{joint}judge by more samples, as in result.diagnose(samples={number:_})"

    def digits(self, rounding: float, largest: float) -> str:
        """How to get more digits."""
        subtract = "subtract a constant from the log density, such as its value at one point"
        longer = rounding * np.finfo(np.float64).eps / np.finfo(np.float32).eps
        if self.float64 and longer <= largest:
            return (
                f'Either {subtract}, or fit again with dtype="float64" after '
                "jax.config.update('jax_enable_x64', True)."
            )
        return f"It helps to {subtract}, in a form that does not compute the large number first."

    def draw(self) -> str:
        """How to draw with importance weights."""
        if self.evaluate:
            return "draw with result.resample(1000), which corrects by importance weights"
        return f"its draws need importance weights; {_LOAD}"


ALL_REMEDIES = Remedies()
