"""What is compared: an algorithm on a problem."""

from typing import NamedTuple

from natmix.text.suggestions import hint


class Row(NamedTuple):
    """An algorithm on a problem.

    Attributes:
        problem: as natmix names it.
        codename: of the algorithm.
        targets: the reference's log densities that count for this row: the one that comes with it
            ("shipped") and the one written for this benchmark ("own").
    """

    problem: str
    codename: str
    targets: tuple[str, ...] = ("shipped", "own")

    @property
    def name(self) -> str:
        """As in tables and after --only."""
        name = self.problem if self.codename == "SAMTRON" else f"{self.codename.lower()}-{self.problem}"
        return f"{name}-fast" if self.targets == ("own",) else name

    @property
    def split_by_reference(self) -> bool:
        """Whether the data are the reference's, as it takes no others."""
        return self.problem == "wine"


ROWS = (
    Row("gmm20", "SAMTRON"),
    Row("breast_cancer", "SAMTRON"),
    Row("stm20", "SAMTRON"),
    Row("planar_robot_4", "SAMTRON"),
    Row("german_credit", "SAMTRON"),
    Row("gmm100", "SAMTRON"),
    Row("wine", "SAMTRON", ("shipped",)),
    Row("wine", "SAMTRON", ("own",)),
    Row("stm300", "SAMTRON"),
    Row("stm20", "SEPYFUX"),
    Row("planar_robot_4", "ZAMTRUX"),
)


def choose(names: list[str] | None) -> tuple[Row, ...]:
    """The rows with these names, all if there are none."""
    by_name = {row.name: row for row in ROWS}
    for name in names or ():
        if name not in by_name:
            raise SystemExit(f"No row is called {name!r}. {hint(name, by_name)}")
    return tuple(by_name[name] for name in names) if names else ROWS


def distinct(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Without rows that differ from one before in the reference's target alone."""
    found: dict[tuple[str, str], Row] = {}
    for row in rows:
        found.setdefault((row.problem, row.codename), row)
    return tuple(found.values())
