"""The version, read by the build and by ``natmix --version``."""

__version__ = "0.2.0"
