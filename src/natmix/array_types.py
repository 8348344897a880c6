"""Names for the array types that appear everywhere.

Shapes use the paper's letters: K components (rows, padding included), D dimensions,
N samples, H remembered generations, W records of a component's rewards.
"""

from typing import Any

from jaxtyping import Array, Bool, Float, Int, Key

Scalar = Float[Array, ""]
Count = Int[Array, ""]
Flag = Bool[Array, ""]
PRNGKey = Key[Array, ""]
PyTree = Any
