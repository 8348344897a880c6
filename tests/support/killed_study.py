"""A study in processes of their own, of which some are killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import study_model

from natmix.experiments.studies.study_folder import StudyFolder

STUDY = f"""
codenames = ["SEMTRUX"]
storage = "none"
[[problem]]
model = "{Path(study_model.__file__)}:bumps"
dim = 2
init_scale = 3.0
[budget]
iterations = ITERATIONS
[run]
checkpoint_seconds = 0.2
[search]
trials = TRIALS
[[space]]
start.components = 2
sample_selector.desired_samples = 10
sample_selector.reuse_ratio = 0.0
component_stepsize.stepsize = {{ low = 1e-2, high = 1.0, log = true }}
"""


def study_text(trials, iterations):
    return STUDY.replace("TRIALS", str(trials)).replace("ITERATIONS", str(iterations))


def start(file, out, *arguments):
    """The command in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "natmix",
        "study",
        "run",
        str(file),
        "--out",
        str(out),
        *map(str, arguments),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def workers_of(out):
    """The processes that run trials of a study, by its folder's name in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"natmix.experiments.studies.worker" in words and str(out).encode() in words:
            found.append(int(path.parent.name))
    return found


def progress_of(out):
    """Changes whenever a trial writes a checkpoint or ends."""
    trials = Path(out) / "trials"
    files = [*trials.glob("*/run/seed-*/checkpoint/state.safetensors"), *trials.glob("*/outcome.json")]
    return {(str(file), file.stat().st_mtime_ns) for file in files if file.exists()}


def wait_for_progress(out, process, before, seconds=120.0):
    until = time.monotonic() + seconds
    while progress_of(out) <= before and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run_with_kills(file, out, kills, *arguments, seed=0):
    """Run a study, killing the client or a worker so often; returns how many processes were killed."""
    rng, killed = random.Random(seed), 0
    process = start(file, out, *arguments)
    while killed < kills:
        wait_for_progress(out, process, progress_of(out))
        time.sleep(rng.uniform(0, 0.5))
        if process.poll() is not None:
            if process.returncode == 0:
                break  # it was faster
            process = start(file, out, *arguments)
            continue
        others = workers_of(out)
        victim = rng.choice([process.pid, *others])
        kill(victim)
        killed += 1
        if victim == process.pid:
            process.wait()
            process = start(file, out, *arguments)
    process.wait(300)
    return killed


def outcomes(out, number):
    """What must not depend on kills."""
    found = {}
    for i in range(number):
        outcome = StudyFolder(out).outcome(i)
        found[i] = (outcome.state, outcome.value, outcome.iterations, outcome.evaluations, outcome.components)
    return found


def assert_nothing_was_lost(out, number):
    """Each attempt began at the last checkpoint, and none after the outcome."""
    folder = StudyFolder(out)
    for i in range(number):
        begins = [attempt.iterations for attempt in folder.attempts(i) if attempt.event == "begin"]
        assert begins == sorted(begins), (i, begins)
        assert folder.outcome(i).attempts == len(begins), (i, begins)
