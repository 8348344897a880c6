"""Double precision is available to all tests; those of float32 ask for it by dtype."""

import jax

jax.config.update("jax_enable_x64", True)
