"""Figures of runs, rendered without a window and asked what they show."""

from pathlib import Path

import equinox as eqx
import matplotlib as mpl
import numpy as np
import pytest
from component_traces import events, history
from figure_texts import texts
from helpers import random_mixture
from run_files import write_checkpoint, write_directory, write_evaluations, write_final
from typer.testing import CliRunner

mpl.use("agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb, to_rgba

from natmix import Mixture
from natmix.cli import app
from natmix.experiments import problems
from natmix.experiments.figures import plot_planar_robot, plot_talos
from natmix.experiments.figures.planar_robot import families
from natmix.experiments.figures.run_figures import FIGURES, Drawing, RunFigure, figures_of, register
from natmix.experiments.problems.planar_robot import GOALS, end_position
from natmix.experiments.runs.directory import SeedFiles
from natmix.experiments.runs.history import write_trace, write_weights
from natmix.mixture.files import save_mixture
from natmix.plot.style import KNOWN

# Planar robot -----------------------------------------------------------------------------------

# Bending to the left or right by this much at every joint ends at distance 7 (unit links).
BEND = 0.2832564


@pytest.fixture(scope="module")
def arm():
    """Three families: two components to the goal (7, 0), one on each side, and one to (0, 7)."""
    first = -4.5 * BEND
    left, right = np.full(10, BEND), np.full(10, -BEND)
    left[0], right[0] = first, -first
    upwards = left.copy()
    upwards[0] += np.pi / 2
    means = np.stack([left, right, upwards, left + 0.001])
    return Mixture.diagonal([0.3, 0.1, 0.2, 0.4], means, np.full((4, 10), 1e-6))


def hand(x):
    """The end of the robot, as a sum of complex numbers."""
    end = np.exp(1j * np.cumsum(np.asarray(x), axis=-1)).sum(-1)
    return np.stack([end.real, end.imag], axis=-1)


def test_robots_stand_as_their_samples_say(arm):
    ax = plot_planar_robot(arm, GOALS[4], samples=25, seed=3)
    (lines,) = (c for c in ax.collections if c.get_label() == "samples")
    drawn = np.array(lines.get_segments())  # type: ignore[attr-defined]
    assert drawn.shape == (25, 11, 2)
    x, rows = arm.sample_with_components(25, key=3)
    np.testing.assert_allclose(drawn[:, 0], 0)
    np.testing.assert_allclose(drawn[:, -1], hand(x), atol=1e-6)
    np.testing.assert_allclose(drawn[:, -1], end_position(x), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(np.diff(drawn, axis=1), axis=-1), 1, atol=1e-6)
    # A colour per component, the heavier the more opaque.
    alpha = lines.get_colors()[:, 3]  # type: ignore[attr-defined]
    weights = np.asarray(arm.weights)[np.asarray(rows)]
    assert len(np.unique(lines.get_colors(), axis=0)) == len(np.unique(rows))  # type: ignore[attr-defined]
    assert (np.diff(alpha[np.argsort(weights)]) >= 0).all()
    assert alpha.max() > alpha.min()


def test_the_heaviest_of_a_family_is_drawn_thick_and_goals_are_marked(arm):
    ax = plot_planar_robot(arm, GOALS[4], samples=5)
    poses = [line for line in ax.lines if to_rgb(line.get_color()) != (1, 1, 1)]
    ends = np.array([np.column_stack(line.get_data())[-1] for line in poses])
    expected = hand(np.asarray(arm.means)[[1, 2, 3]])  # lightest first, the heaviest on top
    np.testing.assert_allclose(ends, expected, atol=1e-6)
    np.testing.assert_allclose(hand(arm.means)[:3], [[7, 0], [7, 0], [0, 7]], atol=1e-5)
    rings = [c for c in ax.collections if len(c.get_offsets()) == 4 and len(c.get_edgecolor())]  # type: ignore[arg-type]
    assert any(np.allclose(c.get_edgecolor()[0], to_rgba(KNOWN)) for c in rings)
    np.testing.assert_array_equal(rings[-1].get_offsets(), GOALS[4])
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert labels == ["70.0% (2)", "20.0% (1)", "10.0% (1)", "goal"]
    assert ax.get_xlim()[1] > 7
    assert ax.get_aspect() == 1


def test_families_share_goal_and_side(arm):
    kin = families(arm, np.asarray(GOALS[4], float))
    assert kin.of.tolist() == [0, 2, 1, 0]
    assert kin.heaviest.tolist() == [3, 2, 1]
    assert kin.sizes.tolist() == [2, 1, 1]
    np.testing.assert_allclose(kin.weights, [0.7, 0.2, 0.1])
    alone = families(arm, np.zeros((0, 2)))
    assert len(alone.weights) == 2


def test_robots_on_given_axes_without_goals(arm):
    _, ax = plt.subplots()
    assert plot_planar_robot(arm.top(1), samples=2, ax=ax) is ax
    assert ax.get_title(loc="left") == "Planar robot: 2 samples of one component"
    with pytest.raises(ValueError, match="at least one robot"):
        plot_planar_robot(arm, samples=0)


# TALOS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def talos():
    return problems.load("talos", dtype=np.float64).target.fn


def test_stick_figures_follow_the_kinematics(talos, tmp_path):
    rng = np.random.default_rng(0)
    mixture = Mixture.diagonal([0.2, 0.5, 0.3], 0.2 * rng.normal(size=(3, 34)), np.full((3, 34), 0.01))
    panels = plot_talos(mixture, talos, components=2, samples=4)
    assert len(panels) == 2
    skeletons, (_, frames) = eqx.filter_jit(lambda r, x: (r.skeleton(x), r.poses(x)))(talos, mixture.means)
    number = len(talos.segments)
    for ax, row in zip(panels, (1, 2), strict=True):
        drawn = [c for c in ax.collections if hasattr(c, "_segments3d")]
        thin, thick = (c for c in drawn if len(c._segments3d) in (number, 4 * number))
        np.testing.assert_allclose(thick._segments3d, skeletons[row], atol=1e-6)
        ends = dict(zip(talos.segments, np.asarray(thick._segments3d)[:, 1], strict=True))
        np.testing.assert_allclose(
            ends["arm_left_7_link", "gripper_left_base_link"], frames[row, 2], atol=1e-6
        )
        assert len(thin._segments3d) == 4 * number
        *_, soles = (c for c in drawn if len(c._segments3d) == 2)
        centres = np.asarray(soles._segments3d)[:, :4].mean(axis=1)
        np.testing.assert_allclose(centres, frames[row, :2], atol=0.01)  # the sole reaches a little forward
        assert thick.get_linewidths()[0] > thin.get_linewidths()[0]
        assert f"{[0.2, 0.5, 0.3][row]:.1%}" in texts(ax)
    figure = panels[0].figure
    assert "TALOS: the 2 heaviest components of 3, 80% of the weight" in texts(figure)
    figure.savefig(tmp_path / "talos.png")
    faint = Mixture.diagonal([0.6, 0.0004, 0.3996], mixture.means, np.full((3, 34), 0.01))
    assert len(plot_talos(faint, talos, samples=1)) == 2
    with pytest.raises(ValueError, match="at least one component"):
        plot_talos(mixture, talos, components=0)
    with pytest.raises(ValueError, match="3 components to show, but 1 axes"):
        plot_talos(mixture, talos, axes=panels[:1])


# natmix plot ------------------------------------------------------------------------------------


def write_run(path, problem, mixture, seeds=(0, 1), finished=True, dtype="float64"):
    """A run directory as `natmix run` leaves it, with the parts that figures need."""
    config = write_directory(path, problem, "SAMTRON", dtype=dtype, seeds=list(seeds))
    for seed in seeds:
        folder = path / f"seed-{seed}"
        folder.mkdir()
        evaluations = [
            {
                "seconds": t,
                "compile_seconds": 0.5,
                "evaluations": 100 * t,
                "iterations": t,
                "neg_elbo": 5.0 / t + seed,
            }
            for t in range(1, 9)
        ]
        digests = {"metrics.jsonl": write_evaluations(folder / "metrics.jsonl", evaluations)}
        if not finished:
            write_checkpoint(SeedFiles(path, seed), config, seed, events(400), history(20))
            continue
        digests["trace.safetensors"] = write_trace(folder / "trace.safetensors", events())
        digests["weights.safetensors"] = write_weights(folder / "weights.safetensors", history(20))
        digests["mixture.safetensors"] = save_mixture(mixture, folder / "mixture.safetensors")
        write_final(folder / "final.json", config, seed, digests, neg_elbo=5.0 / 8 + seed)
    return path


EVERY = ["component_events.png", "component_weights.png", "learning_curves.png", "marginals.png"]


def invoke(*arguments):
    return CliRunner().invoke(app, ["plot", *map(str, arguments)])


def test_plot_draws_a_run(tmp_path):
    run = write_run(tmp_path / "run", "stm3", random_mixture(0, 3, 3))
    result = invoke(run)
    assert result.exit_code == 0, result.output
    written = sorted((run / "figures").iterdir())
    assert [path.name for path in written] == EVERY
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    shown = {Path(line.split(".png")[0] + ".png"): line for line in result.output.splitlines()}
    assert sorted(shown) == written
    assert not plt.get_fignums()


def test_plot_draws_robots_and_says_why_there_is_no_comparison(arm, tmp_path, monkeypatch):
    monkeypatch.setenv("NATMIX_CACHE", str(tmp_path))
    run = write_run(tmp_path / "run", "planar_robot_4", arm)
    result = invoke(run, "--out", tmp_path / "here", "--seed", 1)
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "here").iterdir()) == sorted([*EVERY, "configurations.png"])
    assert "natmix references planar_robot_4" in result.output


def test_plot_shows_what_there_is_of_an_unfinished_run(tmp_path):
    run = write_run(tmp_path / "run", "stm3", None, finished=False)
    result = invoke(run)
    assert result.exit_code == 0
    assert sorted(p.name for p in (run / "figures").iterdir()) == EVERY[:3]
    assert "no marginals.png: Seed 0 has no final mixture" in result.output


def test_mistakes_get_one_sentence(tmp_path):
    run = write_run(tmp_path / "run", "stm3", random_mixture(0, 3, 3))
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    for arguments, message in (
        ([tmp_path / "none"], "no run directory"),
        ([tmp_path / "other"], "is no run directory"),
        ([run, "--seed", 7], "no seed 7, only 0, 1"),
        ([run, "--out", tmp_path / "file"], "file"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert result.output.startswith("natmix: ")
        assert message in result.output
        assert len(result.output.splitlines()) == 1
    empty = write_run(tmp_path / "empty", "stm3", None, seeds=())
    assert "has no seeds yet" in invoke(empty).output


def test_every_problem_knows_its_figures():
    names = {name: set(figures_of(name)) for name in problems.names()}
    common = {path.removesuffix(".png") for path in EVERY}
    own = {name: figures - common for name, figures in names.items()}
    assert all(common <= figures for figures in names.values())
    assert {name: figures for name, figures in own.items() if figures} == {
        "planar_robot_1": {"configurations"},
        "planar_robot_4": {"configurations"},
        "talos": {"poses"},
    }


def test_a_registered_figure_is_drawn_with_the_others(tmp_path):
    def draw(subject):
        figure, ax = plt.subplots()
        ax.bar(range(subject.seed.mixture.num_components), subject.seed.mixture.weights)
        return Drawing(figure, note=f"of {subject.problem.name}")

    weights = RunFigure("final_weights", draw, problems=("stm3",))
    register(weights)
    try:
        with pytest.raises(
            ValueError, match=r"^There is a figure of a run 'final_weights' already: choose another name\.$"
        ):
            register(RunFigure("final_weights", draw))
        result = invoke(write_run(tmp_path / "run", "stm3", random_mixture(0, 3, 3)))
        assert "final_weights" not in figures_of("wine")
    finally:
        del FIGURES["final_weights"]
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "figures" / "final_weights.png").read_bytes().startswith(b"\x89PNG")
    assert "final_weights.png: of stm3" in result.output
