"""Figures of runs, rendered without a window and asked what they show."""

import json
from pathlib import Path

import equinox as eqx
import matplotlib as mpl
import numpy as np
import pytest
from helpers import random_mixture
from scipy.stats import norm
from typer.testing import CliRunner

mpl.use("agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb, to_rgba

from natmix import Mixture, problems
from natmix.cli import app
from natmix.problems.planar_robot import GOALS, end_position
from natmix.report import (
    plot_component_events,
    plot_component_weights,
    plot_marginals,
    plot_planar_robot,
    plot_talos,
)
from natmix.report._component_events import _round_up
from natmix.report._component_weights import group_weights
from natmix.report._marginals import marginals
from natmix.report._planar_robot import families
from natmix.report._run_figures import figures_of
from natmix.report._style import COMPONENT, KNOWN, PALETTE, shades
from natmix.runs import WeightHistory
from natmix.runs._load import LOOK_NUMBERS


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


def texts(figure):
    return [t.get_text() for t in figure.findobj(mpl.text.Text) if t.get_text()]


# Style ------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
DEFICIENCIES = {
    "none": "1 0 0; 0 1 0; 0 0 1",
    "protanopia": "0.152286 1.052583 -0.204868; 0.114503 0.786281 0.099216; -0.003882 -0.048116 1.051998",
    "deuteranopia": "0.367322 0.860646 -0.227968; 0.280085 0.672501 0.047413; -0.01182 0.04294 0.968881",
    "tritanopia": "1.255528 -0.076749 -0.178779; -0.078411 0.930809 0.147602; 0.004733 0.691367 0.3039",
}
TO_XYZ = "0.412456 0.357576 0.180438; 0.212673 0.715152 0.072175; 0.019334 0.119192 0.950304"


def matrix(text):
    return np.array([row.split() for row in text.split(";")], dtype=float)


def lab(linear):
    f = np.cbrt(linear @ matrix(TO_XYZ).T / [0.95047, 1.0, 1.08883])
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


@pytest.mark.parametrize("eyes", DEFICIENCIES)
def test_the_colours_of_components_differ_to_all_eyes(eyes):
    rgb = np.array([to_rgb(colour) for colour in PALETTE])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = lab(np.clip(linear @ matrix(DEFICIENCIES[eyes]).T, 0, 1))
    distance = np.linalg.norm(seen[:, None] - seen, axis=-1)
    assert distance[~np.eye(len(PALETTE), dtype=bool)].min() > 15
    assert np.diagonal(distance, 1).min() > 35


def test_shades_are_colours_and_differ():
    colours = shades(np.tile(to_rgb(PALETTE[0]), (20, 1)))
    assert ((colours >= 0) & (colours <= 1)).all()
    assert len(np.unique(colours.round(6), axis=0)) == 20


# Marginals --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixture():
    return random_mixture(0, 4, 6)


@pytest.fixture(scope="module")
def samples(mixture):
    return np.asarray(mixture.sample(1, 20_000))


def test_a_marginal_is_the_mean_density_of_every_bin(mixture, samples):
    (curve,) = marginals(mixture, samples, [2], bins=40)
    std = np.sqrt(np.asarray(mixture.covariances)[:, 2, 2])
    below = norm.cdf(curve.edges[:, None], np.asarray(mixture.means)[:, 2], std) @ np.asarray(mixture.weights)
    np.testing.assert_allclose(curve.fit * np.diff(curve.edges), np.diff(below), atol=1e-6)
    counts, _ = np.histogram(samples[:, 2], curve.edges)
    np.testing.assert_allclose(curve.target * np.diff(curve.edges), counts / len(samples), atol=1e-12)


def test_histogram_and_fit_integrate_to_nearly_one(mixture, samples):
    for curve in marginals(mixture, samples, range(6), bins=50):
        for density in (curve.fit, curve.target):
            assert 0.99 < density @ np.diff(curve.edges) <= 1


def test_the_number_in_a_panel_is_the_largest_difference_of_the_distribution_functions():
    rng = np.random.default_rng(0)
    one = Mixture.diagonal([1.0], [[1.0]], [[1.0]])
    (curve,) = marginals(one, rng.normal(size=(50_000, 1)), [0], bins=400)
    assert curve.distance == pytest.approx(norm.cdf(0.5) - norm.cdf(-0.5), abs=0.01)
    assert marginals(one, rng.normal(1, 1, size=(50_000, 1)), [0], bins=400)[0].distance < 0.01
    (ax,) = plot_marginals(one, np.full((10, 1), 1.0), bins=10)
    assert "0.500" in texts(ax)


def test_marginals_draw_fit_and_target(mixture, samples, tmp_path):
    panels = plot_marginals(mixture, samples, bins=30, source="exact samples")
    assert len(panels) == 6
    for ax, curve in zip(panels, marginals(mixture, samples, range(6), 30), strict=True):
        (line,), (steps,) = ax.lines, ax.patches
        np.testing.assert_array_equal(line.get_ydata(), curve.fit)
        np.testing.assert_array_equal(steps.get_data().values, curve.target)
        assert line.get_color() != steps.get_facecolor()
    figure = panels[0].figure
    assert "Fit and target: all 6 marginals" in texts(figure)
    assert any("exact samples" in text for text in texts(figure))
    figure.savefig(tmp_path / "marginals.png")


def test_twenty_panels_do_not_overlap():
    wide = Mixture.diagonal([1.0], np.zeros((1, 20)), 10.0 ** np.arange(-10, 10)[None])
    panels = plot_marginals(wide)
    figure = panels[0].figure
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in panels]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            overlap = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
            assert min(overlap) < 12  # at most a tick label of a few pixels
    assert max(ax.get_tightbbox().y1 for ax in panels) < figure._suptitle.get_window_extent().y0


def test_of_many_dimensions_the_worst_are_shown(samples):
    fit = Mixture.full([1.0], samples.mean(0)[None], np.cov(samples.T)[None])
    distances = [curve.distance for curve in marginals(fit, samples, range(6), 30)]
    panels = plot_marginals(fit, samples, most=2, bins=30)
    shown = {text for ax in panels for text in texts(ax) if text.startswith("$x")}
    assert shown == {f"$x_{{{d + 1}}}$" for d in np.argsort(distances)[-2:]}
    assert "Fit and target: the 2 of 6 marginals that differ most" in texts(panels[0].figure)


def test_the_fit_alone(mixture):
    panels = plot_marginals(mixture, most=3)
    assert [ax.texts[0].get_text() for ax in panels] == ["$x_{1}$", "$x_{3}$", "$x_{6}$"]
    assert not any(ax.patches for ax in panels)
    assert "Fit: 3 of 6 marginals" in texts(panels[0].figure)
    _, given = plt.subplots(1, 2)
    names = [f"angle {d}" for d in range(6)]
    assert plot_marginals(mixture, dims=[4, 0], labels=names, axes=list(given)) == list(given)
    assert [ax.texts[0].get_text() for ax in given] == ["angle 4", "angle 0"]


def test_marginals_refuse_bad_input(mixture, samples):
    for arguments, message in (
        ({"dims": [6]}, "from 0 to 5"),
        ({"dims": []}, "from 0 to 5"),
        ({"most": 0}, "at least one dimension"),
        ({"bins": 0}, "at least one bin"),
        ({"axes": []}, "6 dimensions to show, but 0 axes"),
        ({"samples": samples[:, :3]}, r"\[N, 6\]"),
        ({"samples": samples[:0]}, r"\[N, 6\]"),
        ({"samples": np.full((3, 6), np.nan)}, "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            plot_marginals(mixture, **arguments)


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
    drawn = np.array(lines.get_segments())
    assert drawn.shape == (25, 11, 2)
    x, rows = arm.sample_with_components(3, 25)
    np.testing.assert_allclose(drawn[:, 0], 0)
    np.testing.assert_allclose(drawn[:, -1], hand(x), atol=1e-6)
    np.testing.assert_allclose(drawn[:, -1], end_position(x), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(np.diff(drawn, axis=1), axis=-1), 1, atol=1e-6)
    # A colour per component, the heavier the more opaque.
    alpha = lines.get_colors()[:, 3]
    weights = np.asarray(arm.weights)[np.asarray(rows)]
    assert len(np.unique(lines.get_colors(), axis=0)) == len(np.unique(rows))
    assert (np.diff(alpha[np.argsort(weights)]) >= 0).all()
    assert alpha.max() > alpha.min()


def test_the_heaviest_of_a_family_is_drawn_thick_and_goals_are_marked(arm):
    ax = plot_planar_robot(arm, GOALS[4], samples=5)
    poses = [line for line in ax.lines if to_rgb(line.get_color()) != (1, 1, 1)]
    ends = np.array([np.column_stack(line.get_data())[-1] for line in poses])
    expected = hand(np.asarray(arm.means)[[1, 2, 3]])  # lightest first, the heaviest on top
    np.testing.assert_allclose(ends, expected, atol=1e-6)
    np.testing.assert_allclose(hand(arm.means)[:3], [[7, 0], [7, 0], [0, 7]], atol=1e-5)
    rings = [c for c in ax.collections if len(c.get_offsets()) == 4 and len(c.get_edgecolors())]
    assert any(np.allclose(c.get_edgecolors()[0], to_rgba(KNOWN)) for c in rings)
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
    with pytest.raises(ValueError, match="at least one component"):
        plot_talos(mixture, talos, components=0)
    with pytest.raises(ValueError, match="3 components to show, but 1 axes"):
        plot_talos(mixture, talos, axes=panels[:1])


# Weights over time ------------------------------------------------------------------------------


def history(components=300, looks=40, seed=0):
    """Components come one after the other and some go; one is there from the start and stays heavy."""
    rng = np.random.default_rng(seed)
    born = np.sort(rng.integers(0, looks, components))
    born[0] = 0
    dies = np.where(rng.random(components) < 0.3, born + rng.integers(1, looks + 1, components), looks)
    dies[0] = looks
    size = rng.gamma(1.0, 1.0, components)
    size[0] = 0.5 * size.sum()
    rows = []
    for t in range(looks):
        (ids,) = np.nonzero((born <= t) & (dies > t))
        rows.append((10 * t + 1, ids, size[ids] / size[ids].sum()))
    return WeightHistory.from_rows(rows)


@pytest.mark.parametrize("components", [1, 5, 300])
def test_ribbons_hold_all_the_weight(components):
    ribbons = group_weights(history(components), own=9, min_share=0.015, cohorts=5)
    np.testing.assert_allclose(ribbons.weights.sum(1), 1, atol=1e-6)
    assert ribbons.weights.shape == (40, len(ribbons.labels))
    assert len(ribbons.labels) == components if components <= 9 else len(ribbons.labels) <= 14


def test_a_ribbon_is_the_weight_of_its_component():
    past = history()
    ribbons = group_weights(past, own=3, min_share=0.0, cohorts=4)
    assert ribbons.own == 3
    assert ribbons.labels[0].endswith("component 0")
    for t in (0, 17, 39):
        ids, weights = past.at(t)
        assert ribbons.weights[t, 0] == pytest.approx(float(weights[ids == 0][0]))


def test_cohorts_are_in_order_of_birth_and_complete():
    past = history()
    ribbons = group_weights(past, own=0, min_share=0.0, cohorts=5)
    assert ribbons.own == 0
    counts = [int(label.split()[1]) for label in ribbons.labels]
    assert sum(counts) == len(np.unique(past.ids))
    first = [np.flatnonzero(ribbons.weights[:, k])[0] for k in range(len(counts))]
    assert first == sorted(first)


def test_the_stack_reaches_from_zero_to_one(tmp_path):
    ax = plot_component_weights(history())
    assert (ax.get_ylim(), ax.get_xlim()) == ((0, 1), (1, 391))
    bottom, top = (c.get_paths()[0].vertices[:, 1] for c in (ax.collections[0], ax.collections[-1]))
    assert bottom.min() == 0
    assert top.max() == pytest.approx(1, abs=1e-6)
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert len(labels) == len(ax.collections) <= 14
    assert labels[-1].endswith("component 0")  # the legend in the order of the stack
    ax.figure.savefig(tmp_path / "weights.png")


def test_weights_of_one_look_and_of_none():
    _, ax = plt.subplots()
    assert plot_component_weights(history(looks=1), ax=ax) is ax
    assert ax.collections[0].get_paths()[0].get_extents().width > 0
    with pytest.raises(ValueError, match="empty"):
        plot_component_weights(WeightHistory.from_rows([]))
    with pytest.raises(ValueError, match="cohorts at least 1"):
        plot_component_weights(history(), cohorts=0)


# Births and deaths ------------------------------------------------------------------------------


def events(n=130, burst=0):
    rng = np.random.default_rng(1)
    added, deleted = rng.random(n) < 0.3, (rng.random(n) < 0.05).astype(int)
    deleted[n // 2] += burst
    return {"added": added, "deleted": deleted, "components": 200 + np.cumsum(added) - np.cumsum(deleted)}


@pytest.mark.parametrize("burst", [0, 100])
def test_bars_count_births_and_deaths(burst, tmp_path):
    trace = events(burst=burst)
    above, below = plot_component_events(trace, bars=30)
    np.testing.assert_array_equal(above.lines[0].get_ydata(), trace["components"])
    births, deaths = (np.array([bar.get_height() for bar in group]) for group in below.containers)
    assert len(births) == 26  # of five iterations each
    assert below.get_ylabel() == "per 5 iterations"
    assert births.sum() == trace["added"].sum()
    assert births[3] == trace["added"][15:20].sum()
    assert -deaths.sum() == trace["deleted"].sum()
    low, high = below.get_ylim()
    assert low < deaths.min()
    assert high > births.max()
    assert below.get_yscale() == ("symlog" if burst else "linear")
    assert to_rgba(COMPONENT) == below.containers[0][0].get_facecolor()
    above.figure.savefig(tmp_path / "events.png")


def test_events_on_given_axes_and_bad_input():
    _, axes = plt.subplots(2)
    assert plot_component_events(events(), axes=tuple(axes)) == tuple(axes)
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_component_events({})
    with pytest.raises(ValueError, match="bars=0"):
        plot_component_events(events(), bars=0)


@pytest.mark.parametrize(("value", "rounded"), [(0.2, 1), (1, 1), (1.1, 2), (3, 5), (5.01, 10), (333, 500)])
def test_round_widths(value, rounded):
    assert _round_up(value) == rounded


# natmix plot ------------------------------------------------------------------------------------


def write_run(path, problem, mixture, seeds=(0, 1), finished=True, dtype="float64"):
    """A run directory as `natmix run` leaves it, with the parts that figures need."""
    config = {
        "format": 1,
        "problem": {"name": problem, "options": {}},
        "algorithm": {"codename": "SAMTRON", "settings": {}},
        "dtype": dtype,
        **dict.fromkeys(("start", "preset", "covariance", "limits")),
        "seeds": list(seeds),
    }
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    for seed in seeds:
        folder = path / f"seed-{seed}"
        folder.mkdir()
        looks = [
            {"seconds": t, "evaluations": 100 * t, "iterations": t, "neg_elbo": 5.0 / t + seed}
            for t in range(1, 9)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(look) + "\n" for look in looks))
        np.savez(folder / "trace.npz", **events())
        np.savez(folder / "weights.npz", **history(20).arrays())
        if finished:
            mixture.save(folder / "mixture.safetensors")
            final = dict.fromkeys((*LOOK_NUMBERS, "stopped", "limits", "device"), 1) | {
                "neg_elbo": 5.0 / 8 + seed
            }
            (folder / "final.json").write_text(json.dumps(final))
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
    assert sorted(Path(line) for line in result.output.splitlines()) == written
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
    assert "holds no seeds" in invoke(empty).output


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
