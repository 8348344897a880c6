"""What the chunk of a batch of trials costs the compiler and the memory of a GPU, without a GPU.

Run: python benchmarks/speed/batch_compilation.py [--codenames SEPTRUX SAMTRON] [--slots 16] [--samples 1024]
         [--components 32] [--ratio 2] [--candidates 1024] [--problem gmm20] [--single] [--triton]
         [--text FOLDER]

A trial has as many samples, components and candidates as its bounds allow; `--single` compiles the chunk of
one such trial alone. Columns: seconds of the processor to trace and to compile (XLA guesses what it would
measure on a device), kernels of the compiled program, GiB of arguments and of temporaries. `--text` writes
the programs; `XLA_FLAGS="--xla_dump_to=FOLDER"` more of them.

On a device XLA's autotuners compile kernels in several ways to time them. That of fusions, which natmix turns
off, also compiles reductions and transpositions by Triton; `--triton` compiles by Triton what it can do. XLA
names modules that take minutes ("Very slow compile?").

Needs the CUDA compiler of jax, as gpu_kernels.py.
"""

import argparse
import functools
import re
import time
from pathlib import Path
from typing import Any

import gpu_kernels
import jax
import jax.numpy as jnp

from natmix.engine import chunk_runner
from natmix.engine.batch_program import BatchArguments, filled, trial_chunk
from natmix.engine.slot_runner import SlotRunner
from natmix.experiments import problems
from natmix.experiments.problems.base import Problem
from natmix.experiments.runs import Limits
from natmix.experiments.runs.config import RunConfig
from natmix.experiments.studies.batch_form import batch_form
from natmix.experiments.studies.trial_runner import Trial, TrialTerms
from natmix.gmmvi import GMMVI
from natmix.kernels.compilation import compiler_options, parted
from natmix.kernels.plan import Plan, using
from natmix.modules.codenames import adds_components

GIB = 2**30
LIMITS = Limits(max_iterations=1000, max_evaluations=1_000_000)
TRITON = "xla_gpu_experimental_enable_fusion_block_level_rewriter"
PLAN = Plan("gpu", memory=150_000_000_000)


def configured(codename: str, problem: Problem, options: argparse.Namespace) -> RunConfig:
    """A trial that is as large as its bounds allow."""
    settings = {
        "sample_selector.desired_samples": options.samples,
        "sample_selector.reuse_ratio": options.ratio,
        "start.components": options.components,
    }
    if adds_components(codename):
        settings["component_adaptation.prior_candidates"] = options.candidates
    terms = TrialTerms(LIMITS, lambda trial: problem, lambda number: Path(), dtype="float32")
    return terms.configure(Trial(0, options.problem, codename, settings, 0), problem)


def single(config: RunConfig, problem: Problem, components: int) -> tuple[Any, Any, Any]:
    """The chunk of one trial, the shapes that it changes, and its other arguments."""
    arrays, rest = parted((config.algorithm, problem.target))
    number = jnp.asarray(100, jnp.int32)

    def chunk(state, arguments):
        return chunk_runner._chunk.__wrapped__(rest, arguments, number, number, state)  # type: ignore[attr-defined]

    return chunk, state_shapes(config.algorithm, config, components), arrays


def together(
    config: RunConfig, problem: Problem, algorithm: GMMVI, components: int, slots: int
) -> tuple[Any, Any, Any]:
    """The same of so many trials."""
    runs = SlotRunner(slots, algorithm, problem.target, components)._runs
    number = jnp.asarray(100, jnp.int32)
    given = BatchArguments(runs, number, jnp.full(slots, 10**6, jnp.int32), jnp.ones(slots, bool))
    batch = jax.eval_shape(functools.partial(filled, size=slots), state_shapes(algorithm, config, components))
    arrays, rest = parted(given)

    def chunk(batch, arguments):
        return trial_chunk.__wrapped__(rest.joined(arguments), batch)  # type: ignore[attr-defined]

    return chunk, batch, arrays


def state_shapes(algorithm: GMMVI, config: RunConfig, slots: int) -> Any:
    """The shapes of a trial's state."""
    key = jax.random.key(0)
    mixture, prior = config.start.padded_mixture(key, config.components, slots, jnp.float32)
    return jax.eval_shape(lambda: algorithm.init(key, mixture, prior, slots))


def measured(codename: str, problem: Problem, options: argparse.Namespace) -> None:
    """Compile the chunk of this codename, and print a row."""
    config = configured(codename, problem, options)
    form = batch_form(LIMITS, PLAN)
    began = time.process_time()
    placed = gpu_kernels.absent_device()
    with using(PLAN):
        components = form.first_slots(config)
        if options.single:
            chunk, changed, others = single(config, problem, components)
        else:
            chunk, changed, others = together(
                config, problem, form.algorithm(config), components, options.slots
            )
        shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (changed, others))
        settings = compiler_options("gpu", tuned=options.single) | ({TRITON: True} if options.triton else {})
        jitted = jax.jit(
            chunk, in_shardings=placed, out_shardings=placed, donate_argnums=0, compiler_options=settings
        )
        lowered = jitted.trace(*shapes).lower(lowering_platforms=("cuda",))
        traced = time.process_time()
        program = lowered.compile()
    ended = time.process_time()
    text, memory = program.as_text(), program.memory_analysis()
    if options.text:
        options.text.mkdir(parents=True, exist_ok=True)
        form_name = "single" if options.single else f"{options.slots}"
        (options.text / f"{codename}-{form_name}-{options.samples}-{components}.txt").write_text(text)
    kernels = len(re.findall(r"^ *(?:ROOT )?%?[\w.\-]+ = .*\b(?:fusion|custom-call)\(", text, re.MULTILINE))
    print(
        f"{codename:9} {'1' if options.single else options.slots:>5} {options.samples:>7} {components:>10} "
        f"{traced - began:8.1f} {ended - traced:8.1f} {kernels:8} "
        f"{memory.argument_size_in_bytes / GIB:10.2f} {memory.temp_size_in_bytes / GIB:12.2f}",
        flush=True,
    )


def main(options: argparse.Namespace) -> None:
    problem = problems.load(options.problem, seed=0, dtype=jnp.float32)
    print("codename  slots samples components    trace  compile  kernels  arguments  temporaries")
    for codename in options.codenames:
        measured(codename.upper(), problem, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codenames", nargs="+", default=["SEPTRUX", "SAMTRON"])
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--components", type=int, default=32)
    parser.add_argument("--ratio", type=float, default=2.0)
    parser.add_argument("--candidates", type=int, default=1024)
    parser.add_argument("--problem", default="gmm20")
    parser.add_argument("--single", action="store_true", help="the chunk of one trial")
    parser.add_argument("--triton", action="store_true", help="compile by Triton what it can do")
    parser.add_argument("--text", type=Path, help="a folder for the compiled programs")
    main(parser.parse_args())
