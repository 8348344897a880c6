"""Where Optuna or Dask is not installed one sentence says how to get it."""

import re
import sys

import pytest
from study_files import SMALL, study_of

from natmix.experiments.studies import dask_pool
from natmix.experiments.studies.client import opened
from natmix.experiments.studies.study_folder import StudyFolder
from natmix.text.extras import install


@pytest.fixture
def missing(monkeypatch):
    for name in ("optuna", "distributed", "dask_jobqueue", "dask_jobqueue.slurm"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("missing")
def test_the_extra_is_named(tmp_path):
    study = study_of(tmp_path, SMALL.replace('storage = "none"', ""))
    with pytest.raises(ImportError, match=re.escape(f"needs Optuna: {install('study')}")):
        opened(StudyFolder(tmp_path / "out"), study)
    with pytest.raises(ImportError, match=re.escape(f"needs Dask: {install('dask')}")):
        dask_pool.local_cluster(tmp_path, 2)
    with pytest.raises(ImportError, match=r"tcp://nowhere:1 needs Dask"):
        dask_pool.at_scheduler(tmp_path, "tcp://nowhere:1")
    with pytest.raises(ImportError, match=re.escape(f"needs dask-jobqueue: {install('dask')}")):
        dask_pool.slurm_cluster({})


def test_a_sampler_that_learns_needs_a_storage(tmp_path):
    study = study_of(tmp_path, SMALL.replace('"random"', '"tpe"'))
    with pytest.raises(ValueError, match="leave out storage = 'none'"):
        opened(StudyFolder(tmp_path / "out"), study)
