"""How often a start of the planar robot's runs misses a path to the goal behind it.

Run: python benchmarks/paper/planar_start.py [--components 100] [--starts 4000]

A component goes to the goal nearest to its hand and keeps the side to which it bends. The goal at (-7, 0) is
reached by turning left and bending on to the left, or the same to the right; turning left and bending back to
the right reaches it too, with next to no probability. So a run finds one of these two paths only if some mean
of its start points there and bends that way: what a mixture does later draws nothing near.
"""

import argparse

import numpy as np

from natmix.experiments.problems.planar_robot import PRIOR_STD


def on_the_way(x: np.ndarray, side: int) -> np.ndarray:
    """Whether the hand points backwards by turning to this side (1: left), with the arm bent to it."""
    links = np.exp(1j * (np.cumsum(x, axis=1) - x[:, :1]))
    hand, centre = links.sum(axis=1), np.cumsum(links, axis=1).mean(axis=1)
    turned = x[:, 0] + np.angle(hand)
    # An arm that bends to the left has its joints to the right of the line from base to hand.
    bent = -np.sign(np.imag(centre * np.conj(hand)))
    return (np.rint(turned * 2 / np.pi) == 2 * side) & (bent == side)


def main(components: int, starts: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(starts * components, len(PRIOR_STD))) * PRIOR_STD
    number = np.stack([on_the_way(x, side).reshape(starts, components).sum(axis=1) for side in (1, -1)])
    none = number == 0
    print(f"{starts} starts of {components} means: {number.mean():.2f} on each of the two paths on average")
    print(f"none on a given one: {none.mean():.0%}; on at least one: {none.any(axis=0).mean():.0%}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--components", type=int, default=100)
    parser.add_argument("--starts", type=int, default=4000)
    options = parser.parse_args()
    main(options.components, options.starts)
