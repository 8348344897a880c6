"""The command ``natmix``."""

from natmix.cli._app import app

__all__ = ["app"]
