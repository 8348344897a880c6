"""The command ``natmix``."""

from natmix.cli.app import app

__all__ = ["app"]
