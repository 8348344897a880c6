"""Looks for known vulnerabilities of every package listed in requirements/dev-*.txt, with pip-audit.

Run: make audit [AUDIT='--service osv']

pip-audit passes over a package that its service does not know, or could not be asked about, and then reports
success. Here that is a failure: the exit status is 0 only if every package was looked up and none is known to
be vulnerable.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Audit:
    """What pip-audit said of one file: packages looked up, and one line for each of the others."""

    checked: int
    vulnerable: tuple[str, ...]
    skipped: tuple[str, ...]

    @classmethod
    def of(cls, report: dict[str, Any]) -> "Audit":
        """Of its report in JSON."""
        checked, vulnerable, skipped = 0, [], []
        for package in report["dependencies"]:
            if "skip_reason" in package:
                skipped.append(package["skip_reason"])
                continue
            checked += 1
            for found in package["vulns"]:
                fixed = ", ".join(found["fix_versions"]) or "no version"
                vulnerable.append(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
        return cls(checked, tuple(vulnerable), tuple(skipped))

    def problems(self) -> list[str]:
        """Why this is not a pass; empty if it is one."""
        found = list(self.vulnerable)
        if self.skipped:
            found.append(
                f"{len(self.skipped)} of {len(self.skipped) + self.checked} packages could not be looked up, "
                f"so nothing is known about them. The first: {self.skipped[0]}"
            )
        elif not self.checked:
            found.append("nothing was looked up")
        return found


def audited(listed: Path, service: str) -> list[str]:
    """Problems of one file of requirements."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--require-hashes"]
    command += ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
    command += ["--vulnerability-service", service]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return [f"pip-audit could not look anything up: {last}"]
    audit = Audit.of(report)
    if not audit.problems():
        print(f"{listed.name}: {audit.checked} packages looked up, no known vulnerability")
    return audit.problems()


def main() -> None:
    """Audit all files; the exit status is 1 unless every package was looked up and none is vulnerable."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--service", default="pypi", choices=("pypi", "osv"), help="where to look up")
    asked = parser.parse_args()
    failed = False
    for listed in sorted(FOLDER.glob("dev-*.txt")):
        for problem in audited(listed, asked.service):
            failed = True
            print(f"{listed.name}: {problem}", file=sys.stderr)
    sys.exit("The audit failed." if failed else 0)


if __name__ == "__main__":
    main()
