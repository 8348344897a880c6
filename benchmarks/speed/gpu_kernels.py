"""How many kernels an iteration is on a GPU, without one: it is compiled for a GPU that is not there.

Run: python benchmarks/speed/gpu_kernels.py 47:20:200 [--list] [--text FILE]

Needs the CUDA compiler of jax (pip install jax-cuda12-plugin jax-cuda12-pjrt, of jax's own version) and no
device. The size is components:dimensions:samples, as in benchmarks/speed/gpu.py. The compiler guesses what
it would measure otherwise, which changes a few products. An inner loop makes the host wait once for every
turn and once more; what is within branches (a search for a component, zeros of the density) is not counted.
"""

import argparse
import re

import gpu
import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from natmix.engine import chunk_runner
from natmix.kernels.compilation import parted
from natmix.kernels.plan import Plan, using

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150000000000
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability { major: 9 feature_extension: 1 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H200"
"""
FREE = ("get-tuple-element", "bitcast", "constant", "parameter", "tuple", "copy-done", "async-done")


def absent_device() -> SingleDeviceSharding:
    """Arrays on an H200 that is not there."""
    topology = topologies.get_topology_desc(
        topology_name="1x1x1", platform="cuda", target_config=H200, topology="1x1x1"
    )
    return SingleDeviceSharding(topology.devices[0])


def compiled(size) -> str:
    """The chunk of iterations as the compiler leaves it."""
    algorithm, target, mixture = gpu.set_up(size)
    rows = size[0] + gpu.WINDOWS
    state = algorithm.init(0, mixture, capacity=rows)
    arrays, rest = parted((algorithm, target))
    number = jnp.asarray(100, jnp.int32)

    def chunk(arrays, iterations, budget, state):
        return chunk_runner._chunk.__wrapped__(rest, arrays, iterations, budget, state)  # type: ignore[attr-defined]

    placed = absent_device()
    program = jax.jit(chunk, in_shardings=placed, out_shardings=placed)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (arrays, number, number, state))
    with using(Plan("gpu", memory=150_000_000_000)):
        return program.trace(*shapes).lower(lowering_platforms=("cuda",)).compile().as_text()


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation, by its name."""
    found, name = {}, None  # type: ignore[var-annotated]
    for line in text.splitlines():
        begins = re.match(r"(?:ENTRY )?%?([\w.\-]+) \(.*{$", line)
        if begins:
            name = begins[1]
            found[name] = []
        elif line.startswith("}"):
            name = None
        elif name and " = " in line:
            found[name].append(line.strip())
    return found


def kernels(found: dict[str, list[str]], name: str, depth: int = 0) -> list[str]:
    """What a computation starts on the device, a line each; inner loops once."""
    out = []
    for line in found[name]:
        operation = re.search(r"[\]})] ([a-z][a-z\-]*)\(", line)
        if operation is None or operation[1] in FREE:
            continue
        if operation[1] == "call":
            out += kernels(found, re.search(r"to_apply=%?([\w.\-]+)", line)[1], depth)
            continue
        origin = re.search(r'op_name="([^"]*)"', line)
        shape = line.split(" = ", 1)[1].split(f" {operation[1]}(")[0]
        out.append(f"{'  ' * depth}{operation[1]:12} {shape[:60]:60} {origin[1][-70:] if origin else ''}")
        if operation[1] == "while":
            out += kernels(found, re.search(r"body=%?([\w.\-]+)", line)[1], depth + 1)
    return out


def main(size, show: bool, file: str | None) -> None:
    text = compiled(size)
    if file:
        with open(file, "w") as f:
            f.write(text)
    found = computations(text)
    entry = re.search(r"^ENTRY %?([\w.\-]+) ", text, re.MULTILINE)[1]
    loop = max((line for line in found[entry] if " while(" in line), key=len)
    body = kernels(found, re.search(r"body=%?([\w.\-]+)", loop)[1])
    if show:
        print("\n".join(body))
    inner = sum(" while " in f" {line.strip()} " for line in body)
    print(f"{size}: {len(body)} kernels and copies an iteration, {inner} inner loops")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", help="components:dimensions:samples")
    parser.add_argument("--list", action="store_true", help="each of them")
    parser.add_argument("--text", help="where to write the compiled program")
    options = parser.parse_args()
    main(tuple(map(int, options.size.split(":"))), options.list, options.text)
