"""The longest natural-gradient step within a bound on the KL divergence, one file per form."""

from natmix.kernels.trust_region.step import FORMS, Form, WhitenedStep, choose, native_step, whitened_step

__all__ = ["FORMS", "Form", "WhitenedStep", "choose", "native_step", "whitened_step"]
