"""README as the description of a package: on a package index its relative links would lead nowhere."""

import re

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
"""An image or a link to a file of the repository."""


def description(readme: str, repository: str | None, version: str) -> str:
    """The text with links to this version in the repository.

    Args:
        readme: README.md, whose links are relative to the repository's root.
        repository: its address on GitHub or GitLab. Without it a link becomes its words, an image nothing.
        version: of the package; its tag is the version with a v before it.
    """
    if repository is None:
        return LINK.sub(lambda found: "" if found[1] else found[2], readme)
    root = repository.rstrip("/")

    def absolute(found: re.Match[str]) -> str:
        image, words, path = found.groups()
        return f"{image}[{words}]({root}/{'raw' if image else 'blob'}/v{version}/{path})"

    return LINK.sub(absolute, readme)
