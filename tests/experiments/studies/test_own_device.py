"""One process owns one device."""

import os

import pytest

from natmix.experiments.studies import own_device as module
from natmix.experiments.studies.own_device import give_back, own_device, visible_devices


@pytest.fixture
def free(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # so that it is put back
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    give_back()
    yield
    give_back()


@pytest.mark.usefixtures("free")
def test_processes_take_devices_that_are_free(monkeypatch):
    assert own_device(["0", "1"]) == "0"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert own_device(["0", "1"]) == "0"
    monkeypatch.setattr(module, "_taken", None)  # as another process would begin
    assert own_device(["0", "1"]) == "1"
    monkeypatch.setattr(module, "_taken", None)
    with pytest.raises(
        ValueError, match="Other processes own all 2 accelerators of this machine; use --jobs 2"
    ):
        own_device(["0", "1"])


@pytest.mark.usefixtures("free")
def test_machines_without_accelerators(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert visible_devices() == []
    assert own_device() is None


@pytest.mark.usefixtures("free")
def test_devices_that_the_scheduler_gave(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-ab")
    assert visible_devices() == ["3", "GPU-ab"]
