"""The version, read by the build and by ``natmix --version``."""

__version__ = "0.1.0"
