"""MORE's weighted ridge regressions of rewards on quadratic features, one file per form.

dense       over all pairs of a sample and a component.
sparse      over the pairs that are not negligible, found in two passes over the log densities.
native      as sparse, by natmix's compiled kernels.
"""

from natmix.kernels.more_regressions.choose import FORMS, Form, Regressions, choose, regressions

__all__ = ["FORMS", "Form", "Regressions", "choose", "regressions"]
