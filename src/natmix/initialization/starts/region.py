"""Start "region": the initial region itself."""

from typing import ClassVar

from natmix.initialization.starts.base import AbstractStart, Initialization, Setting


class RegionStart(AbstractStart):
    """One Gaussian as wide as the initial region, or several with means drawn from it."""

    name: ClassVar[str] = "region"

    def initialise(self, setting: Setting) -> Initialization:
        return Initialization(*setting.from_region(setting.key))
