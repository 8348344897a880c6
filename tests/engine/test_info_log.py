import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from natmix.engine.info_log import InfoLog
from natmix.modules.state import Info

WHOLE = ("components", "evaluations", "zeros", "invalid", "failed_updates", "deleted")


def report(shape, i):
    """An `Info` whose entries differ from each other and from those of other iterations."""
    values = {}
    for number, field in enumerate(dataclasses.fields(Info)):
        entry = 2**24 + 100 * i + number + jnp.arange(np.prod(shape, dtype=int), dtype=jnp.int32)
        entry = entry.reshape(shape)
        if field.name == "added":
            values[field.name] = entry % 2 == 0
        else:
            values[field.name] = entry if field.name in WHOLE else entry / 3
    return Info(**values)


@pytest.mark.parametrize("shape", [(), (3,)], ids=["one seed", "three seeds"])
def test_reports_come_back_as_they_were(shape):
    log = InfoLog.empty(5, jax.eval_shape(lambda: report(shape, 0)))
    for i in range(4):
        log = jax.jit(InfoLog.put)(log, jnp.asarray(i, jnp.int32), report(shape, i))
    found = log.arrays(3)
    assert list(found) == [f.name for f in dataclasses.fields(Info)]
    for name, values in found.items():
        expected = np.stack([np.asarray(getattr(report(shape, i), name)) for i in range(3)])
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected)
