"""Axes of several panels as functions return them: in a notebook the figure is enough, they show nothing."""

import numpy as np


class _FigureAlone:
    """A notebook shows the figure of the cell, not these axes."""

    def _ipython_display_(self) -> None:
        return None


class AxesArray(_FigureAlone, np.ndarray):
    """An array of axes."""

    @classmethod
    def of(cls, axes: np.ndarray) -> "AxesArray":
        """The same axes."""
        return axes.view(cls)


class AxesList(_FigureAlone, list):
    """A list of axes."""


class AxesTuple(_FigureAlone, tuple):
    """A tuple of axes."""
