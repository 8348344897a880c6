"""Seconds before work begins: importing, the first iteration, and compiling while components are added.

Run: python benchmarks/speed/start_up.py [--write results]      (each measurement is a process of its own)

    import        natmix beyond jax
    first         the first iteration of SAMTRON on gmm20 with the paper's settings, imports included: with
                  nothing compiled before ("cold"), and again with the cache of compiled programs ("cached")
    growth        compiling, cold, in a run that grows from 1 to 64 components
    options       one program with the compiler's default options and with natmix's, and how fast it runs
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

IMPORT = """
import time
start = time.perf_counter()
import jax, jax.numpy
between = time.perf_counter()
import natmix
print(f"jax {between - start:.2f} s, natmix {time.perf_counter() - between:.2f} s")
"""

GMM20 = """
preset = presets.paper("samtron", "gmm20")
problem = problems.load("gmm20", seed=0)
algorithm = GMMVI.from_codename("samtron", **preset.overrides)
mixture, prior = preset.start(20).mixture(jax.random.key(0), COMPONENTS, jnp.float32)
state = algorithm.init(0, mixture, prior, initial_capacity(algorithm, COMPONENTS, 20))
runner = ChunkRunner(algorithm, problem.target, 1000)
"""

FIRST = (
    """
import time
start = time.perf_counter()
import jax, jax.numpy as jnp
from natmix import GMMVI
from natmix.experiments import presets, problems
from natmix.engine.capacity import initial_capacity
from natmix.engine.chunk_runner import ChunkRunner
from natmix.kernels.compilation_cache import use_compilation_cache
imported = time.perf_counter()
use_compilation_cache()
"""
    + GMM20.replace("COMPONENTS", "5")
    + """jax.block_until_ready(runner.advance(state, 1, None).state)
end = time.perf_counter()
print(f"{end - start:.2f} s: {imported - start:.2f} s importing, {runner.compile_seconds:.2f} s compiling")
"""
)

GROWTH = """
import jax, jax.numpy as jnp
from natmix import GMMVI
from natmix.experiments import problems
from natmix.engine.capacity import initial_capacity
from natmix.engine.chunk_runner import ChunkRunner
problem = problems.load("stm20", seed=0)
algorithm = GMMVI.from_codename("samtron", sample_selector={"desired_samples": 50},
    component_adaptation={"add_iters": 2, "del_iters": 10_000, "database_candidates": 1000})
mixture, prior = problem.start.mixture(jax.random.key(0), 1, jnp.float32)
state = algorithm.init(0, mixture, prior, initial_capacity(algorithm, 1, 20))
runner = ChunkRunner(algorithm, problem.target, 64)
components = 0
while components < 64:
    result = runner.advance(state, 64, None)
    state, components = result.state, int(result.infos["components"][-1])
print(f"{runner.compile_seconds:.1f} s for {len(runner._warm)} programs ({sorted(runner._warm)} rows)")
"""

OPTIONS = (
    """
import time
import jax, jax.numpy as jnp
from natmix import GMMVI
from natmix.kernels import compilation
from natmix.experiments import presets, problems
from natmix.engine.capacity import initial_capacity
from natmix.engine.chunk_runner import ChunkRunner
if {default}:
    compilation.compiler_options = lambda *arguments: {{}}
"""
    + GMM20.replace("COMPONENTS", "14")
    + """state = runner.advance(state, 5, None).state
start = time.perf_counter()
result = runner.advance(state, 20, None)
jax.block_until_ready(result.state)
n = len(result.infos["elbo"])
spent = time.perf_counter() - start
print(f"compiling {{runner.compile_seconds:.2f}} s, then {{spent / n * 1e3:.1f}} ms per iteration")
"""
)


def measure(name: str, script: str, cache: str | None = None) -> str:
    """What a fresh process prints, printed."""
    environment = dict(os.environ)
    if cache:
        environment["NATMIX_CACHE"] = cache
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{name}: the process ended with {done.returncode}.\n{done.stderr}")
    line = f"{name:18} {done.stdout.strip()}"
    print(line, flush=True)
    return line


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="also into start_up.txt there")
    options = parser.parse_args()
    lines = [f"{os.cpu_count()} cores, Python {platform.python_version()}, jax {version('jax')}"]
    print(lines[0])
    lines += [measure("import", IMPORT) for _ in range(3)]
    with tempfile.TemporaryDirectory() as cache:
        for kind in ("cold", "cached", "cached", "cached"):
            lines.append(measure(f"first, {kind}", FIRST, cache))
    lines.append(measure("growth, cold", GROWTH))
    for _ in range(2):
        lines.append(measure("default options", OPTIONS.format(default=True)))
        lines.append(measure("natmix's options", OPTIONS.format(default=False)))
    if options.write is not None:
        (options.write / "start_up.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
