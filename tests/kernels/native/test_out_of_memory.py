"""Memory that a native kernel does not get becomes an error in Python, and the next call works.

A library in front of the C library (LD_PRELOAD) refuses the n-th request of the kernels, and no other.
"""

import os
import subprocess
import sys
import textwrap

import pytest

from natmix.kernels import native

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="LD_PRELOAD"),
    pytest.mark.skipif(not native.available(), reason="installed without native kernels"),
]

REFUSING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_long left, requests;
static atomic_int armed;

/* Refuse the n-th request from now on (0: the first); -1: only count them; -2: leave it. */
void refuse(long n) { requests = 0, left = n, armed = n > -2; }
long requested(void) { return requests; }

static int refused(void *caller) {
  Dl_info info;
  if (!armed) return 0;
  if (!dladdr(caller, &info) || !info.dli_fname || !strstr(info.dli_fname, "libnatmix")) return 0;
  return atomic_fetch_add(&requests, 1) == left;
}

void *malloc(size_t n) { return refused(__builtin_return_address(0)) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t each) {
  return refused(__builtin_return_address(0)) ? NULL : __libc_calloc(n, each);
}
void *aligned_alloc(size_t to, size_t n) {
  return refused(__builtin_return_address(0)) ? NULL : __libc_memalign(to, n);
}
"""

PROGRAM = """
import ctypes, sys
import jax, jax.numpy as jnp
import natmix
from natmix import GMMVI, JaxTarget, Mixture
from natmix.kernels.plan import Plan

shim = ctypes.CDLL(sys.argv[1])
assert Plan.detect().native
target = JaxTarget(lambda x: -0.5 * jnp.sum((x - 1) ** 2), 8)
errors = works = 0
for name in ("samtron", "zamtrux"):
    mixture = Mixture.full(jnp.ones(8), jnp.arange(64.0).reshape(8, 8) / 50, jnp.stack([jnp.eye(8)] * 8))
    algorithm = GMMVI.from_codename(name, sample_selector={"desired_samples": 300})
    state = jax.block_until_ready(algorithm.init(0, mixture))
    step = jax.jit(lambda state: algorithm.step(state, target))
    good = jax.block_until_ready(step(state))
    shim.refuse(ctypes.c_long(-1))
    jax.block_until_ready(step(state))
    requests = shim.requested()
    shim.refuse(ctypes.c_long(-2))
    assert requests > 0, "the kernels asked for nothing"
    for n in sorted({*range(4), *range(0, requests, 1 + requests // 8)}):
        shim.refuse(ctypes.c_long(n))
        try:
            jax.block_until_ready(step(state))
        except Exception as error:
            assert "could not allocate memory" in str(error), error
            assert "RESOURCE_EXHAUSTED" in str(error), error
            errors += 1
        shim.refuse(ctypes.c_long(-2))
        again = jax.block_until_ready(step(state))
        same = jax.tree.map(lambda a, b: bool((a == b).all()), again[0].mixture, good[0].mixture)
        works += all(jax.tree.leaves(same))
    print(name, requests, flush=True)
print("errors", errors, "of", works)
assert errors and works
"""


def test_refused_memory_is_an_error_and_no_crash(tmp_path):
    import build_native

    source, shim = tmp_path / "refusing.c", tmp_path / "librefusing.so"
    source.write_text(REFUSING)
    command = [*build_native.compiler(), "-shared", "-fPIC", "-O1", str(source), "-o", str(shim), "-ldl"]
    subprocess.run(command, check=True)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(shim)],
        env=os.environ | {"LD_PRELOAD": str(shim)},
        capture_output=True,
        text=True,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "errors" in done.stdout
