"""How busy the workers of a `HostTarget` are, and what sending a large function costs.

    python benchmarks/speed/host_workers.py [--workers 8] [--batches 64 200 800]

The target sleeps for 10 to 100 ms (log-uniform, by the point), so that cores do not limit it. Busy: seconds
in calls over workers times seconds. No worker is idle while there are points, so what is lost is the end of a
batch: about half of a long call.
"""

import argparse
import multiprocessing
import os
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np

from natmix import HostTarget

SHORTEST, RANGE = 0.01, 10.0


def seconds_of(x):
    return SHORTEST * RANGE ** np.random.default_rng(abs(hash(x.tobytes()))).uniform()


def sleeping(x):
    time.sleep(seconds_of(x))
    return -0.5 * float(x @ x)


class WithData:
    def __init__(self, megabytes):
        self.data = np.ones(megabytes * 2**17)

    def __call__(self, x):
        return self.data.size - 0.5 * float(x @ x)


def targets(workers):
    """Targets by name, each with what to close afterwards."""
    spawn = multiprocessing.get_context("spawn")
    pools: dict[str, Executor | None] = {
        "workers=": None,
        "process pool": ProcessPoolExecutor(workers, mp_context=spawn),
        "thread pool": ThreadPoolExecutor(workers),
    }
    for name, pool in pools.items():
        yield name, pool, {"workers": workers} if pool is None else {"executor": pool}


def busy(workers, batches, repeats=3):
    print(f"busy share of {workers} workers; points per batch:", *batches)
    for name, pool, kind in targets(workers):
        target = HostTarget(sleeping, 2, **kind)
        rng = np.random.default_rng(0)
        target.call(rng.normal(size=(4 * workers, 2)), False)  # start all processes
        time.sleep(5)
        shares = []
        for n in batches:
            found = []
            for _ in range(repeats):
                x = rng.normal(size=(n, 2))
                before, start = target.counts, time.perf_counter()
                target.call(x, False)
                took = time.perf_counter() - start
                found.append(target.counts.since(before).seconds / (workers * took))
            shares.append(np.median(found))
        print(f"{name:13s}", *(f"{share:6.1%}" for share in shares), flush=True)
        target.close()
        if pool is not None:
            pool.shutdown()


def sending(workers, megabytes=50, n=200):
    print(f"a function with an array of {megabytes} MB, {n} points, {workers} workers:")
    for name, pool, kind in targets(workers):
        for size, label in ((0, "no array"), (megabytes, f"{megabytes} MB")):
            target = HostTarget(WithData(size), 2, **kind)
            rng = np.random.default_rng(0)
            times = []
            for _ in range(3):
                x = rng.normal(size=(n, 2))
                start = time.perf_counter()
                target.call(x, False)
                times.append(time.perf_counter() - start)
            print(f"{name:13s} {label:9s} batches of", *(f"{t:7.3f}" for t in times), "s", flush=True)
            target.close()
        if isinstance(pool, ProcessPoolExecutor):
            data, rows = WithData(megabytes), rng.normal(size=(10, 2))
            start = time.perf_counter()
            for future in [pool.submit(data, row) for row in rows]:
                future.result()
            print(f"{name:13s} sent with every call: {(time.perf_counter() - start) / 10:.3f} s a call")
        if pool is not None:
            pool.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 200, 800])
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    busy(given.workers, given.batches)
    sending(2)
