"""One row of the table of numbers."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

from posteriordb.measures import Errors


@dataclasses.dataclass(frozen=True)
class Row:
    """One method on one posterior with one seed.

    Attributes:
        posterior: its name.
        method: "natmix" or "NUTS".
        seed: of the run.
        limit: of natmix's evaluations; 0 for none.
        dim: unconstrained dimensions; 0 for NUTS, which does not tell.
        evaluations: of the log density with or without its gradient, all of a fit; gradients of NUTS,
            with warm-up.
        cpu_seconds: of all threads or processes.
        wall_seconds: of the fit with its verdict; of NUTS, two chains at a time.
        mean: `Errors.mean`.
        sd_ratio: `Errors.sd_ratio`.
        quantile: `Errors.quantile`.
        verdict: natmix's; what failed, if anything did.
        commit: of natmix.
        date: of the run.
        initialise: natmix's evaluations before the first iteration.
        train: in the iterations.
        elbo: for the final ELBO.
        verify: in the searches of the verdict.
        refuted: at samples that did not confirm the accuracy.
    """

    posterior: str
    method: str
    seed: int
    limit: int
    dim: int
    evaluations: int
    cpu_seconds: float
    wall_seconds: float
    mean: float
    sd_ratio: float
    quantile: float
    verdict: str
    commit: str
    date: str
    initialise: int = 0
    train: int = 0
    elbo: int = 0
    verify: int = 0
    refuted: int = 0

    @classmethod
    def read(cls, line: dict[str, str]) -> "Row":
        """From text."""
        kinds: dict[str, Any] = {f.name: f.type for f in dataclasses.fields(cls)}
        return cls(**{name: kinds[name](line[name]) for name in FIELDS})

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What no two rows have in common."""
        return self.posterior, self.method, self.seed, self.limit

    @property
    def errors(self) -> Errors:
        """Of its draws."""
        return Errors(self.mean, self.sd_ratio, self.quantile)

    @property
    def failed(self) -> bool:
        """Whether the run did not come to an end."""
        return self.verdict.startswith("failed")

    def line(self) -> str:
        """For the terminal."""
        return (
            f"{self.posterior:42.42} {self.method:6} seed {self.seed} {self.evaluations:11,} evaluations "
            f"{self.cpu_seconds:7.1f} s CPU {self.wall_seconds:7.1f} s  m {self.mean:.3f}  "
            f"sd {self.sd_ratio:.3f}  q {self.quantile:.3f}  {self.verdict}"
        )


FIELDS = [f.name for f in dataclasses.fields(Row)]
PURPOSES = ("initialise", "train", "elbo", "verify", "refuted")


def read(path: Path) -> list[Row]:
    """The rows of a file, none if there is no file; of two with the same key the later one."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [Row.read(line) for line in csv.DictReader(file)]
    return list({row.key: row for row in rows}.values())


def append(path: Path, row: Row) -> None:
    """Add a row to a file."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS)
        if new:
            writer.writeheader()
        values = dataclasses.asdict(row)
        writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in values.items()})
