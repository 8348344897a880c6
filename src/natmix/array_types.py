"""Names of common array types.

Shapes use the paper's letters: K components (slots, padding included), D dimensions,
N samples, H remembered generations, W records of a component's rewards.
"""

from typing import Any

from jaxtyping import Array, Bool, Float, Int, Key, UInt32

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Flag = Bool[Array, ""]
PRNGKey = Key[Array, ""]
KeyLike = PRNGKey | UInt32[Array, " words"] | int
"""A typed key, an old-style key or a seed."""
RealLike = Array | float
"""A continuous hyperparameter: given as a number or an array, held as an array."""
CountLike = Array | int
"""A whole-numbered hyperparameter, in the same way."""
PyTree = Any
