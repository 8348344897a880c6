"""The report in headless Chromium: the script runs, and the console stays empty."""

import html
import re
import shutil
import subprocess

import pytest
from html_page import Page

from natmix.report import report_html
from tests.report.test_report import HOSTILE, LONG, hostile, plain  # noqa: F401

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *(
        "--disable-component-update",
        "--disable-sync",
        "--enable-logging=stderr",
        "--virtual-time-budget=4000",
    ),
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")]


def shown(result, folder, *flags):
    """The page after its script has run, and what the console says."""
    path = folder / "fit.html"
    path.write_text(report_html(result), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize(
    "flags", [("--window-size=1280,900",), ("--window-size=390,844", "--force-dark-mode")]
)
def test_figures_are_drawn_without_errors(hostile, tmp_path, flags):  # noqa: F811
    text, console = shown(hostile, tmp_path, *flags)
    assert console == []
    panels = re.findall(r'<button[^>]*class="panel"[^>]*aria-label="([^"]*)"', text)
    variables = round(len(panels) ** 0.5)
    assert variables in (3, 4)
    assert len(panels) == variables**2
    assert html.escape(HOSTILE) in text
    assert "<script>alert" not in text
    assert LONG in text
    assert len(re.findall(r'<input type="checkbox"[^>]*><bdi', text)) == 7


def test_the_script_says_what_the_console_hears(plain, tmp_path):  # noqa: F811
    """A page whose script is not the one of its policy is refused by the browser, and the console says so."""
    path = tmp_path / "changed.html"
    changed = report_html(plain).replace('"use strict";', '"use strict"; ')
    path.write_text(changed, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Content Security Policy" in done.stderr
    assert 'class="panel"' not in done.stdout
    assert Page(changed).data
