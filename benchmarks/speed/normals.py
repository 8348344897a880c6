"""Milliseconds to draw standard normal numbers for a component, by `jax.random.normal` and by natmix.

Run: python benchmarks/speed/normals.py      (samples and dimensions of rows of benchmarks/speed/side_by_side)
"""

import jax
import numpy as np
from timing import seconds_per_call

from natmix.kernels.compilation import quick_jit
from natmix.kernels.normal_draws import normals

SIZES = {"gmm20": (300, 20), "breast_cancer": (250, 31), "german_credit": (400, 25), "gmm100": (300, 100)}
AT_ONCE = (1, 5)
"""Components: natmix had one at a time with JAX's numbers, now about five."""


def main() -> None:
    print(f"jax {jax.__version__}, ms per component, JAX / natmix; so many components at once:")
    for row, shape in SIZES.items():
        cells = []
        for n in AT_ONCE:
            keys = jax.random.split(jax.random.key(0), n)
            theirs = quick_jit()(lambda keys, s=shape: jax.vmap(lambda k: jax.random.normal(k, s))(keys))
            ours = quick_jit()(lambda keys, s=shape: normals(keys, s, np.dtype("float32")))
            spent = [1e3 * seconds_per_call(fn, keys) / n for fn in (theirs, ours)]
            cells.append(f"{n}: {spent[0]:.2f} / {spent[1]:.2f}")
        print(f"{row:>14}   " + "   ".join(cells))


if __name__ == "__main__":
    main()
