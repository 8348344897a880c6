"""Recorders with the real packages, offline; each is skipped where its package is not installed."""

import builtins
import dataclasses
import json
import re

import jax.numpy as jnp
import numpy as np
import pytest
from quick_fits import LEAST

import natmix
from natmix.recorders.base import AbstractFitLog, final_numbers, flat_settings
from natmix.result.diagnosing import diagnose_samples
from natmix.text.extras import install

pytestmark = pytest.mark.usefixtures("quick_compilation")

OPTIONS = {"dim": 2, **LEAST, "verify": False, "elbo_samples": 200, "max_iterations": 60}
NAMES = ("elbo", "kl", "components", "evaluations", "seconds")


def gaussian(x):
    return -0.5 * jnp.sum((x - 1.0) ** 2)


class KeptLog(AbstractFitLog):
    """Keeps what would be logged."""

    def __init__(self):
        super().__init__()
        self.calls, self.rows, self.end = [], [], None

    def _start(self):
        self.calls.append("start")

    def _log(self, numbers, step):
        self.rows.append((step, numbers))

    def _end(self, numbers, words, result):
        self.end = (numbers, words, result)

    def _stop(self, failed):
        self.calls.append("failed" if failed else "stop")


def fit(callback, **changes):
    return natmix.fit(gaussian, callback=callback, **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def logged(quick_compilation):
    log = KeptLog()
    return log, fit(log)


def test_a_fit_gives_its_numbers_and_at_the_end_its_verdict(logged):
    log, result = logged
    assert log.calls == ["start", "stop"]
    step, numbers = log.rows[-1]
    assert step == 60
    assert set(numbers) == {f"natmix/{name}" for name in NAMES}
    assert numbers["natmix/evaluations"] == result.trajectory["total_evaluations"][-1]
    final, words, given = log.end
    assert given is result
    assert words["verdict"] == diagnose_samples(result).verdict
    assert words["stopped"] == "max_iterations"
    assert final["natmix/final/elbo"] == pytest.approx(float(result.elbo.value))
    assert final["natmix/final/log_evidence"] == pytest.approx(np.log(2 * np.pi), abs=0.3)


def test_a_fit_that_fails_closes_its_log():
    calls = []

    def fails_later(x):
        calls.append(x)
        if len(calls) > 300:
            raise RuntimeError("the machine is on fire")
        return -0.5 * float(np.sum(np.asarray(x) ** 2))

    log = KeptLog()
    with pytest.raises(natmix.TargetError, match="on fire"):
        natmix.fit(fails_later, callback=log, **{**OPTIONS, "algorithm": "ZEMYDUX", "max_iterations": 1000})
    assert log.calls == ["start", "failed"]
    assert log.end[2].stopped == "failed"


def test_a_fit_without_samples_behind_its_elbo_has_numbers_without_a_verdict(logged):
    result = dataclasses.replace(logged[1], draws=None)
    assert set(final_numbers(result)) == {
        f"natmix/final/{name}" for name in ("elbo", "components", "evaluations", "seconds")
    }


def test_settings_have_dotted_names():
    assert flat_settings({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {"a.b": 1, "a.c.d": 2, "e": [3]}


@pytest.mark.parametrize(
    ("name", "library"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")]
)
def test_a_package_that_is_missing_is_named_with_its_extra(name, library, monkeypatch):
    real = builtins.__import__

    def without(module, *arguments, **others):
        if module.split(".")[0] == library:
            raise ImportError(module)
        return real(module, *arguments, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    make = getattr(natmix.recorders, name)
    with pytest.raises(ImportError, match=re.escape(install(name))):
        make("logs") if name == "tensorboard" else make()


# The real packages ------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default")
def test_tensorboard_reads_the_events(tmp_path):
    pytest.importorskip("tensorboardX")
    found = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    result = fit(natmix.recorders.tensorboard(tmp_path / "logs"))
    events = found.EventAccumulator(str(tmp_path / "logs"), size_guidance={"tensors": 0, "scalars": 0})
    events.Reload()
    tags = events.Tags()
    assert {f"natmix/{name}" for name in NAMES} <= set(tags["scalars"])
    assert [e.step for e in events.Scalars("natmix/elbo")][-1] == 60
    final = events.Scalars("natmix/final/elbo")[-1]
    assert final.value == pytest.approx(float(result.elbo.value), rel=1e-5)
    (verdict,) = (tag for tag in tags["tensors"] if tag.startswith("natmix/verdict"))
    (text,) = events.Tensors(verdict)[-1].tensor_proto.string_val
    assert text.decode() == diagnose_samples(result).verdict


@pytest.mark.filterwarnings("default")
def test_wandb_writes_an_offline_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="natmix", dir=str(tmp_path))
    result = fit(natmix.recorders.wandb(run))
    summary = dict(run.summary)
    assert summary["natmix/final/verdict"] == diagnose_samples(result).verdict
    assert summary["natmix/final/elbo"] == pytest.approx(float(result.elbo.value))
    assert run.config["natmix.seed"] == 0
    run.finish()  # was left open
    fit(natmix.recorders.wandb(project="natmix", dir=str(tmp_path), mode="offline"))
    files = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    content = b"".join(path.read_bytes() for path in files)
    assert b"natmix/elbo" in content
    assert b"natmix/final/verdict" in content
    with pytest.raises(ValueError, match="not both"):
        natmix.recorders.wandb(run, project="natmix")


@pytest.mark.filterwarnings("default")
def test_mlflow_keeps_metrics_tags_and_parameters(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = mlflow.MlflowClient(uri)
    client.create_experiment("schools", artifact_location=(tmp_path / "artifacts").as_uri())
    result = fit(natmix.recorders.mlflow("schools", tracking_uri=uri, run_name="first"), verify=True)
    experiment = client.get_experiment_by_name("schools")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.tags["natmix.verdict"] == diagnose_samples(result).verdict
    assert run.data.params["natmix.seed"] == "0"
    assert run.data.metrics["natmix/final/elbo"] == pytest.approx(float(result.elbo.value))
    steps = [m.step for m in client.get_metric_history(run.info.run_id, "natmix/elbo")]
    assert steps == sorted(steps)
    assert steps[-1] == 60
    (summary,) = (tmp_path / "artifacts").rglob("summary.txt")
    assert summary.read_text() == result.summary()
    other = client.create_run(experiment.experiment_id).info.run_id
    fit(natmix.recorders.mlflow(tracking_uri=uri, run_id=other))
    assert client.get_run(other).info.status == "RUNNING"
    assert json.loads(client.get_run(other).data.params["natmix.dim"]) == 2
