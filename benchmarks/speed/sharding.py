"""One run on several devices: milliseconds per iteration, memory per device, and what they tell each other.

Run: python benchmarks/speed/sharding.py [--devices 1 2 4 8] [--components 64] [--dim 20] [--samples 100]
     [--algorithm samtron] [--iterations 10]

On a machine with accelerators these are used, as many as there are; otherwise CPU devices are simulated,
which share the machine's cores: no speed-up is to be seen then, only what the program does. "N x K" are the
log densities, "state" is what a device keeps, "temporary" what it needs besides. Messages are those of one
iteration without an addition: how many there are, and how many kilobytes their results have on a device.
"""

import argparse
import os
import re
import time

if "device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"

import jax
import jax.numpy as jnp
import numpy as np

from natmix import GMMVI, JaxTarget, Mixture
from natmix.engine.chunk_runner import ChunkRunner

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")
BYTES = {"f64": 8, "f32": 4, "s32": 4, "u32": 4, "s64": 8, "pred": 1}


def main(options):
    devices = jax.devices()
    print(f"{devices[0].device_kind}, {len(devices)} devices, {os.cpu_count()} cores")
    print(f"{options.algorithm}: K = {options.components}, D = {options.dim}, {options.samples} samples each")
    print(f"{'devices':>7} {'ms':>8} {'compile s':>9} {'N x K MB':>9} {'state MB':>9} {'temporary MB':>12}  "
          f"{'kB of these':>11}  messages")  # fmt: skip
    for n in options.devices:
        if n <= len(devices):
            measure(n, devices[:n], options)


def measure(n, devices, options):
    K, D, dtype = options.components, options.dim, jnp.float32
    rng = np.random.default_rng(0)
    truth = Mixture.full(np.ones(5), 3 * rng.normal(size=(5, D)), np.stack([np.eye(D)] * 5)).astype(dtype)
    start = Mixture.full(np.ones(K), 3 * rng.normal(size=(K, D)), np.stack([np.eye(D)] * K)).astype(dtype)
    algo = GMMVI.from_codename(options.algorithm, sample_selector=_samples(options)).on(
        devices if n > 1 else None
    )
    target = JaxTarget(truth.log_prob, D)
    runner = ChunkRunner(algo, target, K)
    state = algo.init(0, start)
    begin = time.perf_counter()
    compiled = runner.lowered(state).compile()
    compiling = time.perf_counter() - begin
    memory = compiled.memory_analysis()
    N = algo.sample_selector.max_draws(state.mixture.num_components)
    own = sum(
        a.addressable_shards[0].data.nbytes for a in jax.tree.leaves(state) if a.dtype != state.key.dtype
    )
    state = runner.advance(state, 1, None).state
    begin = time.perf_counter()
    state = jax.block_until_ready(runner.advance(state, options.iterations, None).state)
    ms = 1e3 * (time.perf_counter() - begin) / options.iterations
    messages, received = _messages(compiled.as_text())
    print(
        f"{n:7} {ms:8.1f} {compiling:9.1f} {N * K * 4 / n / 1e6:9.2f} {own / 1e6:9.2f} "
        f"{memory.temp_size_in_bytes / 1e6:12.1f}  {received / 1e3:11.0f}  {messages}",
        flush=True,
    )


def _samples(options):
    from_components = "M" in options.algorithm.upper()
    return {"desired_samples": options.samples * (1 if from_components else options.components)}


def _messages(program):
    """The messages of an iteration, those within branches (additions, zeros) left out."""
    found, received = {}, 0  # type: ignore[var-annotated]
    for line in program.splitlines():
        match = re.search(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\(", line)
        if match is None or "/while/body/" not in line or "/cond/branch" in line:
            continue
        found[match[2]] = found.get(match[2], 0) + 1
        for kind, shape in re.findall(r"(f64|f32|s32|u32|s64|pred)\[([\d,]*)\]", match[1]):
            received += BYTES[kind] * int(np.prod([int(d) for d in shape.split(",") if d]))
    return ", ".join(f"{count} {kind}" for kind, count in found.items()) or "none", received


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--components", type=int, default=64)
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--algorithm", default="samtron")
    parser.add_argument("--iterations", type=int, default=10)
    main(parser.parse_args())
