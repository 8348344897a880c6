"""The training rows of the wine target that comes with gmmvi, which takes no others: so natmix gets its.

Run by the benchmark, in the reference's environment: python -m side_by_side.split SEED DIRECTORY
"""

import sys
from pathlib import Path

import numpy as np

FILE = "training_rows.npz"
EPOCHS = 40


def main(seed: int, directory: Path) -> None:
    from side_by_side.targets_tf import shipped_wine

    target = shipped_wine(seed)
    batches = target.ds_train.take(-(-EPOCHS * target.train_size // target.batch_size))
    drawn = np.concatenate([np.column_stack([f, q]) for f, q in batches.as_numpy_iterator()])
    rows = multiset(drawn, target.train_size)
    directory.mkdir(parents=True, exist_ok=True)
    np.savez(directory / FILE, features=rows[:, :-1], quality=rows[:, -1])


def multiset(drawn: np.ndarray, size: int) -> np.ndarray:
    """The ``size`` rows of which a shuffled, endless stream is made, in random order.

    Its epochs overlap, and some rows are there several times: how often is told from how often they came.
    """
    rows, times = np.unique(drawn, axis=0, return_counts=True)
    share = times * size / len(drawn)
    copies = np.rint(share).astype(int)
    if copies.sum() != size or np.abs(share - copies).max() > 0.25:
        raise SystemExit(f"The training rows cannot be told: {copies.sum()} rather than {size}.")
    return np.random.default_rng(0).permutation(np.repeat(rows, copies, axis=0))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
