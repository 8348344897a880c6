"""Installs natmix from this clone, editable, with the development tools of requirements/dev-*.txt.

Run by make, with the interpreter of the environment. Every file that pip takes has the hash that is written
there. Where that is not possible (an index that offers other files, a platform without them) what
pyproject.toml allows is installed instead, which is said; with ``--locked``, as in CI, it is an error.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import build_native  # noqa: E402


def pip(*arguments: str | Path) -> bool:
    """Whether pip installs that."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def locked() -> bool:
    """Whether exactly the listed files could be installed."""
    listed = ROOT / "requirements" / f"dev-{sys.version_info.major}.{sys.version_info.minor}.txt"
    if not listed.exists() or not pip("--require-hashes", "--requirement", listed):
        return False
    # The tools of the build are among them, but for a C compiler.
    here = ["--no-build-isolation"] if build_native.machine_compiler() else []
    return pip("--no-deps", *here, "--editable", ".")


def main() -> None:
    """Install; the exit status is 1 if that failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--locked", action="store_true", help="nothing else than the listed files")
    asked = parser.parse_args()
    if locked():
        return
    if asked.locked:
        sys.exit(
            "The files listed in requirements/ could not be installed; `make requirements` updates them."
        )
    print(
        "The files listed in requirements/ could not be installed: the newest that pyproject.toml allows are "
        "installed instead.",
        file=sys.stderr,
        flush=True,
    )
    if not pip("--editable", ".[dev]"):
        sys.exit("natmix and its development tools could not be installed; pip says above why.")


if __name__ == "__main__":
    main()
