"""Trials on Dask: a cluster of this machine, a scheduler elsewhere, or Slurm.

A worker of Dask runs one trial at a time, or a batch of them, in a process of its own. What a trial has done
is in the study's folder, which all machines must see; Dask only carries numbers of trials. A scheduler that
is gone is waited for.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from natmix.experiments.studies.own_cores import CoreShare, own_cores
from natmix.experiments.studies.pools import AbstractPool, PoolReport, cell_of
from natmix.experiments.studies.trial_attempt import Report
from natmix.experiments.studies.trial_slots import room
from natmix.text.extras import needs

PATIENCE = 60.0
"""Seconds to wait for a scheduler that is gone."""
AHEAD = 1
"""Trials that wait at the scheduler for each worker, so that none is idle."""


def run_on_worker(folder: str, numbers: list[int], slots: int, processes: int) -> list[tuple[int, Report]]:
    """What a worker does with trials.

    Args:
        folder: of the study.
        numbers: of the trials.
        slots: trials at once.
        processes: workers that share this machine's cores; 1 if they have cores of their own.
    """
    from distributed import get_worker

    from natmix.experiments.studies.own_device import own_device
    from natmix.experiments.studies.trial_slots import attempt_trials

    own_device()
    if processes > 1:
        own_cores(CoreShare(int(get_worker().name), processes))
    return attempt_trials(folder, numbers, slots)


class DaskPool(AbstractPool):
    """Workers of a scheduler.

    A task is one trial; with several slots it has as many trials of one cell as keep them busy.

    Args:
        folder: of the study, where the workers see it.
        connect: makes a client of the scheduler; called again when the scheduler is gone.
        cluster: to be closed with the pool, if there is one.
        slots: trials at once on each worker.
        processes: workers that share this machine's cores; 1 if they have cores of their own.
    """

    def __init__(
        self,
        folder: Path,
        connect: Callable[[], Any],
        cluster: Any = None,
        slots: int = 1,
        processes: int = 1,
    ) -> None:
        self._folder, self._connect, self._cluster = str(folder.resolve()), connect, cluster
        self._slots, self._processes = slots, processes
        self._client = connect()
        self._unsent: list[int] = []
        self._running: dict[tuple[int, ...], Any] = {}
        self._sent = 0

    @property
    def free(self) -> int:
        most = max(1, (1 + AHEAD) * self._workers()) * room(self._slots)
        return most - len(self._unsent) - sum(len(task) for task in self._running)

    def submit(self, number: int) -> None:
        if self._slots == 1:
            self._send((number,))
        else:
            self._unsent.append(number)

    def wait(self, seconds: float) -> list[PoolReport]:
        self._send_waiting()
        until = time.monotonic() + seconds
        while True:
            ended = [task for task in list(self._running) if self._has_ended(task)]
            found = [report for task in ended for report in self._reports(task)]
            if any(report.report == "lost" for report in found):
                self._reconnect()
            if found or time.monotonic() >= until:
                return found
            time.sleep(0.02)

    def _send_waiting(self) -> None:
        """Trials of each cell in as many tasks as there are idle workers, or as keep their slots busy."""
        cells: dict[int, list[int]] = {}
        for number in self._unsent:
            cells.setdefault(cell_of(Path(self._folder), number), []).append(number)
        self._unsent = []
        idle = self._workers() - len(self._running)
        for numbers in cells.values():
            tasks = max(-(-len(numbers) // room(self._slots)), min(idle, -(-len(numbers) // self._slots)), 1)
            idle -= tasks
            for first in range(tasks):
                self._send(tuple(numbers[first::tasks]))

    def _send(self, task: tuple[int, ...]) -> None:
        self._sent += 1
        arguments = (self._folder, list(task), self._slots, self._processes)
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            # Each attempt has a name of its own: Dask would give the same name the earlier answer.
            key = f"natmix-trial-{task[0]}-{self._sent}"
            self._running[task] = self._client.submit(run_on_worker, *arguments, key=key, pure=False)
            return
        self._running[task] = None

    def close(self) -> None:
        # What waits is forgotten; what runs goes on to its end on its worker, which keeps its claim.
        with contextlib.suppress(Exception):
            self._client.cancel([future for future in self._running.values() if future is not None])
        for closing in (self._client, self._cluster):
            with contextlib.suppress(Exception):
                if closing is not None:
                    closing.close()

    def _workers(self) -> int:
        try:
            return len(self._client.scheduler_info(n_workers=-1)["workers"])
        except Exception:  # it is gone: `wait` finds out
            return 1

    def _has_ended(self, task: tuple[int, ...]) -> bool:
        future = self._running[task]
        return future is None or future.status != "pending"

    def _reports(self, task: tuple[int, ...]) -> list[PoolReport]:
        future = self._running.pop(task)
        with contextlib.suppress(Exception):  # its result went with the worker; outcomes are in the folder
            if future is not None and future.status == "finished":
                return [PoolReport(number, report) for number, report in future.result(timeout=PATIENCE)]
        return [PoolReport(number, "lost") for number in task]

    def _reconnect(self) -> None:
        """Find the scheduler again, if it is gone.

        Raises:
            ConnectionError: it does not come back.
        """
        if self._client.status == "running":
            return
        for task in self._running:
            self._running[task] = None
        with contextlib.suppress(Exception):
            self._client.close()
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._client = self._connect()
                return
            except Exception as error:
                if time.monotonic() >= until:
                    raise ConnectionError(
                        "The scheduler is gone. Nothing is lost: start it again and repeat the command."
                    ) from error
                time.sleep(1.0)


def local_cluster(folder: Path, processes: int, slots: int = 1) -> DaskPool:
    """A cluster of this machine."""
    with needs("Dask", "dask", "A local cluster"):
        from distributed import Client, LocalCluster
    cluster = LocalCluster(
        n_workers=processes, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
    )
    return DaskPool(folder, lambda: Client(cluster), cluster, slots, processes)


def at_scheduler(folder: Path, address: str, slots: int = 1) -> DaskPool:
    """Workers of the scheduler at an address, ``tcp://host:8786``."""
    with needs("Dask", "dask", f"--scheduler {address}"):
        from distributed import Client

    def connect() -> Any:
        try:
            return Client(address, timeout=10)
        except OSError as error:
            raise ConnectionError(
                f"There is no Dask scheduler at {address}; start one with `dask scheduler`, and workers with "
                f"`dask worker --nthreads 1 {address}`."
            ) from error

    return DaskPool(folder, connect, slots=slots)


def slurm_cluster(settings: Mapping[str, Any]) -> Any:
    """A cluster of Slurm jobs, of which none is submitted yet; one process in each, which owns one GPU.

    Args:
        settings: of `dask_jobqueue.SLURMCluster`, such as ``queue``, ``walltime``, ``cores``, ``memory``.
    """
    with needs("dask-jobqueue", "dask", "--scheduler slurm"):
        from dask_jobqueue.slurm import SLURMCluster
    usual: dict[str, Any] = {
        "cores": 1,
        "memory": "16GB",
        "walltime": "24:00:00",
        "job_extra_directives": ["--gpus-per-task=1", "--requeue"],
        "job_script_prologue": ["export XLA_PYTHON_CLIENT_PREALLOCATE=false"],
    }
    given = {**usual, **settings}
    # A job has one process with one thread for Dask; the cores of a job are for its compiled programs.
    given |= {"processes": 1, "job_cpu": given["cores"], "cores": 1, "nanny": True}
    return SLURMCluster(**given, scheduler_options={"dashboard_address": None})


def on_slurm(folder: Path, jobs: int, settings: Mapping[str, Any], slots: int = 1) -> DaskPool:
    """Workers in Slurm jobs."""
    from distributed import Client

    cluster = slurm_cluster(settings)
    cluster.scale(jobs=jobs)
    return DaskPool(folder, lambda: Client(cluster), cluster, slots)
