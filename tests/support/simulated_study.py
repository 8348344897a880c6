"""10,000 simulated trials: what the scheduling of a trial takes, and what it leaves on the disk.

``python tests/support/simulated_study.py [STORAGE [TRIALS]]`` prints a table. The folder is in memory where
the system has ``/dev/shm``: what forcing files to a disk takes is the disk's.
"""

import sys
import tempfile
import time
from pathlib import Path

from study_files import SimulatedPool, study_of

from natmix.experiments.studies.client import run_study

TEXT = """
storage = "STORAGE"
problems = ["gmm20", "stm20", "planar_robot_4"]
codenames = ["S[AE][MP]TR[OU][XGN]"]
[budget]
evaluations = 1000
[search]
sampler = "random"
trials = TRIALS
[[space]]
component_stepsize.stepsize = { low = 1e-5, high = 1.0, log = true }
sample_selector.desired_samples = { low = 1, high = 1000, integer = true }
component_adaptation.add_iters = { low = 1, high = 100, integer = true }
"""
CELLS = 72


class Quarters:
    """CPU seconds and bytes after each quarter of the trials."""

    def __init__(self, folder, total):
        self.times, self.bytes = [time.process_time()], [0]
        self._folder, self._each, self._count = folder, total // 4, 0

    def settled(self, outcome, progress):
        self._count += 1
        if self._count % self._each == 0 and len(self.times) <= 4:
            now = time.process_time()
            self.bytes.append(size_of(self._folder))
            self.times.append(now)

    def retried(self, number, why):
        raise AssertionError(why)


def size_of(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def simulate(folder, trials, workers, storage="none"):
    """CPU milliseconds and bytes per trial in each quarter of a simulated study."""
    per_cell = -(-trials // CELLS)
    text = TEXT.replace("STORAGE", storage).replace("TRIALS", str(per_cell))
    study, out, total = study_of(folder, text), folder / "out", per_cell * CELLS
    quarters = Quarters(out, total)
    pool = SimulatedPool(out, workers=workers)
    run_study(out, study, pool, watcher=quarters)
    assert len(pool.order) == total
    each = total // 4
    times = [1e3 * (b - a) / each for a, b in zip(quarters.times, quarters.times[1:], strict=False)]
    sizes = [(b - a) / each for a, b in zip(quarters.bytes, quarters.bytes[1:], strict=False)]
    return times, sizes


def main(storage="none", trials=10_000):
    with in_memory() as folder:
        times, sizes = simulate(Path(folder), int(trials), 200, storage)
    print("quarter  ms per trial  bytes per trial")
    for i, (ms, size) in enumerate(zip(times, sizes, strict=True), 1):
        print(f"{i:7}  {ms:12.2f}  {size:15.0f}")


def in_memory():
    """A temporary folder."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
