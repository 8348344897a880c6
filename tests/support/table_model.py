"""A model front end in one file, as another package might bring it: a density given by two tables.

`Table(knots, log_density)` is a log density on a line, linear between its knots, of one variable ``x``
between the first and the last of them.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from natmix.models import AbstractModel, Given, PriorRegion


@dataclasses.dataclass
class Table:
    """What a user of that package has."""

    knots: np.ndarray
    log_density: np.ndarray


class TableModel(AbstractModel):
    """The variable ``x`` of a `Table`, its logit unconstrained."""

    dim = 1
    coordinates = ("x",)
    latent = ("x",)

    @classmethod
    def recognises(cls, given: Given) -> bool:
        return isinstance(given.target, Table)

    @classmethod
    def from_given(cls, given: Given) -> "TableModel":
        given.leave_out_all("table")
        return cls(given.target)

    def __init__(self, table: Table) -> None:
        self._knots, self._values = jnp.asarray(table.knots), jnp.asarray(table.log_density)
        self._low, self._width = float(table.knots[0]), float(table.knots[-1] - table.knots[0])
        self.constant = {"knots": np.asarray(table.knots)}

    def log_density(self, x):
        share = jax.nn.sigmoid(x[0])
        value = jnp.interp(self._low + self._width * share, self._knots, self._values)
        return value + jnp.log(self._width) + jax.nn.log_sigmoid(x[0]) + jax.nn.log_sigmoid(-x[0])

    def constrain(self, x):
        return {"x": self._low + self._width * np.asarray(jax.nn.sigmoid(jnp.asarray(x)[:, 0]))}

    def start(self, key):
        return PriorRegion(np.zeros(1), 2 * np.ones(1))
