"""Ctrl-C or SIGTERM returns the best mixture so far, from a real process that gets a real signal."""

import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from natmix.interrupts import SIGNALS, Interrupt, Interrupted, user_code

COMMON = """
import sys, os, time
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # compiles faster
import natmix

def say(*words):
    print(*words, flush=True)

def report(result):
    m = result.mixture
    good = all(bool(np.isfinite(np.asarray(a)).all()) for a in jax.tree.leaves(m))
    c = result.counts
    say("RESULT", result.stopped, result.interrupted, good, c.iterations, c.evaluations, result.elbo.samples)
    say(result.summary().splitlines()[0])
    m.sample(5), m.log_prob(np.zeros(2))
"""
INSIDE = """
def target(x):
    return -0.5 * jnp.sum((x - 3.0) ** 2)

def ready(snapshot):
    if snapshot.iteration == 1:
        say("READY")

result = natmix.fit(target, dim=2, max_iterations=10_000_000, tolerance=0, algorithm="SEMIFUX",
                    progress=False, callback=ready, component_stepsize={"stepsize": 1e-9})
report(result)
"""
OUTSIDE = """
calls = 0
def target(x):
    global calls
    calls += 1
    if calls == 250:
        say("READY")
    if calls > 250:
        time.sleep(0.05)
    return -0.5 * np.sum((np.asarray(x) - 3.0) ** 2)

result = natmix.fit(natmix.HostTarget(dim=2, fn=target), algorithm="ZEMIFUX", progress=False,
                    sample_selector={"desired_samples": 100})
assert calls == result.counts.evaluations, (calls, result.counts)
report(result)
"""


def run_and_interrupt(body, presses=1, number=signal.SIGINT):
    code = COMMON + textwrap.dedent(body)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("READY"):
                break
        for _ in range(presses):
            time.sleep(0.3)
            process.send_signal(number)
        started = time.perf_counter()
        out, err = process.communicate()
        return out.splitlines(), err, time.perf_counter() - started
    finally:
        watchdog.cancel()


@pytest.mark.parametrize(
    ("kind", "number"),
    [("inside", signal.SIGINT), ("outside", signal.SIGTERM)],
)
def test_a_signal_returns_the_best_mixture(kind, number):
    lines, err, seconds = run_and_interrupt(INSIDE if kind == "inside" else OUTSIDE, number=number)
    assert lines, err
    _, stopped, interrupted, good, iterations, evaluations, elbo_samples = lines[0].split()
    assert (stopped, interrupted, good) == ("interrupted", "True", "True")
    assert int(iterations) >= 1
    assert int(evaluations) >= 100
    assert int(elbo_samples) > 1
    assert "INTERRUPTED" in lines[1]
    # Outside JAX the rest of the iteration would take 2.5 s, and 100 samples for the ELBO 5 s.
    assert seconds < (30 if kind == "inside" else 20)


def test_a_second_press_while_the_elbo_is_estimated_loses_nothing():
    lines, err, _ = run_and_interrupt(OUTSIDE, presses=2)
    assert lines, err
    assert lines[0].split()[1:4] == ["interrupted", "True", "True"]


# The watch itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("number", SIGNALS)
def test_first_signal_is_noted_second_acts(number):
    before = [signal.getsignal(n) for n in SIGNALS]
    watch = Interrupt()
    with watch.watching():
        signal.raise_signal(number)
        assert watch.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
        watch.forget()
        signal.raise_signal(number)
        assert watch.asked
    assert [signal.getsignal(n) for n in SIGNALS] == before


@pytest.mark.parametrize("number", SIGNALS)
def test_user_code_is_broken_off_at_once(number):
    watch = Interrupt()
    with watch.watching():
        with pytest.raises(KeyboardInterrupt), user_code():
            signal.raise_signal(number)
        # Asked before it starts, it does not start.
        with pytest.raises(KeyboardInterrupt), user_code():
            raise AssertionError
    with user_code():
        pass


@pytest.mark.parametrize("number", SIGNALS)
def test_ignored_signals_stay_ignored_and_other_threads_do_not_care(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with Interrupt().watching():
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
    done = []

    def elsewhere():
        with Interrupt().watching(), user_code():
            done.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done


def test_interrupted_counts():
    assert Interrupted(7).evaluations == 7
    assert isinstance(Interrupted(), KeyboardInterrupt)
