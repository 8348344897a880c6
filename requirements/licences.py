"""Lists the licences of what natmix depends on, as the installed packages state them.

Run: make licences, which writes docs/licences.md. Packages of other people come with pip and are no part of
natmix's wheels.
"""

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
EXTRAS = ("plot", "sklearn", "numpyro", "pymc", "arviz", "problems", "talos")
"""Those that the development environment has."""

HEAD = """# Licences

natmix has the [MIT licence](../LICENSE). Its wheels hold natmix's code alone. pip installs what it needs,
under the licences that each package states. `make licences` writes this page from metadata of the installed
packages. Beside natmix's code the repository holds a font ([its licence](site/math-font-licence.txt)) and a
script (`docs/site/iframe-worker.js`, MIT) for the documentation site.
"""

SHORT = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Python Software Foundation License": "PSF-2.0",
}


def licence(name: str) -> str:
    """As the package states it: the SPDX expression, or a short text, or the classifiers."""
    about = metadata.metadata(name)
    stated = str(about.json.get("license_expression") or about.json.get("license") or "")
    classifiers = [c.split(" :: ")[-1] for c in about.get_all("Classifier") or [] if c.startswith("License")]
    if stated and len(stated) < 60 and "\n" not in stated:
        return SHORT.get(stated, stated)
    return ", ".join(SHORT.get(c, c) for c in classifiers) or "not stated"


def needed(name: str, extras: tuple[str, ...] = ()) -> Iterator[Requirement]:
    """What a package requires here, with these extras."""
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def closure(name: str, extras: tuple[str, ...] = ()) -> set[str]:
    """All packages that this one needs, directly or not."""
    found: set[str] = set()
    waiting = list(needed(name, extras))
    while waiting:
        requirement = waiting.pop()
        package = canonicalize_name(requirement.name)
        if package in found or package == "natmix":
            continue
        found.add(package)
        waiting += needed(package, tuple(requirement.extras))
    return found


def table(rows: Sequence[tuple[str, ...]], head: tuple[str, ...]) -> str:
    """Markdown."""
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page() -> str:
    """The text of the page."""
    core = closure("natmix")
    by_extra: dict[str, list[str]] = {}
    for extra in EXTRAS:
        for package in closure("natmix", (extra,)) - core:
            by_extra.setdefault(package, []).append(f"`{extra}`")
    always = table([(name, licence(name)) for name in sorted(core)], ("package", "licence"))
    further = [(name, licence(name), ", ".join(by_extra[name])) for name in sorted(by_extra)]
    return (
        f"{HEAD}\n## Always installed\n\n{always}\n## With extras\n\n"
        f"{table(further, ('package', 'licence', 'extra'))}"
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
