"""``natmix run`` on a small problem."""

from typer.testing import CliRunner

from natmix.cli import app

SMALL = (
    "--set",
    "sample_selector.desired_samples=20",
    "--set",
    "component_adaptation.database_size=500",
    "--set",
    "component_adaptation.prior_candidates=10",
)


def natmix(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def run(out, *arguments):
    return natmix("run", "gmm2", "--max-iters", 20, "--out", out, *SMALL, *arguments)


def assert_one_sentence(outcome, words, code=2):
    assert outcome.exit_code == code, outcome.output
    assert words in outcome.stderr
    assert outcome.stderr.startswith("natmix: ")
    assert len(outcome.stderr.splitlines()) == 1
    assert "Traceback" not in outcome.output
