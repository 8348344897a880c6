"""What a mixture cannot be made of or asked for: one sentence each."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from mixture_makers import full

from natmix import Mixture

jax.config.update("jax_enable_x64", True)


# Bad input ------------------------------------------------------------------------------------------

EYE = np.stack([np.eye(2)] * 2)
MEANS = np.zeros((2, 2))
BAD_CONSTRUCTION: dict[str, tuple[Callable[[], Any], str]] = {
    "means": (lambda: Mixture.full([1, 1], np.zeros(2), EYE), r"Means must have shape \[K, D\]"),
    "no means": (lambda: Mixture.full([], np.zeros((0, 2)), np.zeros((0, 2, 2))), "K, D >= 1"),
    "weights": (lambda: Mixture.full([1, 1, 1], MEANS, EYE), r"Weights must have shape \[2\]"),
    "covariances": (lambda: Mixture.full([1, 1], MEANS, EYE[0]), r"Covariances must have shape \[2, 2, 2\]"),
    "variances": (lambda: Mixture.diagonal([1, 1], MEANS, EYE), r"Variances must have shape \[2, 2\]"),
    "negative": (lambda: Mixture.full([1, -1], MEANS, EYE), "not negative"),
    "zero": (lambda: Mixture.full([0, 0], MEANS, EYE), "not all zero"),
    "nan weight": (lambda: Mixture.full([1, np.nan], MEANS, EYE), "Weights must be finite"),
    "nan mean": (lambda: Mixture.full([1, 1], MEANS * np.nan, EYE), "Means must be finite"),
    "nan covariance": (lambda: Mixture.full([1, 1], MEANS, EYE * np.nan), "Covariances must be finite"),
    "asymmetric": (lambda: Mixture.full([1, 1], MEANS, EYE + np.eye(2, k=1)), "symmetric"),
    "singular": (lambda: Mixture.full([1, 1], MEANS, EYE * [[[1]], [[0]]]), "Covariance 1 is singular"),
    "variance": (lambda: Mixture.diagonal([1, 1], MEANS, [[1, 1], [1, 0]]), "positive and finite"),
}
BAD_CALLS: dict[str, tuple[Callable[[Mixture], Any], str]] = {
    "point": (lambda q: q.log_prob(np.zeros(2)), "3 entries in their last axis"),
    "scalar": (lambda q: q.log_prob(0.0), "3 entries in their last axis"),
    "samples": (lambda q: q.sample(-1, key=0), "whole number of at least 0"),
    "entropy": (lambda q: q.entropy(n=0), "at least one sample"),
    "kl": (lambda q: q.kl(full(D=2)), "same dimension, got 3 and 2"),
    "quantile": (lambda q: q.quantile([0.5, 1.0]), "strictly between 0 and 1"),
    "dimension": (lambda q: q.marginal(3), "from 0 to 2, got 3"),
    "negative dimension": (lambda q: q.marginal([0, -4]), "from 0 to 2, got -4"),
    "fraction": (lambda q: q.marginal([0.5]), "whole numbers"),  # type: ignore[list-item]
    "name": (lambda q: q.marginal("x"), "whole numbers"),  # type: ignore[arg-type]
    "twice": (lambda q: q.marginal([0, -3]), "each only once"),
    "none": (lambda q: q.marginal([]), "at least one dimension"),
    "everything": (lambda q: q.condition({0: 0.0, 1: 0.0, 2: 0.0}), "leaves nothing"),
    "many values": (lambda q: q.condition({0: np.zeros(3)}), "one number per dimension"),  # type: ignore[dict-item]
    "nan value": (lambda q: q.condition({0: np.nan}), "must be finite"),
    "columns": (lambda q: q.affine(np.eye(2)), "3 columns"),
    "scale": (lambda q: q.affine([1.0, 2.0]), "vector of length 3"),
    "zero scale": (lambda q: q.affine([1.0, 0.0, 1.0]), "by zero"),
    "nan matrix": (lambda q: q.affine(np.eye(3) * np.nan), "must be finite"),
    "rank": (lambda q: q.affine(np.ones((2, 3))), "full row rank"),
    "zero row": (lambda q: q.affine(np.zeros((1, 3))), "full row rank"),
    "tall": (lambda q: q.affine(np.ones((4, 3))), "full row rank"),
    "shift": (lambda q: q.affine(2.0, np.zeros((3, 3))), "The shift must be a number"),
    "shift of a matrix": (lambda q: q.affine(np.ones((1, 3)), np.zeros(3)), "vector of length 1"),
    "product mean": (lambda q: q.product(np.zeros(2), 1.0), "vector of length 3"),
    "product variance": (lambda q: q.product(0.0, -1.0), "positive and finite"),
    "product covariance": (lambda q: q.product(0.0, -np.eye(3)), "positive definite"),
    "product shape": (lambda q: q.product(0.0, np.eye(2)), "must have shape"),
    "top": (lambda q: q.top(0), "at least one component"),
}


@pytest.mark.parametrize("name", BAD_CONSTRUCTION)
def test_bad_parameters_are_refused_in_a_sentence(name: str) -> None:
    call, message = BAD_CONSTRUCTION[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda q: q.sample(3, 10), r"sample\(10, key=0\)"),
        (lambda q: q.sample(jax.random.key(3)), r"sample\(10, key=0\)"),
        (lambda q: q.sample(jax.random.PRNGKey(3), 10), r"sample\(10, key=0\)"),
        (lambda q: q.sample_with_components(3, 10), r"sample_with_components\(10, key=0\)"),
        (lambda q: q.entropy(0, 100), r"entropy\(10, key=0\)"),
        (lambda q: q.kl(q, jax.random.key(3)), r"kl\(other, 1000, key=0\)"),
    ],
)
def test_a_key_by_position_is_refused_in_a_sentence(call: Callable[[Mixture], Any], instead: str) -> None:
    with pytest.raises(TypeError, match=f"and the key by keyword: {instead}"):
        call(full())


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_refused_in_a_sentence(name: str) -> None:
    call, message = BAD_CALLS[name]
    with pytest.raises(ValueError, match=message):
        call(full())
