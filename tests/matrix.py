"""The tests on every Python that is installed, each with the oldest and the newest jax that natmix accepts.

Run: make test-matrix [MATRIX='--python 3.12 --jax newest'] [MATRIX='-- tests/mixture']

A third combination, ``lowest``, has the oldest version that pyproject.toml names of every package that natmix
always needs, and none of the extras. There some of the tests run, `SMOKE`, unless others are named.

Each combination has an environment of its own (.venv-3.12-newest). The installation there is not editable,
so that the tests import what a user installs. At the end a table says what passed, what failed and what was
not found.
"""

import argparse
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
JAX: dict[str, list[str]] = {"oldest": ["jax==0.10.0", "jaxlib==0.10.0"], "newest": []}
"""Requirements beside those of natmix."""

LOWEST = "lowest"
TOOLS = ("beartype>=0.20", "hypothesis>=6.100", "pytest>=8", "pytest-xdist>=3.6")
SMOKE = (
    "tests/cli/test_commands.py",
    "tests/gaussians/test_gaussians.py",
    "tests/mixture/test_files.py",
    "tests/mixture/test_mixture.py",
    "tests/test_gmmvi.py",
    "tests/test_reference_vectors.py",
)
"""What is tried with the lowest versions: the algorithm, files, the command line."""


def interpreter(version: str) -> str | None:
    """A Python of this version that starts, from the path or pyenv."""
    candidates = [shutil.which(f"python{version}"), sys.executable]
    candidates += [str(p) for p in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))]
    for candidate in candidates:
        if candidate and _output(candidate, "import sys; print('%d.%d' % sys.version_info[:2])") == version:
            return candidate
    return None


def _output(python: str, code: str) -> str:
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def installed(python: str, version: str, jax: str) -> Path:
    """The interpreter of the combination's environment, made if it is not there."""
    folder = ROOT / f".venv-{version}-{jax}"
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    install = [str(inside), "-m", "pip", "install", "--quiet"]
    if jax == LOWEST:
        subprocess.run([*install, "-r", str(lowest(inside, version, folder)), *TOOLS], check=True)
    else:
        subprocess.run([*install, f"{ROOT}[dev]", *JAX[jax]], check=True)
    subprocess.run([*install, "--force-reinstall", "--no-deps", str(ROOT)], check=True)
    return inside


def lowest(python: Path, version: str, folder: Path) -> Path:
    """A list of the lowest versions of what natmix always needs, as uv finds them."""
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "uv"], check=True)
    listed = folder / "lowest.txt"
    command = [str(python), "-m", "uv", "pip", "compile", "--quiet", "--no-header", f"{ROOT}/pyproject.toml"]
    command += ["--resolution", "lowest-direct", "--python-version", version, "--output-file", str(listed)]
    subprocess.run(command, check=True)
    return listed


def main() -> None:
    """Run the combinations asked for; the exit status is 1 if one of them failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", nargs="+", choices=PYTHONS, default=PYTHONS)
    parser.add_argument("--jax", nargs="+", choices=(*JAX, LOWEST), default=(*JAX, LOWEST))
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    asked = parser.parse_args()
    lines, failed = [], False
    for version in asked.python:
        python = interpreter(version)
        for jax in asked.jax:
            if python is None:
                lines.append(f"Python {version}: not found")
                break
            inside = installed(python, version, jax)
            found = _output(str(inside), "import jax; print(jax.__version__)")
            before = time.perf_counter()
            chosen = asked.pytest or (SMOKE if jax == LOWEST else ())
            command = [str(inside), "-m", "pytest", "-n", "2", "--dist", "loadfile", *chosen]
            status = subprocess.run(command, cwd=ROOT, check=False).returncode
            minutes = (time.perf_counter() - before) / 60
            failed |= status != 0
            outcome = "passed" if status == 0 else f"failed (pytest's exit status {status})"
            lines.append(f"Python {version}, {jax}, jax {found}: {outcome} in {minutes:.1f} minutes")
    print("\n".join(lines))
    sys.exit(failed)


if __name__ == "__main__":
    main()
