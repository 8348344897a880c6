"""Targets that are evaluated side by side: whatever the workers do, the values are right or NaN."""

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_functions
from worker_functions import DIES, HANGS, RAISES, UNSENDABLE

import natmix
from natmix import HostTarget, TargetError

POINTS = np.random.default_rng(0).normal(size=(30, 2))
VALUES = worker_functions.batch(POINTS)


def with_first(*firsts: float) -> np.ndarray:
    """The points, some of the first coordinates replaced."""
    points = POINTS.copy()
    points[3 : 3 + len(firsts), 0] = firsts
    return points


@pytest.fixture(scope="module")
def own():
    target = HostTarget(
        worker_functions.value, 2, gradient=worker_functions.gradient, workers=2, timeout=1.0, retries=1
    )
    yield target
    target.close()


def test_own_processes_give_the_values_of_the_function(own):
    values, gradients = own.call(POINTS, True)
    np.testing.assert_array_equal(values, VALUES)
    np.testing.assert_array_equal(gradients, -POINTS)
    assert own.call(POINTS, False)[1] is None
    assert own.call(POINTS[:0], True)[0].shape == (0,)


def test_a_call_that_hangs_or_dies_is_repeated_and_its_point_excluded(own, caplog):
    before, points = own.counts, with_first(HANGS, DIES)
    with caplog.at_level(logging.WARNING, logger="natmix"):
        values, gradients = own.call(points, True)
    lost = np.isin(points[:, 0], (HANGS, DIES))
    np.testing.assert_array_equal(np.isnan(values), lost)
    np.testing.assert_array_equal(np.isnan(gradients).all(axis=1), lost)
    np.testing.assert_array_equal(values[~lost], worker_functions.batch(points[~lost]))
    new = own.counts.since(before)
    assert new.excluded == 2
    # A task of several cheap points may have been lost with them once more.
    assert 2 <= new.timed_out <= 3
    assert 2 <= new.died <= 3
    assert len(caplog.messages) == 2
    assert any("hung 2 times at the point [100." in m and "no answer in 1 s" in m for m in caplog.messages)
    assert any("died 2 times at the point [200." in m and "exit code 7" in m for m in caplog.messages)

    again = own.counts
    values, _ = own.call(points, False)  # known to fail: nothing is repeated, nothing is said again
    np.testing.assert_array_equal(np.isnan(values), lost)
    assert own.counts.since(again).excluded == own.counts.since(again).timed_out == 0
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(
    ("first", "message"),
    [(RAISES, "The target raised RuntimeError: OddError: no licence"), (UNSENDABLE, "cannot be sent back")],
)
def test_an_error_of_the_function_ends_it_and_the_next_batch_works(own, first, message):
    with pytest.raises(TargetError, match=message) as error:
        own.call(with_first(first), False)
    assert 1 <= error.value.evaluations <= len(POINTS)
    np.testing.assert_array_equal(own.call(POINTS, False)[0], VALUES)


def test_a_worker_that_is_killed_is_replaced(own):
    own.call(POINTS, False)
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    np.testing.assert_array_equal(own.call(POINTS + 1, False)[0], worker_functions.batch(POINTS + 1))


class Unreliable(Executor):
    """Evaluates at once; one of so many tasks gets lost."""

    def __init__(self, every):
        self.tasks, self.every, self._max_workers = 0, every, 1

    def submit(self, fn, /, *args, **kwargs):
        self.tasks += 1
        future: Future = Future()
        if self.tasks % self.every == 0:
            future.set_exception(OSError("node lost"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def test_a_target_that_always_dies_ends_with_one_sentence():
    target = HostTarget(worker_functions.value, 2, executor=Unreliable(every=1), retries=0)
    with pytest.raises(
        TargetError, match=r"died once at .* and so it was at the 6 points before it"
    ) as error:
        target.call(POINTS, False)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("quick_compilation")
def test_a_fit_reports_lost_calls():
    lossy: dict[str, Any] = {"executor": Unreliable(every=7), "batch_size": 1, "retries": 0}
    target = HostTarget(worker_functions.value, 2, **lossy)
    few: dict[str, Any] = {"sample_selector": {"desired_samples": 40}, "verify": False, "progress": False}
    result = natmix.fit(target, max_iterations=3, elbo_samples=20, **few)
    died = target.counts.died
    assert died == target.counts.excluded > 5
    assert any(note.startswith(f"Of the target's calls {died} died") for note in result.notes)
    assert f"{died} died" in result.summary()
    assert 0 < result.counts.invalid < died
    assert np.isfinite(np.asarray(result.mixture.means)).all()


def test_a_thread_that_hangs_is_abandoned_and_the_others_go_on():
    wake = threading.Event()

    def value(x):
        if x[0] == HANGS:
            return float(wake.wait(60))
        return worker_functions.value(x)

    def stuck(x):
        wake.wait(60)
        return 0.0

    with ThreadPoolExecutor(2) as executor:
        target = HostTarget(value, 2, executor=executor, timeout=0.3, retries=0)
        try:
            values, _ = target.call(with_first(HANGS), False)
            assert np.flatnonzero(np.isnan(values)).tolist() == [3]
            target = HostTarget(stuck, 2, executor=executor, timeout=0.3)
            with pytest.raises(TargetError, match="All workers of the executor hang"):
                target.call(POINTS, False)
        finally:
            wake.set()


def test_workers_are_kept_busy():
    with ThreadPoolExecutor(4) as executor:
        target = HostTarget(worker_functions.slow_where_large, 2, executor=executor)
        start = time.perf_counter()
        target.call(np.random.default_rng(0).normal(size=(200, 2)), False)
        busy = target.counts.seconds / (4 * (time.perf_counter() - start))
    assert busy > 0.7  # measured without other load: benchmarks/speed/host_workers.py


def test_a_large_function_travels_to_each_process_a_few_times(tmp_path, monkeypatch):
    monkeypatch.setenv("NATMIX_TEST_LOADS", str(tmp_path / "loads"))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        target = HostTarget(worker_functions.WithData(10**5), 2, executor=executor)
        values, _ = target.call(np.zeros((40, 2)), False)
    loads = [float(line) for line in (tmp_path / "loads").read_text().split()]
    assert set(values) <= set(loads)
    assert len(loads) == len(set(loads)) <= 2  # once in each process, whatever travels


def test_an_executor_whose_process_dies_is_named():
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor:
        target = HostTarget(worker_functions.value, 2, executor=executor)
        with pytest.raises(TargetError, match=r"no longer works .* With workers= instead of executor="):
            target.call(with_first(DIES), False)


def test_functions_of_a_notebook_and_scripts_without_a_guard(tmp_path):
    body = """
    import numpy as np, natmix
    scale = np.full(2, 2.0)
    def value(x):
        return -0.5 * float(np.sum((np.asarray(x) / scale) ** 2))
    """
    ask = "values, _ = natmix.HostTarget(value, 2, workers=1).call(np.ones((3, 2)), False)\nprint(values)"
    pytest.importorskip("cloudpickle")
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(body) + ask], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "[-0.25 -0.25 -0.25]"
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(body) + ask)
    failed = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert failed.returncode != 0
    assert "ended before its first call" in failed.stderr.splitlines()[-1]
    assert "if __name__ == '__main__':" in failed.stderr.splitlines()[-1]


SLOW_FIT = """
import sys, time
sys.path[:0] = sys.argv[1:]
import multiprocessing
import natmix, worker_functions

def main():
    target = natmix.HostTarget(worker_functions.hangs_later, 1, workers=2)
    few = dict(sample_selector={"desired_samples": 10}, verify=False, progress=False, elbo_samples=10)
    def ready(snapshot):
        print("READY", *(p.pid for p in multiprocessing.active_children()), flush=True)
    result = natmix.fit(target, algorithm="ZEMIFUX", callback=ready, max_iterations=10**6, **few)
    print("RESULT", result.stopped, result.counts.iterations)

if __name__ == "__main__":
    main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_fit_and_its_processes(number, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SLOW_FIT)
    hangs = tmp_path / "hangs"
    hangs.touch()
    paths = [str(Path(worker_functions.__file__).parent), str(Path(natmix.__file__).parents[1])]
    environment = {**os.environ, "NATMIX_TEST_HANGS": str(hangs)}
    command = [sys.executable, script, *paths]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()[1:]]
        assert len(workers) == 2
        time.sleep(2)
        hangs.unlink()
        process.send_signal(number)
        out, _ = process.communicate()
    finally:
        watchdog.cancel()
    assert ("RESULT interrupted" in out) == (number == signal.SIGINT)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workers": 0}, "workers must be a whole number"),
        ({"workers": 2.0}, "workers must be a whole number"),
        ({"timeout": 0}, "timeout must be a positive number"),
        ({"timeout": "1"}, "timeout must be a positive number"),
        ({"retries": -1}, "retries must be a whole number"),
        ({"executor": 3}, "must be a concurrent.futures.Executor, got int"),
    ],
)
def test_bad_arguments(given, message):
    with pytest.raises(ValueError, match=message):
        HostTarget(worker_functions.value, 2, **given)


def test_a_timeout_needs_the_number_of_calls_at_once():
    class Other(Executor):
        def submit(self, fn, /, *args, **kwargs):
            raise AssertionError

    target = HostTarget(worker_functions.value, 2, executor=Other(), timeout=1.0)
    with pytest.raises(ValueError, match="say by workers= how many calls the Other makes at once"):
        target.call(POINTS, False)


# Executors of other packages --------------------------------------------------------------------


def test_dask():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        for target in (
            HostTarget(worker_functions.value, 2, executor=executor, gradient=worker_functions.gradient),
            HostTarget(lambda x: worker_functions.value(x), 2, executor=executor, workers=2, timeout=20.0),
            HostTarget(worker_functions.batch, 2, executor=executor, batched=True),
        ):
            values, gradients = target.call(POINTS, target.has_gradient)
            np.testing.assert_array_equal(values, VALUES)
            assert gradients is None or np.array_equal(gradients, -POINTS)
        with pytest.raises(TargetError, match="OddError: no licence"):
            target.call(with_first(RAISES), False)


def test_mpi(tmp_path):
    pytest.importorskip("mpi4py", exc_type=ImportError)
    mpiexec = Path(sys.executable).with_name("mpiexec")
    if not mpiexec.exists():
        pytest.skip("there is no mpiexec beside Python")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys
        sys.path[:0] = sys.argv[1:]
        import numpy as np, worker_functions
        from mpi4py.futures import MPIPoolExecutor
        from natmix import HostTarget

        if __name__ == "__main__":
            with MPIPoolExecutor(1) as executor:
                target = HostTarget(worker_functions.value, 2, executor=executor, workers=1, timeout=60.0)
                print(target.call(np.ones((5, 2)), False)[0])
        """)
    )
    paths = [str(Path(worker_functions.__file__).parent), str(Path(natmix.__file__).parents[1])]
    command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py.futures", script, *paths]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert shown.stdout.strip() == "[-1. -1. -1. -1. -1.]", shown.stderr
