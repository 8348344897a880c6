"""Every form of every operation, against NumPy and SciPy in float64: one table drives all tests."""

import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import draw, gaussian_kl, make_batch, random_mixture
from more_regressions import regression
from plans import GPU, NATIVE, XLA
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from natmix import Mixture
from natmix.gaussians import FullGaussians
from natmix.kernels import (
    background_density,
    importance_sums,
    interval_search,
    log_densities,
    more_regressions,
    native,
    normal_draws,
    ring_buffer,
    scores,
    slots,
    stein_sums,
    trust_region,
)
from natmix.kernels.forms import otherwise
from natmix.kernels.plan import Plan, using
from natmix.kernels.sample_arrays import Background

K, D, EACH = 5, 4, 40
N, REAL = K * EACH, K * EACH - 17
TYPES = {"float64": (np.float64, 1e-9), "float32": (np.float32, 2e-4)}


class Case:
    """A mixture of which one component is absent, samples of it of which not all are real or valid."""

    def __init__(self, dtype: type) -> None:
        mixture = random_mixture(3, K, D, spread=2.0, dtype=dtype)
        self.present = jnp.arange(K) != 1
        weights = jax.nn.log_softmax(jnp.where(self.present, mixture.log_weights, -jnp.inf))
        self.mixture = Mixture(weights, mixture.components)
        self.g: FullGaussians = mixture.components
        self.x, self.source = draw(mixture, 1, [EACH] * K)
        self.count = jnp.asarray(REAL)
        noise = np.random.default_rng(1)
        self.v = jnp.asarray(noise.normal(size=(N, D)), dtype)
        batch = make_batch(self.mixture, self.x, jnp.sum(jnp.sin(self.x), axis=1), source=self.source)
        valid = (jnp.arange(N) < REAL) & (jnp.arange(N) % 7 > 0)
        zero = valid & (jnp.arange(N) % 11 == 0)
        with_zeros = jnp.where(zero, jnp.min(batch.log_target) - 30, batch.log_target)
        self.batch = type(batch)(
            **{
                **vars(batch),
                "log_components": jnp.where(self.present, batch.log_components, -jnp.inf),
                "valid": valid,
                "zero": zero,
                "log_target": with_zeros,
                "count": self.count,
            }
        )

    @property
    def covariances(self) -> np.ndarray:
        return np.asarray(self.g.covariance(), float)

    @property
    def log_prob(self) -> np.ndarray:
        """By SciPy."""
        m = np.asarray(self.g.mean, float)
        each = [
            multivariate_normal(m[k], self.covariances[k]).logpdf(np.asarray(self.x, float)) for k in range(K)
        ]
        return np.where(self.present, np.stack(each, axis=1), -np.inf)

    @property
    def importance(self) -> tuple[np.ndarray, np.ndarray]:
        """Log weights and the largest, as float64."""
        log_w = (
            np.asarray(self.batch.log_components, float)
            - np.asarray(self.batch.log_background, float)[:, None]
        )
        log_w = np.where(self.batch.valid[:, None], log_w, -np.inf)
        return log_w, log_w.max(axis=0)


class Operation(NamedTuple):
    """How to run a form of it, what must come out, and all the forms that there are."""

    forms: Any
    run: Callable[[Case, Any], Any]
    want: Callable[[Case], Any]
    plans: tuple[Plan, ...] = (XLA,)
    """Those under which what surrounds the form differs."""
    tolerance: float = 0.0
    """What an error may be whatever the float type."""


def real(values: Any) -> Any:
    return jax.tree.map(lambda a: a[:REAL], values)


def want_score(c: Case) -> np.ndarray:
    joint = c.log_prob + np.asarray(c.mixture.log_weights, float)
    r = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    d = np.asarray(c.x, float)[:, None] - np.asarray(c.g.mean, float)
    return real(-np.einsum("nk,kij,nkj->ni", r, np.linalg.inv(c.covariances), d))


def run_stein(c: Case, form: Any) -> Any:
    sums = stein_sums.stein_sums(c.g, c.batch, jnp.where(c.batch.valid[:, None], c.v, 0), True, form=form)
    hessian, gradient, inside, total, _, ok = sums
    mask = c.present[:, None]
    return jnp.where(mask[..., None], hessian, 0), jnp.where(mask, gradient, 0), inside, total, ok


def want_stein(c: Case) -> Any:
    log_w, top = c.importance
    w = np.exp(log_w - np.where(np.isfinite(top), top, 0))
    w = w / np.maximum(w.sum(0), 1e-30)
    L, W = (np.asarray(a, float) for a in (c.g.scale_tril, c.g.inverse_tril))
    y = np.einsum("kij,nkj->nki", W, np.asarray(c.x, float)[:, None] - np.asarray(c.g.mean, float))
    M = np.einsum("nk,nki,nj,kjl->kil", w, y, np.asarray(c.v, float), L)
    gradient = np.einsum("kji,nk,nj->ki", L, w, np.asarray(c.v, float))
    inside = np.where(c.batch.zero[:, None], 0, w).sum(0)
    return 0.5 * (M + M.transpose(0, 2, 1)), gradient, inside, w.sum(0), np.asarray(c.present)


def run_regressions(c: Case, form: Any) -> Any:
    one = jnp.asarray(1, c.g.dtype)
    found = more_regressions.regressions(c.g, c.mixture.log_weights, c.batch, one, True, False, form=form)
    extra = jnp.where(found.inside > 0, 30 * (found.total / jnp.maximum(found.inside, 1e-30) - 1), 0)
    ridge = jnp.full(K, 1e-7, c.g.dtype)
    hessian, gradient = c.g.unpack(found.regress(c.g, c.present, c.batch, extra.astype(c.g.dtype), ridge))
    return -hessian[c.present], -gradient[c.present]


def want_regressions(c: Case) -> Any:
    rows = np.flatnonzero(c.present)
    present = Mixture(c.mixture.log_weights[rows], c.g.take(jnp.asarray(rows)))
    batch = type(c.batch)(**{**vars(c.batch), "log_components": c.batch.log_components[:, rows]})
    return regression(present, batch)


def sums(c: Case, form: Any) -> Any:
    """All of `importance_sums`."""
    log_c, weights = c.batch.log_components, Background(c.batch.log_background, c.batch.valid, c.count)
    largest = importance_sums.largest_log_weights(log_c, weights, form)
    top = jnp.where(jnp.isfinite(largest), largest, 0)
    return (
        jnp.where(c.present, largest, 0),
        real(importance_sums.log_sums(log_c, c.mixture.log_weights, c.count, form)),
        importance_sums.weighted_sums(log_c, weights, top, c.v, form),
        real(importance_sums.sample_sums(log_c, weights, top, jnp.arange(1, K + 1, dtype=c.g.dtype), form)),
        importance_sums.effective_samples(log_c, weights, form),
    )


def want_sums(c: Case) -> Any:
    log_w, largest = c.importance
    w = np.exp(log_w - np.where(c.present, largest, 0))
    log_q = logsumexp(np.asarray(c.batch.log_components + c.mixture.log_weights, float), axis=1)
    n_eff = w.sum(0) ** 2 / np.maximum((w**2).sum(0), 1e-30)
    return (
        np.where(c.present, largest, 0),
        real(log_q),
        w.T @ np.asarray(c.v, float),
        real(w @ np.arange(1, K + 1)),
        n_eff,
    )


GENERATIONS = jnp.asarray([3.0, 0.0, 2.0, 1.0, 4.0])


def run_background(c: Case, form: Any) -> Any:
    used, counts = (n.astype(c.g.dtype) for n in (jnp.minimum(GENERATIONS, 2), GENERATIONS))
    own = jnp.max(c.batch.log_components, axis=1)
    mass, each = background_density.background_log_density(c.g, c.x, used, counts, own, K, c.count, form)
    return real(mass), real(jnp.where(each < own[:, None] - 30, -30, each - own[:, None]))


def want_background(c: Case) -> Any:
    own, log_p = np.max(np.asarray(c.batch.log_components, float), axis=1), c.log_prob
    with np.errstate(divide="ignore"):
        each = log_p + np.log(np.asarray(GENERATIONS))
        mass = logsumexp(log_p + np.log(np.minimum(np.asarray(GENERATIONS), 2)), axis=1)
    below = each - own[:, None]
    return real(mass), real(np.where(below < -30, -30, below))


def run_draws(c: Case, form: Any) -> Any:
    number = jnp.asarray([3, 0, 7, 1, 5], jnp.int32)
    keys = jax.random.split(jax.random.key(4), K)
    x, source = normal_draws.component_draws(c.g, keys, number, c.present, 7, form)
    return x[:16], source[:16]


def want_draws(c: Case) -> Any:
    keys = jax.random.split(jax.random.key(4), K)
    noise = np.asarray(jax.vmap(lambda k: jax.random.normal(k, (7, D), c.g.dtype))(keys), float)
    x = np.asarray(c.g.mean, float)[:, None] + np.einsum(
        "kij,knj->kni", np.asarray(c.g.scale_tril, float), noise
    )
    number = [3, 0, 7, 1, 5]
    return np.concatenate([x[k, :n] for k, n in enumerate(number)]), np.repeat(np.arange(K), number)


def run_ring(c: Case, form: Any) -> Any:
    return ring_buffer.put_chosen(
        (c.x[:30], c.v[:30, 0]), (c.v[:20], c.x[:20, 1]), c.batch.valid[:20], jnp.asarray(22), form
    )


def want_ring(c: Case) -> Any:
    x, v, chosen = np.asarray(c.x), np.asarray(c.v), np.flatnonzero(c.batch.valid[:20])
    slot = (22 + np.arange(len(chosen))) % 30
    matrix, vector = x[:30].copy(), v[:30, 0].copy()
    matrix[slot], vector[slot] = v[chosen], x[chosen, 1]
    return matrix, vector


def run_front(c: Case, form: Any) -> Any:
    return ring_buffer.front(c.batch.valid, form)[: int(np.asarray(c.batch.valid).sum())]


def want_counts(c: Case) -> Any:
    return np.bincount(np.asarray(c.source)[np.asarray(c.batch.valid)], minlength=K + 1)


def inside_from(edges: Any) -> Callable[[Any], Any]:
    return lambda t: t >= edges


OPERATIONS: dict[str, Operation] = {
    "log densities": Operation(
        log_densities.Form,
        lambda c, form: real(
            jnp.where(c.present, log_densities.log_prob(c.g, c.x, c.count, c.present, form), 0)
        ),
        lambda c: real(np.where(c.present, c.log_prob, 0)),
    ),
    "mixture log density": Operation(
        log_densities.Form,
        lambda c, form: real(log_densities.mixture_log_prob(c.g, c.mixture.log_weights, c.x, c.count, form)),
        lambda c: real(logsumexp(c.log_prob + np.asarray(c.mixture.log_weights, float), axis=1)),
    ),
    "scores": Operation(
        scores.Form,
        lambda c, form: real(
            scores.mixture_score(c.g, c.batch.log_components, c.mixture.log_weights, c.x, c.count, form)
        ),
        want_score,
        (XLA, GPU),
    ),
    "Stein's sums": Operation(stein_sums.Form, run_stein, want_stein, (XLA, GPU)),
    "MORE's regressions": Operation(more_regressions.Form, run_regressions, want_regressions, (XLA, GPU)),
    "importance sums": Operation(importance_sums.Form, sums, want_sums),
    "background log density": Operation(background_density.Form, run_background, want_background),
    "normal numbers": Operation(
        normal_draws.NormalForm,
        lambda c, form: normal_draws.normals(
            jax.random.split(jax.random.key(2), 3), (5, 2), np.dtype("float32"), form
        ),
        lambda c: np.stack(
            [jax.random.normal(k, (5, 2), jnp.float32) for k in jax.random.split(jax.random.key(2), 3)]
        ),
    ),
    "draws of components": Operation(normal_draws.DrawForm, run_draws, want_draws),
    "ring buffer": Operation(ring_buffer.Form, run_ring, want_ring),
    "rows in front": Operation(ring_buffer.FrontForm, run_front, lambda c: np.flatnonzero(c.batch.valid)),
    "counts of rows": Operation(
        ring_buffer.CountForm,
        lambda c, form: ring_buffer.count_rows(c.source, c.batch.valid, K + 1, form),
        want_counts,
    ),
    "one slot": Operation(
        slots.Form,
        lambda c, form: slots.set_slot(c.x, jnp.asarray(3), c.v[0], jnp.asarray(True), form),
        lambda c: np.concatenate([c.x[:3], c.v[:1], c.x[4:]]),
    ),
    "search on a line": Operation(
        interval_search.Form,
        lambda c, form: interval_search.first_inside(
            inside_from(c.x[:, 0]), jnp.full(N, -64.0, c.x.dtype), jnp.full(N, 64.0, c.x.dtype), 24, N, form
        ),
        lambda c: np.asarray(c.x[:, 0], float) + 64 / 2**24,
        tolerance=65 / 2**24,
    ),
}


def literals(form: Any) -> Iterator[Any]:
    """The names of all forms of a type of literals."""
    for part in typing.get_args(form):
        if isinstance(part, str):
            yield part
        else:
            yield from literals(part)


TABLE = [
    (name, form, plan) for name, op in OPERATIONS.items() for form in literals(op.forms) for plan in op.plans
]


@pytest.fixture(scope="module", params=TYPES)
def case(request: pytest.FixtureRequest) -> tuple[Case, float]:
    dtype, tolerance = TYPES[request.param]
    with using(XLA):
        return Case(dtype), tolerance


@pytest.mark.parametrize(
    ("name", "form", "plan"), TABLE, ids=lambda v: v if isinstance(v, str) else v.platform
)
def test_a_form_gives_what_numpy_gives(case: tuple[Case, float], name: str, form: str, plan: Plan) -> None:
    data, tolerance = case
    if form == "native":
        if not native.available():
            pytest.skip("installed without native kernels")
        if name == "draws of components" and data.g.dtype != np.float32:
            pytest.skip("the native kernel draws in float32")
        plan = NATIVE
    operation = OPERATIONS[name]
    with using(plan):
        found = jax.jit(lambda: operation.run(data, form))()
    want = operation.want(data)
    if name == "MORE's regressions":
        tolerance *= 50  # ill-conditioned
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        wanted = np.asarray(b)
        absolute = max(tolerance * (1 + np.abs(wanted).max()), operation.tolerance)
        np.testing.assert_allclose(a, wanted, rtol=tolerance, atol=absolute)


@pytest.mark.parametrize("form", list(literals(trust_region.Form)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_longest_step_within_the_bound(form: Any, dtype: type) -> None:
    """Against the KL divergence in NumPy: almost at the bound, or the full step of Eq. 4."""
    if form.startswith("native") and not native.available():
        pytest.skip("installed without native kernels")
    g = Case(dtype).g
    noise = np.random.default_rng(7)
    A = noise.normal(size=(K, D, D)) * np.geomspace(0.1, 10, K)[:, None, None]
    A = np.where(np.arange(K)[:, None, None] % 2 == 0, A @ A.transpose(0, 2, 1), A + A.transpose(0, 2, 1))
    a, bound = noise.normal(size=(K, D)), np.geomspace(1e-3, 3, K)
    curvature, gradient, bounds = (jnp.asarray(b, dtype) for b in (A, a, bound))
    T = jnp.asarray(1, dtype)
    if form.startswith("native"):
        new, ok = trust_region.native_step(g, curvature, gradient, bounds, jnp.ones(K, bool), T, 0.03)
        moved = g.with_factors(new)
    else:
        step = trust_region.whitened_step(form, g, curvature, gradient, bounds, T)
        moved, ok = g.moved(step.factor, step.shift), step.ok
    assert np.all(ok)
    kl = gaussian_kl(moved, g)
    assert np.all(kl <= bound * (1 + 2e-3))
    at_T = np.array([np.linalg.eigvalsh(a).min() > -1 for a in A])
    short = kl < 0.98 * bound
    assert np.all(at_T[short])
    for k in np.flatnonzero(short):
        L = np.asarray(g.scale_tril[k], float)
        np.testing.assert_allclose(
            moved.covariance()[k], L @ np.linalg.inv(np.eye(D) + A[k]) @ L.T, rtol=1e-3, atol=1e-4
        )
    # The direction is that of Eq. 4 for one eta: L^-1 (S'^-1 - S^-1) L^-T is A / eta.
    for k in range(K):  # type: ignore[assignment]
        L = np.asarray(g.scale_tril[k], float)
        change = L.T @ np.linalg.inv(np.asarray(moved.covariance()[k], float)) @ L - np.eye(D)
        eta = np.sum(A[k] ** 2) / np.sum(change * A[k])
        np.testing.assert_allclose(change * eta, A[k], atol=2e-2 * np.abs(A[k]).max())


def test_what_relevant_log_densities_leave_out_is_negligible() -> None:
    for dtype, tolerance in TYPES.values():
        c = Case(dtype)
        for form in literals(log_densities.Form):
            if form == "native" and not native.available():
                continue
            found = np.asarray(
                log_densities.relevant_log_prob(
                    c.g,
                    c.x,
                    None,
                    c.mixture.log_weights,
                    c.source,
                    log_drawn=jnp.full(K, -np.log(K), dtype),
                    form=form,
                )
            )
            kept = np.isfinite(found) & np.asarray(c.present)
            np.testing.assert_allclose(found[kept], c.log_prob[kept], rtol=tolerance, atol=30 * tolerance)
            mixture = logsumexp(c.log_prob + np.asarray(c.mixture.log_weights, float), axis=1)
            assert np.all((c.log_prob - mixture[:, None])[~kept & np.asarray(c.present)] < -40)


TABLES = {
    "log densities": (log_densities.Form, log_densities.FORMS),
    "reordered log densities": (log_densities.ReorderForm, log_densities.REORDER_FORMS),
    "scores": (scores.Form, scores.FORMS),
    "scores with given responsibilities": (scores.WeightedForm, scores.WEIGHTED_FORMS),
    "Stein's sums": (stein_sums.Form, stein_sums.FORMS),
    "Stein's sums with given weights": (stein_sums.WeightedForm, stein_sums.WEIGHTED_FORMS),
    "MORE's regressions": (more_regressions.Form, more_regressions.FORMS),
    "importance sums": (importance_sums.Form, importance_sums.FORMS),
    "background log density": (background_density.Form, background_density.FORMS),
    "normal numbers": (normal_draws.NormalForm, normal_draws.NORMAL_FORMS),
    "draws of components": (normal_draws.DrawForm, normal_draws.DRAW_FORMS),
    "ring buffer": (ring_buffer.Form, ring_buffer.FORMS),
    "rows in front": (ring_buffer.FrontForm, ring_buffer.FRONT_FORMS),
    "leading rows": (ring_buffer.SearchForm, ring_buffer.SEARCH_FORMS),
    "counts of rows": (ring_buffer.CountForm, ring_buffer.COUNT_FORMS),
    "one slot": (slots.Form, slots.FORMS),
    "search on a line": (interval_search.Form, interval_search.FORMS),
    "trust region": (trust_region.Form, trust_region.FORMS),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_each_form_once_and_a_last_resort(name: str) -> None:
    forms, table = TABLES[name]
    listed = [form for form, _ in table]
    assert sorted(listed) == sorted(literals(forms))
    assert table[-1][1] is otherwise


def test_every_operation_that_is_run_here_has_a_table() -> None:
    assert set(OPERATIONS) - {"mixture log density"} <= set(TABLES)
