"""A fork of a process that has used JAX gets a sentence, not a hang."""

import os
import subprocess
import sys
import textwrap

import pytest

CODE = """
import os, sys
import natmix
target = natmix.HostTarget(lambda x: -0.5 * float(x @ x), 1)
small = dict(max_iterations=1, elbo_samples=10, verify=False, progress=False,
             sample_selector={"desired_samples": 10})
if sys.argv[1] == "used":
    natmix.fit(target, **small)
child = os.fork()
if child == 0:
    try:
        print(natmix.fit(target, **small).counts.iterations, flush=True)
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize(("parent", "answer"), [("used", "fork of one that has used JAX"), ("imported", "1")])
def test_a_fork_of_a_process_that_used_jax_is_refused(parent, answer):
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CODE), parent], capture_output=True, text=True, timeout=120
    )
    assert answer in shown.stdout, shown.stderr
