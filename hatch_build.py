"""What natmix's build adds to Hatchling's: native kernels (build_native.py), links (readme_links.py).

Where that does not work natmix is installed without them, which pip shows with ``-v``, ``natmix --version``
always. ``NATMIX_NATIVE=0`` leaves them out, and makes a wheel for all platforms. A library that an earlier
installation left in the source tree stays: natmix refuses it by itself if it does not belong to the sources.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).parent))
import build_native
import readme_links

JAXLIB = "jaxlib==0.10.*"
"""For its header of XLA's interface. The oldest that natmix runs with: XLA takes kernels that were built for
its own version of the interface or an older one, so a wheel built with this serves all. It is asked for
here, not in pyproject.toml, since a source distribution, or a system without native kernels, needs none."""


class NativeKernels(BuildHookInterface):
    """Adds the compiled libraries to wheels, and to the source tree of an editable installation."""

    folder: Path | None = None

    def dependencies(self) -> list[str]:
        if not _possible(self.target_name):
            return []
        return [JAXLIB] if build_native.machine_compiler() else [JAXLIB, "ziglang"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not _possible(self.target_name):
            return
        editable = version == "editable"
        root = build_native.PACKAGE if editable else Path(tempfile.mkdtemp(prefix="natmix-"))
        self.folder = None if editable else root
        try:
            for library in build_native.LIBRARIES:
                build_native.build(library, root / library.path)
        except build_native.CannotBuildError as error:
            self.app.display_warning(f"natmix is installed without its native kernels: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{build_native.wheel_platform()}"
        if not editable:
            for library in build_native.LIBRARIES:
                build_data["force_include"][str(root / library.path)] = f"natmix/{library.path}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class Description(MetadataHookInterface):
    """The description that a package index shows: README, with links that work there.

    They lead to the address `Repository` of `[project.urls]`; without one only their words are left.
    """

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        shown = readme_links.description(text, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}


def _possible(target: str) -> bool:
    return target == "wheel" and os.name == "posix" and not build_native.OFF
