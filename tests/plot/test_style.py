"""The colours of figures."""

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("agg")

from matplotlib.colors import to_rgb

from natmix.plot.style import PALETTE, shades

# Style ------------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
DEFICIENCIES = {
    "none": "1 0 0; 0 1 0; 0 0 1",
    "protanopia": "0.152286 1.052583 -0.204868; 0.114503 0.786281 0.099216; -0.003882 -0.048116 1.051998",
    "deuteranopia": "0.367322 0.860646 -0.227968; 0.280085 0.672501 0.047413; -0.01182 0.04294 0.968881",
    "tritanopia": "1.255528 -0.076749 -0.178779; -0.078411 0.930809 0.147602; 0.004733 0.691367 0.3039",
}
TO_XYZ = "0.412456 0.357576 0.180438; 0.212673 0.715152 0.072175; 0.019334 0.119192 0.950304"


def matrix(text):
    return np.array([row.split() for row in text.split(";")], dtype=float)


def lab(linear):
    f = np.cbrt(linear @ matrix(TO_XYZ).T / [0.95047, 1.0, 1.08883])
    return np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)


@pytest.mark.parametrize("eyes", DEFICIENCIES)
def test_the_colours_of_components_differ_to_all_eyes(eyes):
    rgb = np.array([to_rgb(colour) for colour in PALETTE])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = lab(np.clip(linear @ matrix(DEFICIENCIES[eyes]).T, 0, 1))
    distance = np.linalg.norm(seen[:, None] - seen, axis=-1)
    assert distance[~np.eye(len(PALETTE), dtype=bool)].min() > 15
    assert np.diagonal(distance, 1).min() > 35


def test_shades_are_colours_and_differ():
    colours = shades(np.tile(to_rgb(PALETTE[0]), (20, 1)))
    assert ((colours >= 0) & (colours <= 1)).all()
    assert len(np.unique(colours.round(6), axis=0)) == 20
