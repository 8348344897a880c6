"""What a run needs in memory is estimated before it is made; too much is one sentence."""

import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import natmix
from natmix import GMMVI, Mixture
from natmix.engine import memory
from natmix.engine.memory import bytes_needed, shortage
from natmix.gaussians import family_named
from natmix.host_memory import free_host_memory
from natmix.targets import TargetError

GIGABYTE = 10**9


def normal(x):
    return -0.5 * jnp.sum(x**2)


@pytest.fixture
def little(monkeypatch):
    """A machine with one gigabyte left."""
    monkeypatch.setattr(memory, "free_memory", lambda: GIGABYTE)


# What is free ------------------------------------------------------------------------------------


def tree(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


MACHINE = {"meminfo": "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable:   8000000 kB\n"}


@pytest.mark.parametrize(
    ("group", "groups", "expected"),
    [
        ("", {}, 8_000_000 * 1024),
        ("0::/\n", {"memory.max": "max\n", "memory.current": "5\n"}, 8_000_000 * 1024),
        ("0::/\n", {"memory.max": "3000\n", "memory.current": "1000\n"}, 2000),
        (
            "0::/\n",
            {"memory.max": "3000", "memory.current": "2900", "memory.stat": "anon 5\ninactive_file 900\n"},
            1000,
        ),
        (  # the group around this one allows less
            "0::/job/step\n",
            {
                "job/step/memory.max": "9000",
                "job/step/memory.current": "10",
                "job/memory.max": "5000",
                "job/memory.current": "4000",
            },
            1000,
        ),
        (  # named as the host sees it
            "0::/kubepods/pod1\n",
            {"memory.max": "7000", "memory.current": "1000"},
            6000,
        ),
        (
            "5:cpu,memory:/box\n1:name=systemd:/\n",
            {"memory/box/memory.limit_in_bytes": "500", "memory/box/memory.usage_in_bytes": "700"},
            0,
        ),
    ],
)
def test_free_memory_is_what_machine_and_container_leave(tmp_path, group, groups, expected):
    proc = tree(tmp_path / "proc", MACHINE | {"self/cgroup": group})
    assert free_host_memory(proc, tree(tmp_path / "groups", groups | {"here": ""})) == expected


def test_without_proc_there_is_still_an_upper_bound_or_nothing(tmp_path):
    free = free_host_memory(tmp_path, tmp_path)
    assert free is None or free > 2**20


# The estimate -----------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize(
    ("codename", "options"),
    [
        ("samtron", {"sample_selector": {"reuse_ratio": 2.0}}),
        ("sepyfux", {}),
        ("zamtrux", {"component_adaptation": {"database_size": 50}}),
    ],
)
def test_the_size_of_a_state_is_exact(codename, options, covariance):
    algorithm = GMMVI.from_codename(codename, **options)
    one = Mixture.diagonal if covariance == "diagonal" else Mixture.full
    spread = np.ones((2, 3)) if covariance == "diagonal" else np.broadcast_to(np.eye(3), (2, 3, 3))
    mixture = one(jnp.ones(2), jnp.zeros((2, 3), jnp.float32), spread)
    state = algorithm.init(0, mixture, capacity=6)
    counters = ("key", "iteration", "ids", "births", "updates", "rewards", "weight_stepsize")
    without = [getattr(state, name) for name in counters]
    size = sum(a.nbytes for a in jax.tree.leaves(state)) - sum(a.nbytes for a in jax.tree.leaves(without))
    need = bytes_needed(algorithm, family_named(covariance), 3, jnp.float32, 6)
    assert need.state == size


def test_the_estimate_grows_with_every_size():
    def total(slots=8, dim=10, family="full", **selector):
        algorithm = GMMVI.from_codename("samtron", sample_selector=selector)
        return bytes_needed(algorithm, family_named(family), dim, jnp.float32, slots).total

    assert total() < total(slots=16) < total(slots=16, desired_samples=1000)
    assert total() < total(dim=100)
    assert total(dim=1000, family="diagonal") < total(dim=1000)
    assert total() < total(reuse_ratio=3.0)


def test_samples_are_counted_as_often_as_they_are_stored():
    """P draws so few that more of them are forgotten than a large ratio would reuse."""

    def total(ratio):
        algorithm = GMMVI.from_codename("septrux", sample_selector={"reuse_ratio": ratio, "max_age": 4})
        return bytes_needed(algorithm, family_named("full"), 10, jnp.float32, 100).total

    assert total(0.01) < total(0.1) == total(3.0)


# Too much ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codename", "options", "dim", "slots", "words"),
    [
        ("samtron", {}, 3000, 20, 'max_components, take covariance="diagonal" or fewer dimensions'),
        ("sepyfux", {"sample_selector": {"desired_samples": 10**6}}, 20, 100, "desired_samples"),
        ("samtron", {"component_adaptation": {"database_size": 10**8}}, 10, 4, r"lower \w+\.database_size"),
        ("zamtron", {}, 400, 2, 'covariance="diagonal"'),
    ],
)  # fmt: skip
def test_the_message_says_what_to_lower(little, codename, options, dim, slots, words):
    algorithm = GMMVI.from_codename(codename, **options)
    why = shortage(algorithm, family_named("full"), dim, jnp.float32, slots)
    assert why is not None
    assert "of memory, and 1.0 GB are free; lower" in why
    assert re.search(words, why), why


def test_a_fit_that_cannot_fit_is_refused_before_the_target_is_called(little):
    calls = []

    def target(x):
        calls.append(x)
        return -0.5 * float(x @ x)

    with pytest.raises(ValueError, match=r"50 components in 3,000 dimensions needs about .* lower init_comp"):
        natmix.fit(natmix.HostTarget(target, 3000), init_components=50, progress=False)
    many = {"desired_samples": 10**6}
    with pytest.raises(
        ValueError, match=r"slots in 50 dimensions need about .* GB .* or sample_selector.desired_samples"
    ):
        natmix.fit(natmix.HostTarget(target, 50), sample_selector=many, progress=False)
    assert not calls


def test_the_switch_turns_it_off(little, monkeypatch):
    monkeypatch.setenv(memory.SWITCH, "0")
    assert shortage(GMMVI.from_codename("samtron"), family_named("full"), 3000, jnp.float32, 50) is None


def test_unknown_memory_is_enough(monkeypatch):
    monkeypatch.setattr(memory, "free_memory", lambda: None)
    assert shortage(GMMVI.from_codename("samtron"), family_named("full"), 3000, jnp.float32, 50) is None


@pytest.mark.usefixtures("quick_compilation")
def test_a_mixture_that_cannot_grow_ends_the_fit_with_the_best_one(monkeypatch):
    def target(x):
        return jax.nn.logsumexp(-0.5 * jnp.sum((x - 8 * jnp.arange(30.0)[:, None]) ** 2, axis=1))

    monkeypatch.setattr(
        "natmix.engine.runner.shortage", lambda *arguments: "No memory." if arguments[4] > 4 else None
    )
    monkeypatch.setattr(sys.modules["natmix.fit"], "initial_capacity", lambda *arguments: 4)
    with pytest.raises(TargetError, match=r"The mixture cannot grow\. No memory\.") as raised:
        natmix.fit(
            target,
            2,
            algorithm="samtron",
            sample_selector={"desired_samples": 20},
            component_adaptation={"add_iters": 2, "del_iters": 100},
            max_iterations=60,
            verify=False,
            accuracy=None,
            progress=False,
        )
    assert raised.value.result is not None
    assert raised.value.result.mixture.num_components <= 4
