"""What the host spends on a call of the compiled program, beside the iterations in it.

Run: python benchmarks/speed/calls.py

A call of n iterations takes a + b n milliseconds: a is printed, from calls of 1 and of 11 iterations of a
problem so small that they hardly take time.
"""

import time

import gpu
import jax

from natmix.engine.chunk_runner import ChunkRunner

SIZE = (2, 2, 5)
CALLS = 200
FEW, MANY = 1, 11


def milliseconds(runner, state, iterations):
    """Of a call, and the state after all of them."""
    start = time.perf_counter()
    for _ in range(CALLS):
        state = runner.advance(state, iterations, None).state
    jax.block_until_ready(state)
    return (time.perf_counter() - start) / CALLS * 1e3, state


def main():
    algorithm, target, mixture = gpu.set_up(SIZE)
    rows = SIZE[0] + gpu.WINDOWS
    runner = ChunkRunner(algorithm, target, rows)
    state = runner.advance(algorithm.init(0, mixture, capacity=rows), MANY, None).state
    few, state = milliseconds(runner, state, FEW)
    many, _ = milliseconds(runner, state, MANY)
    each = (many - few) / (MANY - FEW)
    print(f"{few - FEW * each:.2f} ms for a call, {each:.3f} ms for an iteration")


if __name__ == "__main__":
    main()
