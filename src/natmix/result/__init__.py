"""What a fit returns: the mixture with its ELBO, verdict, files and exports."""

from natmix.result.compare import Comparison
from natmix.result.distribution import Distribution
from natmix.result.many_results import ManyResults
from natmix.result.result import Counts, Result, Timings

__all__ = ["Comparison", "Counts", "Distribution", "ManyResults", "Result", "Timings"]
