"""Seconds to compile a Stan program and microseconds of a gradient, by the compiler's flags.

Run: python benchmarks/speed/stan_flags.py DATABASE NAME ...
DATABASE is a clone of stan-dev/posteriordb; httpstan must be installed.
"""

import contextlib
import resource
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "quality"))

from posteriordb.database import posterior, root

from natmix.models.stan_backends import Program, as_data, httpstan

FLAGS = {"-O1": (), "-O2": (), "-O3": (), "-O3 -march=native": ("-march=native",)}
_POINTS, _ROUNDS = 200, 15


def main() -> None:
    folder = root(Path(sys.argv[1]))
    for name in sys.argv[2:]:
        given = posterior(folder, name)
        backends, seconds = {}, {}
        with contextlib.ExitStack() as stack:
            for label, tuning in FLAGS.items():
                cache = stack.enter_context(tempfile.TemporaryDirectory())
                before = _children_seconds()
                backends[label] = _compiled(given, label.split()[0], tuning, cache)
                seconds[label] = _children_seconds() - before
            for label, microseconds in _microseconds(backends).items():
                print(
                    f"{name:42} {label:18} {seconds[label]:6.1f} s CPU to compile, "
                    f"{microseconds:9.2f} us a gradient",
                    flush=True,
                )


def _compiled(given, level, tuning, cache):
    flags = tuple(level if flag == "-O3" else flag for flag in httpstan._FLAGS)
    with (
        mock.patch.dict("os.environ", {"NATMIX_CACHE": cache}),
        mock.patch.object(httpstan, "_FLAGS", flags),
        mock.patch.object(httpstan, "_tuning", return_value=tuning),
    ):
        return httpstan.HttpstanBackend(Program.read(given.program), as_data(_path(given, cache)), 0)


def _path(given, cache):
    path = Path(cache) / "data.json"
    path.write_text(given.data, encoding="utf-8")
    return path


def _microseconds(backends):
    """CPU time of one thread, in turns."""
    found: dict[str, list[float]] = {label: [] for label in backends}
    with mock.patch.dict("os.environ", {"NPROC": "1"}):
        for _ in range(_ROUNDS):
            for label, backend in backends.items():
                x = np.random.default_rng(0).uniform(-0.5, 0.5, (_POINTS, backend.dim))
                before = time.thread_time()
                backend.with_gradients(x)
                found[label].append((time.thread_time() - before) / _POINTS * 1e6)
    return {label: float(np.median(times)) for label, times in found.items()}


def _children_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
