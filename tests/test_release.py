"""What a release consists of: versions, pinned tools, licences, the audit, the platform of a wheel."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import build_native
import readme_links
from requirements import audit
from tests import release_check

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = [c.rsplit(" ", 1)[1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)( ;.*?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.M)


def pinned(python):
    """The pins of a file for this Python, by name."""
    text = (ROOT / "requirements" / f"dev-{python}.txt").read_text()
    found = PIN.findall(text)
    environment = {"python_version": python, "python_full_version": f"{python}.99", "sys_platform": "linux"}
    assert text.count("==") - sum(marker.count("==") for _, _, marker, _ in found) == len(found)
    return {
        name: Version(version)
        for name, version, marker, _ in found
        if not marker or Requirement(f"x{marker}").marker.evaluate(environment)
    }


def required(*extras):
    """Requirements of natmix and of these extras, with the extras that these name."""
    texts = [*PROJECT["dependencies"]]
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    for text in texts:
        requirement = Requirement(text)
        if requirement.name == "natmix":
            yield from required(*requirement.extras)
        else:
            yield requirement


# Versions -----------------------------------------------------------------------------------------


def test_the_changelog_and_the_citation_have_the_version():
    release_check.check_version()


def test_a_version_that_differs_is_not_released(monkeypatch):
    monkeypatch.setattr(release_check, "version", lambda: "99.1")
    with pytest.raises(release_check.ReleaseError, match=r"The version is 99.1, but CHANGELOG.md says"):
        release_check.check_version()


def test_the_extras_and_the_example_of_a_release_are_those_of_readme():
    extras, example = release_check.readme()
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert "natmix.fit(" in example
    assert 'savefig("orbit.png")' in example


def test_a_trial_sees_nothing_of_the_clone(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("NATMIX_NATIVE", "0")
    clean = release_check.clean_environment(tmp_path)
    assert not {"PYTHONPATH", "NATMIX_NATIVE", "VIRTUAL_ENV"} & set(clean)
    assert clean["NATMIX_CACHE"].startswith(str(tmp_path))


def test_links_of_readme_lead_to_the_tagged_version_on_a_package_index():
    text = "![P](docs/a.png), [b](docs/b.md#part), [c](https://x.org/c), [d](#d)"
    assert readme_links.description(text, "https://git.org/n/m/", "1.2") == (
        "![P](https://git.org/n/m/raw/v1.2/docs/a.png), [b](https://git.org/n/m/blob/v1.2/docs/b.md#part), "
        "[c](https://x.org/c), [d](#d)"
    )
    assert readme_links.description(text, None, "1.2") == ", b, [c](https://x.org/c), [d](#d)"


def test_readme_has_no_other_form_of_link():
    """One within another, by reference, or in HTML, which would stay as it is."""
    plain = readme_links.description((ROOT / "README.md").read_text(), None, "1")
    assert "](docs" not in plain
    assert not re.search(r"^\[[^\]]+\]: |<(a|img) ", plain, flags=re.M)


# Pinned development tools -------------------------------------------------------------------------


@pytest.mark.parametrize("python", PYTHONS)
def test_every_tool_is_pinned_within_its_range_and_with_hashes(python):
    pins = pinned(python)
    for requirement in required("dev", "docs"):
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name)
def test_pins_name_no_index_and_no_file(path):
    assert not re.search(r"https?:|file:|--index|--extra|--find|/", path.read_text())


def test_there_is_a_file_for_every_python():
    names = {path.name for path in (ROOT / "requirements").glob("dev-*.txt")}
    assert names == {f"dev-{python}.txt" for python in PYTHONS}


def test_licences_of_all_direct_dependencies_are_listed():
    page = (ROOT / "docs" / "licences.md").read_text()
    for requirement in required():
        assert re.search(rf"^\| {canonicalize_name(requirement.name)} \| .*\w", page, re.M), requirement


# Audit --------------------------------------------------------------------------------------------

KNOWN = {"name": "a", "version": "1", "vulns": []}
UNKNOWN = {"name": "b", "skip_reason": "Dependency not found on PyPI and could not be audited: b (2)"}
VULNERABLE = {"name": "c", "version": "3", "vulns": [{"id": "CVE-1", "fix_versions": ["3.1"]}]}


@pytest.mark.parametrize(
    ("packages", "problem"),
    [
        ([KNOWN], None),
        ([KNOWN, UNKNOWN], "1 of 2 packages could not be looked up, so nothing is known about them"),
        ([KNOWN, VULNERABLE], "c 3: CVE-1, fixed in 3.1"),
        ([], "nothing was looked up"),
    ],
)
def test_an_audit_passes_only_if_everything_was_looked_up(monkeypatch, packages, problem):
    report = json.dumps({"dependencies": packages, "fixes": []})
    done = subprocess.CompletedProcess([], 0, report, "No known vulnerabilities found")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: done)
    found = audit.audited(Path("dev-3.11.txt"), "pypi")
    assert len(found) == (problem is not None)
    assert problem is None or found[0].startswith(problem)


def test_an_audit_without_an_answer_fails_in_one_sentence(monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "ERROR:pip_audit._cli:Couldn't connect")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: done)
    (found,) = audit.audited(Path("dev-3.11.txt"), "osv")
    assert found == "pip-audit could not look anything up: ERROR:pip_audit._cli:Couldn't connect"


# The platform of a wheel --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "tag", "flags"),
    [
        ("linux-x86_64", "linux_x86_64", ()),
        ("linux-aarch64", "linux_aarch64", ()),
        ("macosx-10.13-universal2", "macosx_11_0_arm64", ("-arch", "arm64", "-mmacosx-version-min=11.0")),
        ("macosx-14.2-arm64", "macosx_14_2_arm64", ("-arch", "arm64", "-mmacosx-version-min=14.2")),
        ("macosx-11.0-x86_64", "macosx_11_0_x86_64", ("-arch", "x86_64", "-mmacosx-version-min=11.0")),
    ],
)
def test_a_wheel_is_tagged_for_what_its_libraries_run_on(monkeypatch, python, tag, flags):
    monkeypatch.setattr("sysconfig.get_platform", lambda: python)
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setattr(build_native, "machine_compiler", lambda: ("cc",))
    assert build_native.wheel_platform() == tag
    assert build_native.platform_flags() == flags
