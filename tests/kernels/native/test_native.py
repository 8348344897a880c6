"""The native kernels give what NumPy and SciPy give, for every set of vector instructions."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from natmix.gaussians import FullGaussians
from natmix.kernels import native
from natmix.kernels.plan import Plan
from natmix.mixture import Mixture
from tests.kernels import test_relevant_log_densities
from tests.kernels.native.test_regressions import check_regressions
from tests.kernels.native.test_updates import check_updates

pytestmark = pytest.mark.skipif(not native.available(), reason="installed without native kernels")

SIZES = [(1, 1, 1), (3, 2, 65), (17, 20, 300), (40, 31, 129), (2, 33, 700)]
TYPES = [np.float32, np.float64]


class Case:
    """Samples of K Gaussians in float64, and the same as the kernels see them."""

    def __init__(self, K: int, D: int, N: int, dtype: type = np.float64) -> None:
        rng = np.random.default_rng(K * D + N)
        self.dtype = dtype
        self.eps = float(np.finfo(dtype).eps)
        self.m = rng.normal(size=(K, D)).astype(dtype).astype(float) * 4
        L = np.tril(0.2 * rng.normal(size=(K, D, D))) + np.eye(D) * rng.uniform(0.5, 1.5, (K, D, 1))
        self.L = L.astype(dtype).astype(float)
        self.W = np.tril(np.linalg.inv(self.L)).astype(dtype).astype(float)
        rows = np.sort(rng.integers(K, size=N))
        x = self.m[rows] + np.einsum("nij,nj->ni", self.L[rows], rng.normal(size=(N, D)))
        self.x = x.astype(dtype).astype(float)
        self.v = rng.normal(size=(N, D)).astype(dtype).astype(float)
        self.columns = rng.normal(size=(N, 2)).astype(dtype).astype(float)
        self.log_weights = np.log(rng.dirichlet(np.ones(K))).astype(dtype).astype(float)
        self.valid = rng.random(N) < 0.9
        self.valid[0] = True
        self.offset = rng.normal(size=K).astype(dtype).astype(float)
        y = np.einsum("kij,nkj->nki", self.W, self.x[:, None] - self.m)
        self.log_c = (-0.5 * np.sum(y**2, axis=2) - self.offset).astype(dtype).astype(float)
        self.background = logsumexp(self.log_c + self.log_weights, axis=1).astype(dtype).astype(float)

    def __call__(self, name: str, *names: str | None, **arguments: object) -> Any:
        """The kernel of this name with these arrays."""
        arrays = [None if n is None else jnp.asarray(getattr(self, n), self.type_of(n)) for n in names]
        return getattr(native, name)(*arrays, **arguments)

    def type_of(self, name: str) -> type:
        return bool if name == "valid" else self.dtype

    @property
    def top(self) -> np.ndarray:
        ratio = np.where(self.valid[:, None], self.log_c - self.background[:, None], -np.inf)
        return ratio.max(axis=0).astype(self.dtype).astype(float)

    @property
    def weights(self) -> np.ndarray:
        ratio = np.where(self.valid[:, None], self.log_c - self.background[:, None], -np.inf)
        return np.exp(ratio - self.top)

    def __getattr__(self, name: str) -> Any:
        """Tests add arrays of their own."""
        raise AttributeError(name)

    def close(self, got: object, want: np.ndarray, roundings: float = 100) -> None:
        want = np.asarray(want)
        assert np.asarray(got).dtype == self.dtype
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=1e-30)
        np.testing.assert_allclose(got, want, rtol=roundings * self.eps, atol=roundings * self.eps * scale)  # type: ignore[call-overload]


@pytest.fixture(
    params=[(size, dtype) for size in SIZES for dtype in TYPES], ids=lambda p: f"{p[0]}-{p[1].__name__}"
)
def case(request: pytest.FixtureRequest) -> Case:
    size, dtype = request.param
    return Case(*size, dtype)  # type: ignore[call-arg]


def test_log_densities(case: Case) -> None:
    case.close(case("log_prob", "x", "m", "W", "offset", None, count=None), case.log_c, 30 * len(case.m[0]))


def test_log_densities_of_scipy() -> None:
    c = Case(3, 5, 100)
    g = FullGaussians.from_scale_tril(jnp.asarray(c.m), jnp.asarray(c.L))
    for k in range(3):
        want = multivariate_normal(c.m[k], c.L[k] @ c.L[k].T).logpdf(c.x)
        np.testing.assert_allclose(g.log_prob(jnp.asarray(c.x))[:, k], want, rtol=1e-11)


def test_samples_beyond_the_count_are_zero_and_never_read() -> None:
    c = Case(4, 3, 150)
    c.x[70:] = np.nan
    got = c("log_prob", "x", "m", "W", "offset", None, count=jnp.asarray(70))
    c.close(got[:70], c.log_c[:70])
    assert not np.any(got[70:])


def test_absent_components_have_no_density_and_are_never_read() -> None:
    c = Case(5, 3, 100)
    present = np.array([True, False, True, True, False])
    c.m[~present] = np.nan
    got = np.asarray(c("log_prob", "x", "m", "W", "offset", None, count=None))
    assert np.isnan(got[:, 1]).all()
    c.present = present  # type: ignore[attr-defined]
    c.type_of = lambda name: bool if name == "present" else np.float64  # type: ignore[method-assign]
    got = np.asarray(c("log_prob", "x", "m", "W", "offset", "present", count=None))
    assert (got[:, ~present] == -np.inf).all()
    c.close(got[:, present], c.log_c[:, present])


def test_what_lies_above_the_diagonal_is_not_read() -> None:
    c = Case(2, 11, 80)
    c.W[:, np.triu_indices(11, 1)[0], np.triu_indices(11, 1)[1]] = np.nan
    c.close(c("log_prob", "x", "m", "W", "offset", None, count=None), c.log_c)
    assert np.isfinite(c("score", "x", "m", "W", "log_c", "log_weights", count=None)).all()


def test_mixture_log_densities(case: Case) -> None:
    got = case("mixture_log_prob", "x", "m", "W", "offset", "log_weights", count=None)
    case.close(got, logsumexp(case.log_c + case.log_weights, axis=1), 30 * len(case.m[0]))


@pytest.mark.parametrize("dtype", TYPES)
def test_mixture_log_densities_of_many_samples_in_any_order(dtype: type) -> None:
    """So many that they are put in order; some components are absent, one sample is not a number."""
    c = Case(20, 4, 5000, dtype)
    mixed = np.random.default_rng(0).permutation(5000)
    c.x, c.log_c = c.x[mixed], c.log_c[mixed]
    c.x[77] = np.nan
    c.log_weights[[0, 7, 19]] = -np.inf
    got = np.asarray(c("mixture_log_prob", "x", "m", "W", "offset", "log_weights", count=jnp.asarray(4990)))
    assert np.isnan(got[77])
    want = logsumexp(c.log_c + c.log_weights, axis=1)
    real = (np.arange(5000) < 4990) & (np.arange(5000) != 77)
    c.close(got[real], want[real], 200)
    assert not np.any(got[4990:])


def test_a_mixture_without_components_has_no_density() -> None:
    c = Case(3, 2, 70)
    c.log_weights[:] = -np.inf
    assert (c("mixture_log_prob", "x", "m", "W", "offset", "log_weights", count=None) == -np.inf).all()


def test_scores(case: Case) -> None:
    r = np.exp(case.log_c + case.log_weights)
    r /= r.sum(axis=1, keepdims=True)
    P = np.einsum("kai,kaj->kij", case.W, case.W)
    want = -np.einsum("nk,kij,nkj->ni", r, P, case.x[:, None] - case.m)
    case.close(case("score", "x", "m", "W", "log_c", "log_weights", count=None), want, 1000)


def test_weighted_scores_with_any_weights(case: Case) -> None:
    rng = np.random.default_rng(0)
    case.r = rng.normal(size=case.log_c.shape) * (rng.random(case.log_c.shape) < 0.5)  # type: ignore[attr-defined]
    case.r = case.r.astype(case.dtype).astype(float)  # type: ignore[attr-defined]
    P = np.einsum("kai,kaj->kij", case.W, case.W)
    want = -np.einsum("nk,kij,nkj->ni", case.r, P, case.x[:, None] - case.m)
    case.close(case("weighted_scores", "x", "m", "W", "r", count=None), want, 1000)


def test_weighted_logsumexp(case: Case) -> None:
    want = logsumexp(case.log_c + case.log_weights, axis=1)
    case.close(case("weighted_logsumexp", "log_c", "log_weights", count=None), want)


def test_largest_weights(case: Case) -> None:
    got = case("largest_log_weights", "log_c", "background", "valid", count=None)
    case.close(got, case.top)


def test_without_valid_samples_there_is_no_largest_weight() -> None:
    c = Case(3, 2, 70)
    c.valid[:] = False
    assert (c("largest_log_weights", "log_c", "background", "valid", count=None) == -np.inf).all()


def test_weighted_sums(case: Case) -> None:
    names = ("log_c", "background", "valid", "top", "columns")
    sums, squares = case("weighted_sums", *names, count=None)
    case.close(sums, case.weights.T @ case.columns, 2000)
    case.close(squares, np.sum(case.weights**2, axis=0), 2000)


def test_sample_sums(case: Case) -> None:
    case.factors = np.linspace(1, 2, len(case.m)).astype(case.dtype).astype(float)  # type: ignore[attr-defined]
    got = case("sample_sums", "log_c", "background", "valid", "top", "factors", count=None)
    case.close(got, case.weights @ case.factors, 2000)


STEIN = ("log_c", "background", "valid", "top", "columns", "x", "m", "v", "L", "W")


def test_stein_sums(case: Case) -> None:
    hessian, gradient, sums = case("stein_sums", *STEIN, count=None)
    w = case.weights
    moment = np.einsum("nk,nki,nj->kij", w, case.x[:, None] - case.m, case.v)
    whitened = case.W @ moment @ case.L
    case.close(hessian, 0.5 * (whitened + np.swapaxes(whitened, 1, 2)), 3000)
    np.testing.assert_array_equal(hessian, np.swapaxes(hessian, 1, 2))
    case.close(gradient, np.einsum("kij,ki->kj", case.L, w.T @ case.v), 3000)
    case.close(sums, w.T @ case.columns, 3000)


@pytest.mark.parametrize("dtype", TYPES)
def test_stein_sums_in_so_many_dimensions_that_every_component_is_a_task(dtype: type) -> None:
    test_stein_sums(Case(5, 130, 400, dtype))


def test_stein_sums_without_samples_is_zero() -> None:
    c = Case(17, 5, 300)
    for part in c("stein_sums", *STEIN, count=jnp.asarray(0)):
        assert not np.any(part)


def test_numbers_that_are_none_are_not_hidden() -> None:
    c = Case(3, 2, 200)
    c.log_c[5, 1] = np.nan
    c.valid[5] = True
    top = c("largest_log_weights", "log_c", "background", "valid", count=None)
    np.testing.assert_array_equal(np.isnan(top), [False, True, False])
    clean = Case(3, 2, 200).top
    parts = native.stein_sums(  # type: ignore[call-arg]
        *[jnp.asarray(getattr(c, n)) if n != "top" else jnp.asarray(clean) for n in STEIN], None
    )
    for part in parts:
        bad = np.isnan(np.asarray(part).reshape(3, -1)).any(axis=1)
        np.testing.assert_array_equal(bad, [False, True, False])


@pytest.mark.parametrize("value", [-np.inf, -1000.0, -87.4, -1.0, 0.0, 1.0, 88.0, 1000.0, np.inf, np.nan])
@pytest.mark.parametrize("dtype", TYPES)
def test_exponentials_at_the_ends_of_the_range(value: float, dtype: type) -> None:
    # sample_sums of one component is the exponential itself, but for what is negligible in a sum.
    one = jnp.full((1, 1), value, dtype)
    zero, valid = jnp.zeros(1, dtype), jnp.ones(1, bool)
    got = float(native.sample_sums(one, zero, valid, zero, jnp.ones(1, dtype), None)[0])
    with np.errstate(over="ignore"):
        want = float(np.exp(np.asarray(value, dtype)))
    assert got == pytest.approx(want if not want < 1e-12 else 0.0, rel=1e-6, nan_ok=True)


def test_draws_are_those_of_jax() -> None:
    K, D, n = 6, 5, 130
    rng = np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(3), K)
    L = jnp.asarray(np.tril(rng.normal(size=(K, D, D))), jnp.float32)
    m = jnp.asarray(rng.normal(size=(K, D)), jnp.float32)
    number = np.array([130, 0, 1, 64, 65, 17])
    x, source = native.draws(jax.random.key_data(keys), jnp.asarray(number), m, L, K * n)
    noise = jax.vmap(lambda key: jax.random.normal(key, (n, D), jnp.float32))(keys)
    every = m[:, None] + jnp.einsum("knj,kij->kni", noise, L, precision="highest")
    want = np.concatenate([every[k, :c] for k, c in enumerate(number)])
    np.testing.assert_allclose(x[: number.sum()], want, rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(source[: number.sum()], np.repeat(np.arange(K), number))
    assert not np.any(x[number.sum() :])


def test_normal_numbers_far_out_too() -> None:
    N = 2**20
    key = jax.random.key_data(jax.random.key(11))[None]
    one = jnp.ones((1, 1, 1), jnp.float32)
    x, _ = native.draws(key, jnp.asarray([N]), jnp.zeros((1, 1), jnp.float32), one, N)
    want = jax.random.normal(jax.random.key(11), (N, 1), jnp.float32)
    assert np.max(np.abs(want)) > 4.5
    np.testing.assert_allclose(x, want, rtol=1e-6, atol=1e-7)


def test_derivatives_of_log_densities() -> None:
    c = Case(3, 4, 80)
    q = Mixture(jnp.asarray(c.log_weights), FullGaussians.from_scale_tril(jnp.asarray(c.m), jnp.asarray(c.L)))
    x = jnp.asarray(c.x)

    def total(q: Mixture, x: jax.Array) -> jax.Array:
        return jnp.sum(q.log_prob(x))

    native_form = jax.grad(total, argnums=(0, 1))(q, x)
    few = [jax.grad(total, argnums=(0, 1))(q, x[i : i + 40]) for i in (0, 40)]  # too few for native kernels
    np.testing.assert_allclose(native_form[1], jnp.concatenate([f[1] for f in few]), rtol=1e-9)
    for a, *b in zip(*map(jax.tree.leaves, (native_form[0], few[0][0], few[1][0])), strict=True):
        np.testing.assert_allclose(a, b[0] + b[1], rtol=1e-9, atol=1e-9)


def test_numbers_of_two_types_meet_in_the_wider_one() -> None:
    c = Case(3, 4, 80)
    arrays = [jnp.asarray(a) for a in (c.m, c.W, c.offset)]
    got = native.log_prob(jnp.asarray(c.x, jnp.float32), *arrays, None, None)  # type: ignore[call-arg]
    assert got.dtype == jnp.float64
    np.testing.assert_allclose(got, c.log_c, rtol=1e-4)


def _run(code: str, **environment: str) -> str:
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "instructions", ["plain", pytest.param("wide", marks=SLOW), pytest.param("widest", marks=SLOW)]
)
def test_every_set_of_instructions(instructions: str) -> None:
    """The other tests have the widest that this processor has."""
    root = Path(__file__).parents[3]
    folders = [str(root), str(root / "tests" / "support")]
    test = "from tests.kernels.native import test_native as t"
    code = f"import sys; sys.path[:0] = {folders!r}; {test}; t.check()"
    assert _run(code, NATMIX_NATIVE=instructions, JAX_ENABLE_X64="1").strip() == "checked"


def check() -> None:
    """All kernels with the instructions of this process."""
    for case in (Case(17, 20, 300, np.float32), Case(40, 31, 129, np.float64)):
        test_log_densities(case)
        test_mixture_log_densities(case)
        test_scores(case)
        test_weighted_logsumexp(case)
        test_largest_weights(case)
        test_weighted_sums(case)
        test_sample_sums(case)
        test_stein_sums(case)
    for dtype in TYPES:
        test_stein_sums(Case(5, 130, 400, dtype))
        apart = test_relevant_log_densities.Spread(12, 20, 90, 3.0, dtype)
        test_relevant_log_densities.test_what_is_kept_is_exact_and_what_is_not_is_far_below(apart)
        test_relevant_log_densities.test_new_samples_meet_generations(dtype)
        test_mixture_log_densities_of_many_samples_in_any_order(dtype)
    check_regressions()
    check_updates()
    test_draws_are_those_of_jax()
    test_normal_numbers_far_out_too()
    print("checked")


def test_a_fit_is_the_same_without_them() -> None:
    code = """
import numpy as np, natmix, natmix.experiments.problems
from natmix.kernels.plan import Plan
problem = natmix.experiments.problems.load("gmm20", seed=1)
result = natmix.fit(
    problem.target, algorithm="SAMTRON", init_scale=30.0, max_iterations=5, elbo_samples=2, progress=False
)
print(Plan.detect().native, *np.asarray(result.mixture.mean())[:4])
"""
    with_kernels, without = _run(code), _run(code, NATMIX_NATIVE="0")
    assert with_kernels.split()[0] == "True"
    assert without.split()[0] == "False"
    a, b = (np.array(out.split()[1:], float) for out in (with_kernels, without))
    np.testing.assert_allclose(a, b, rtol=1e-3)


def test_an_unknown_setting_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATMIX_NATIVE", "off")
    with pytest.raises(ValueError, match="must be one of 0, 1, plain, wide, widest, got 'off'"):
        Plan.detect()
