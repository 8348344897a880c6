"""Names of common array types.

Shapes use the paper's letters: K components (slots, padding included), D dimensions,
N samples, H remembered generations, W records of a component's rewards.
"""

from typing import Any

from jaxtyping import Array, Bool, Float, Int, Key

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Flag = Bool[Array, ""]
PRNGKey = Key[Array, ""]
PyTree = Any
