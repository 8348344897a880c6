"""A recorder for MLflow."""

import time
from collections.abc import Mapping
from typing import Any

from natmix.recorders.base import AbstractFitLog, flat_settings
from natmix.result.result import Result
from natmix.text.extras import needs

_LONGEST = 500
"""Characters of a parameter or a tag that every store of MLflow keeps."""


def mlflow(
    experiment: str | None = None,
    *,
    tracking_uri: str | None = None,
    run_name: str | None = None,
    run_id: str | None = None,
) -> "MlflowLog":
    """A callback that logs to MLflow, ``natmix.fit(..., callback=mlflow("schools"))``.

    The verdict is in the run's tags, the settings in its parameters and the summary among its artifacts. It
    needs the extra ``mlflow``.

    Args:
        experiment: its name, made if it does not exist; "Default" if left out.
        tracking_uri: such as "sqlite:///mlflow.db" or the address of a server; MLflow's own if left out.
        run_name: of the run that is made, and ended with the fit.
        run_id: of a run of yours instead, which stays open: ``mlflow.active_run().info.run_id``.
    """
    if run_id is not None and not (experiment is None and run_name is None):
        raise ValueError("Give run_id, a run that there is, or experiment and run_name for a new one.")
    return MlflowLog(experiment, tracking_uri, run_name, run_id)


class MlflowLog(AbstractFitLog):
    """What `mlflow` returns."""

    def __init__(
        self, experiment: str | None, tracking_uri: str | None, run_name: str | None, run_id: str | None
    ) -> None:
        super().__init__()
        with needs("MLflow", "mlflow", "natmix.recorders.mlflow"):
            from mlflow import MlflowClient
            from mlflow.entities import Metric
        self._client: Any = MlflowClient(tracking_uri)
        self._metric = Metric
        self._experiment, self._name, self._given = experiment or "Default", run_name, run_id
        self._run = ""

    def _start(self) -> None:
        if self._given is not None:
            self._run = self._given
            return
        found = self._client.get_experiment_by_name(self._experiment)
        number = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        self._run = self._client.create_run(number, run_name=self._name).info.run_id

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        metrics = [self._metric(name, value, now, step) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def _end(self, numbers: Mapping[str, float], words: Mapping[str, str], result: Result) -> None:
        self._log(numbers, result.counts.iterations)
        for name, text in words.items():
            self._client.set_tag(self._run, f"natmix.{name}", text[:_LONGEST])
        for name, value in flat_settings(result.settings).items():
            self._client.log_param(self._run, f"natmix.{name}", str(value)[:_LONGEST])
        if result.verification is not None:  # otherwise its diagnosis would evaluate the target
            self._client.log_text(self._run, result.summary(), "natmix/summary.txt")

    def _stop(self, failed: bool) -> None:
        if self._given is None:
            self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")
