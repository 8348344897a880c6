"""Numbers from runs: all functions take runs as the workers wrote them and know nothing of files."""

import math
from typing import Any

import numpy as np

from side_by_side.load import Run, Seed

START = 10
"""Iterations after the first that count as the start."""
LATER_SHARE, LATER_FEWEST, LATER_MOST = 0.1, 3, 50
"""The later phase is the last tenth of the reference's iterations, within these numbers."""

Number = float | None


def iterations(run: Run) -> int:
    return int(run["marks"]["iterations"][-1])


def running(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Iterations at the marks, and the seconds until then without those spent compiling."""
    marks = run["marks"]
    return np.array(marks["iterations"]), np.array(marks["seconds"]) - np.array(marks["compile_seconds"])


def mean_ms(run: Run, first: int, last: int) -> Number:
    """Milliseconds per iteration from the end of iteration ``first`` to that of ``last``."""
    at, seconds = running(run)
    if not 1 <= first < last <= at[-1]:
        return None
    begin, end = np.interp([first, last], at, seconds)
    return 1e3 * float(end - begin) / (last - first)


def median_ms(run: Run, first: int, last: int) -> Number:
    """The same, as the median over the iterations between marks."""
    at, seconds = running(run)
    if not 1 <= first < last <= at[-1]:
        return None
    inside = (at >= first) & (at <= last)
    return 1e3 * float(np.median(np.diff(seconds[inside]) / np.diff(at[inside])))


def start_window(theirs: Run) -> tuple[int, int]:
    return 1, min(1 + START, iterations(theirs))


def later_window(theirs: Run) -> tuple[int, int]:
    last = iterations(theirs)
    length = min(max(round(LATER_SHARE * last), LATER_FEWEST), LATER_MOST)
    return max(1, last - length), last


def at_iteration(run: Run, name: str, iteration: int) -> Number:
    """A number of the first mark at or after an iteration."""
    at = run["marks"]["iterations"]
    index = int(np.searchsorted(at, iteration))
    return float(run["marks"][name][index]) if index < len(at) else None


def evaluations_per_second(run: Run) -> Number:
    """After the first mark, which pays for most of the compilation."""
    marks = run["marks"]
    if len(marks["seconds"]) < 2:
        return None
    done = marks["evaluations"][-1] - marks["evaluations"][0]
    return done / (marks["seconds"][-1] - marks["seconds"][0])


def reached(run: Run, goal: float, goal_se: float) -> dict[str, float]:
    """Seconds and evaluations at the first checkpoint not above the goal by more than one standard error."""
    for checkpoint in run["checkpoints"]:
        if checkpoint["neg_elbo"] <= goal + math.hypot(goal_se, checkpoint["neg_elbo_se"]):
            return {"seconds": checkpoint["seconds"], "evaluations": checkpoint["evaluations"]}
    return {"seconds": math.inf, "evaluations": math.inf}


def better(theirs: dict[str, Run]) -> str:
    """The target and setting of the allocator with which the reference did most iterations."""
    return max(theirs, key=lambda name: iterations(theirs[name]))


def ratio(theirs: Number, ours: Number) -> Number:
    """How many times smaller ours is; 0 if ours is infinite."""
    if theirs is None or ours is None or not ours > 0:
        return None
    return theirs / ours


def middle(values: list[Number]) -> Number:
    """The median; None if one is missing."""
    if not values or any(v is None for v in values):
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    if len(ordered) % 2 or ordered[half - 1] == ordered[half]:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) / 2


def compare(seed: Seed) -> dict[str, Any]:
    """All numbers of one seed; ours are medians over natmix's runs."""
    variant = better(seed.theirs)
    theirs = seed.theirs[variant]
    final = theirs["checkpoints"][-1]
    goal = max(final["neg_elbo"], seed.least), final["neg_elbo_se"]
    start, later = start_window(theirs), later_window(theirs)
    own_end = [later_window(run) for run in seed.ours]

    def ours(number: Any) -> Number:
        return middle([number(run) for run in seed.ours])

    pairs = {
        "import_s": (theirs["import_seconds"], ours(lambda r: r["import_seconds"])),
        "first_iteration_s": (theirs["marks"]["seconds"][0], ours(lambda r: r["marks"]["seconds"][0])),
        "start_ms": (median_ms(theirs, *start), ours(lambda r: mean_ms(r, *start))),
        "later_ms": (median_ms(theirs, *later), ours(lambda r: mean_ms(r, *later))),
        "seconds_to_goal": (final["seconds"], ours(lambda r: reached(r, *goal)["seconds"])),
        "evaluations_to_goal": (
            reached(theirs, *goal)["evaluations"],
            ours(lambda r: reached(r, *goal)["evaluations"]),
        ),
        "peak_mib": (theirs["peak_mib"], ours(lambda r: r["peak_mib"])),
    }
    found: dict[str, Any] = {
        "variant": variant,
        "variants": " and ".join(sorted(seed.theirs)),
        "budget_s": theirs["budget"],
        "budget_s_ours": seed.ours[0]["budget"],
    }
    for name, (reference, natmix) in pairs.items():
        found |= {
            f"{name}_theirs": reference,
            f"{name}_ours": natmix,
            f"{name}_ratio": ratio(reference, natmix),
        }
    rates = evaluations_per_second(theirs), ours(evaluations_per_second)
    first_there = reached(theirs, *goal)["seconds"]
    return found | {
        "evaluations_per_s_theirs": rates[0],
        "evaluations_per_s_ours": rates[1],
        "evaluations_per_s_ratio": ratio(rates[1], rates[0]),
        "first_at_goal_s_theirs": first_there,
        "first_at_goal_ratio": ratio(first_there, found["seconds_to_goal_ours"]),
        "later_iteration": later[1],
        "later_ms_mean_theirs": mean_ms(theirs, *later),
        "later_components_theirs": at_iteration(theirs, "components", later[1]),
        "later_components_ours": ours(lambda r: at_iteration(r, "components", later[1])),
        "later_evaluations_theirs": at_iteration(theirs, "evaluations", later[1]),
        "later_evaluations_ours": ours(lambda r: at_iteration(r, "evaluations", later[1])),
        "end_ms_ours": middle([mean_ms(r, *w) for r, w in zip(seed.ours, own_end, strict=True)]),
        "end_iteration_ours": ours(iterations),
        "end_components_ours": ours(lambda r: r["marks"]["components"][-1]),
        "compile_s_ours": ours(lambda r: r["marks"]["compile_seconds"][-1]),
        "neg_elbo_theirs": final["neg_elbo"],
        "neg_elbo_se_theirs": goal[1],
        "neg_elbo_ours": ours(lambda r: r["checkpoints"][-1]["neg_elbo"]),
        "neg_elbo_se_ours": ours(lambda r: r["checkpoints"][-1]["neg_elbo_se"]),
    }
