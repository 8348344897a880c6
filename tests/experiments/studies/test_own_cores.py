"""Processes of a machine share its cores."""

import os
import subprocess
import sys

import pytest

from natmix.experiments.studies.own_cores import CoreShare, own_cores


def test_shares_cover_the_cores_and_do_not_overlap():
    for cores, processes in ((8, 2), (7, 3), (96, 5), (2, 2)):
        shares = [CoreShare(place, processes).of(range(cores)) for place in range(processes)]
        assert sorted(core for share in shares for core in share) == list(range(cores))
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    more = [CoreShare(place, 5).of([3, 7]) for place in range(5)]
    assert more == [[3], [7], [3], [7], [3]]


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores to share",
)
def test_a_process_computes_on_its_share():
    """natmix and JAX see no more cores than these."""
    code = (
        "from natmix.experiments.studies.own_cores import CoreShare, own_cores\n"
        "import os\n"
        "print(own_cores(CoreShare(1, 2)) == sorted(os.sched_getaffinity(0)))\n"
        "from natmix.kernels.plan import current\n"
        "print(current().cores)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cores = len(CoreShare(1, 2).of(sorted(os.sched_getaffinity(0))))
    assert done.stdout.split() == ["True", str(cores)]


def test_one_process_has_all_cores():
    assert own_cores(CoreShare(0, 1)) is None
