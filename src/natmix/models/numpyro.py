"""A NumPyro model: its latent variables, its transformations, its deterministics."""

from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.mixture import Mixture
from natmix.models.base import (
    AbstractModel,
    Points,
    PriorRegion,
    around,
    by_name,
    coordinate_names,
    prior_remark,
)
from natmix.models.given import Given
from natmix.models.numpyro_checks import (
    call_error,
    check_call,
    check_shapes,
    checked_arguments,
    is_numpyro_model,
)
from natmix.models.prediction import prediction_key, predictions, replicates
from natmix.targets.detection import required_arguments
from natmix.targets.function_of_data import is_real_number, numbers_as_arrays
from natmix.targets.traced import compiled_call
from natmix.text.extras import needs

_PRIOR_DRAWS = 256


class NumpyroModel(AbstractModel):
    """The posterior of a NumPyro model given its arguments.

    Args:
        model: a function with `numpyro.sample` statements.
        args: its arguments, the data among them.
        kwargs: its keyword arguments.
    """

    @classmethod
    def recognises(cls, given: Given) -> bool:
        """Anything with arguments of a model, and functions that only a model can be."""
        if given.model_args is not None or given.model_kwargs is not None:
            return True
        if given.dim is not None or not given.is_function or given.names("position", "bounds"):
            return False
        return required_arguments(given.target) == [] or is_numpyro_model(given.target)

    @classmethod
    def from_given(cls, given: Given) -> Self:
        """With the arguments of `fit` as those of the model."""
        what = "model_args and model_kwargs are for a NumPyro model"
        for name in given.names("position", "bounds"):
            raise ValueError(f"{what}, which knows its variables: leave {name} out.")
        if not callable(given.target):
            raise ValueError(f"{what}, a function, got {type(given.target).__name__}.")
        return cls(given.target, () if given.model_args is None else given.model_args, given.model_kwargs)

    def __init__(
        self, model: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> None:
        numpyro = _numpyro()
        self._args, self._kwargs = checked_arguments(args, kwargs)
        check_call(model, self._args, self._kwargs)
        self._model = model
        key = jax.random.key(0)
        # Initial values from the support, as the prior may be improper.
        seeded = numpyro.handlers.seed(model, key)
        anywhere = numpyro.handlers.substitute(seeded, substitute_fn=numpyro.infer.init_to_uniform)
        try:
            trace = numpyro.handlers.trace(anywhere).get_trace(*self._args, **self._kwargs)
        except Exception as error:
            raise call_error(error) from error
        sites = {name: site for name, site in trace.items() if site["type"] == "sample"}
        self.latent = tuple(name for name, site in sites.items() if not site["is_observed"])
        kinds = ("sample", "deterministic")
        self.variables = tuple(name for name, site in trace.items() if site["type"] in kinds)
        given = {name: np.asarray(s["value"]) for name, s in sites.items() if s["is_observed"]}
        # A factor is observed too, and its value is empty.
        self.observed = {name: value for name, value in given.items() if value.size}
        self.dims = _plates(trace)
        self._check(trace)
        check_shapes(sites)
        if not given:
            self.remark = prior_remark(self.latent)
        self._sites = sites
        try:
            info = numpyro.infer.util.initialize_model(
                key,
                model,
                dynamic_args=True,
                model_args=self._args,
                model_kwargs=self._kwargs,
                validate_grad=False,
            )
        except RuntimeError as error:
            raise ValueError(f"NumPyro finds no point with a finite log density: {self._hint()}") from error
        z = {name: jnp.asarray(info.param_info.z[name]) for name in sorted(info.param_info.z)}
        flat, self._unravel = ravel_pytree(z)
        self._potential, self._finished = info.potential_fn, info.postprocess_fn
        self._dtype = flat.dtype
        self.dim = int(flat.size)
        self.coordinates = tuple(c for name, value in z.items() for c in coordinate_names(name, value.shape))
        self._takes_numbers = self._traces_with_numbers()

    def _traces_with_numbers(self) -> bool:
        """Whether real numbers among the arguments may be unknown while the model is traced."""
        self._takes_numbers = True
        if not any(map(is_real_number, jax.tree.leaves((self._args, self._kwargs)))):
            return False
        try:
            jax.eval_shape(self.log_density, jax.ShapeDtypeStruct((self.dim,), self._dtype))
        except Exception:  # the model decides by them what it does
            return False
        return True

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Of the model, while it is traced: its numbers are data of the program, like its arrays."""
        given = (self._args, self._kwargs)
        return numbers_as_arrays(given) if self._takes_numbers else given

    def __reduce__(self) -> tuple[Any, ...]:
        return NumpyroModel, (self._model, self._args, self._kwargs)

    def _check(self, trace: dict[str, Any]) -> None:
        if not self.latent:
            raise ValueError("The model has no latent variable: there is nothing to infer.")
        for name in self.latent:
            if trace[name]["fn"].support.is_discrete:
                marked = "enumerate" in (trace[name].get("infer") or {})
                raise ValueError(
                    f"The model's variable {name!r} is discrete, which a Gaussian mixture cannot represent"
                    f"{', and natmix does not enumerate' if marked else ''}: sum it "
                    "out, for example by numpyro.distributions.MixtureSameFamily or a logsumexp."
                )

    def _hint(self) -> str:
        for name, value in self.observed.items():
            if not np.all(np.isfinite(np.asarray(value, float))):
                return f"the data {name!r} hold NaN or infinity."
        return "do the data lie in the supports of their distributions?"

    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        args, kwargs = self._arguments()
        return -self._potential(*args, **kwargs)(self._one(x))

    def _one(self, x: Float[Array, " D"]) -> dict[str, Array]:
        return self._unravel(x.astype(self._dtype))

    def free(self, x: Points) -> dict[str, np.ndarray]:
        """Latent variables by name, unconstrained: ``init_params`` of NumPyro's MCMC."""
        return {name: np.asarray(v) for name, v in jax.vmap(self._one)(jnp.asarray(x)).items()}

    def constrain(self, x: Points) -> dict[str, np.ndarray]:
        """Latent variables and deterministics under the model's names."""
        finished = self._finished(*self._args, **self._kwargs)
        values = jax.vmap(lambda row: finished(self._one(row)))(jnp.asarray(x))
        given = [name for name in values if name in self._sites and name not in self.latent]
        return {name: np.asarray(value) for name, value in values.items() if name not in given}

    def unconstrain(self, values: dict[str, Any]) -> Points:
        """Unconstrained vectors of latent variables by name; others are ignored."""
        _numpyro()
        from numpyro.infer.util import unconstrain_fn

        found = by_name(values, self.latent)

        def vector(latent: dict[str, Array]) -> Float[Array, " D"]:
            free = unconstrain_fn(self._model, self._args, self._kwargs, latent)
            return ravel_pytree({name: free[name] for name in sorted(free)})[0]

        return jax.vmap(vector)({name: jnp.asarray(value) for name, value in found.items()})

    def start(self, key: PRNGKey) -> PriorRegion | None:
        """The prior's median and width in unconstrained coordinates; None for an improper prior."""
        numpyro = _numpyro()
        from numpyro.infer.util import unconstrain_fn

        def draw(key: PRNGKey) -> Float[Array, " D"]:
            with numpyro.handlers.seed(rng_seed=key):
                args, kwargs = self._arguments()
                trace = numpyro.handlers.trace(self._model).get_trace(*args, **kwargs)
            values = {name: trace[name]["value"] for name in self.latent}
            free = unconstrain_fn(self._model, args, kwargs, values)
            return ravel_pytree({name: free[name] for name in sorted(free)})[0]

        try:
            draws = np.asarray(compiled_call(jax.vmap(draw), jax.random.split(key, _PRIOR_DRAWS)), float)
        except NotImplementedError:  # an improper prior
            return None
        return around(draws)

    def predict(
        self, seed: int, samples: dict[str, np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        """Posterior predictive samples and deterministics, for arguments without the data.

        Without arguments the observed variables are drawn with the arguments of the fit.
        """
        _numpyro()
        key = prediction_key(seed)
        latent = {name: samples[name] for name in self.latent}
        if args or kwargs:
            return predictions(self._model, key, latent, args, kwargs)
        return replicates(self._model, tuple(self.observed), key, latent, self._args, self._kwargs)

    def log_likelihood(self, x: Points) -> dict[str, np.ndarray]:
        """The log likelihood of each observation, samples first."""
        _numpyro()
        from numpyro.infer import log_likelihood

        values = self.constrain(x)
        latent = {name: values[name] for name in self.latent}
        found = log_likelihood(self._model, latent, *self._args, **self._kwargs)
        return {name: np.asarray(found[name]) for name in self.observed}

    def guide(self, mixture: Mixture) -> Callable[..., Any]:
        """The mixture as a guide, which draws all latent variables as one vector."""
        numpyro = _numpyro()
        dist = numpyro.distributions
        self._check_supports(mixture)
        over = mixture.to_numpyro()

        def guide(*args: Any, **kwargs: Any) -> dict[str, Any]:
            vector = numpyro.sample("_natmix", over, infer={"is_auxiliary": True})
            out = {}
            for name, free in self._one(vector).items():
                support = self._sites[name]["fn"].support
                transform = dist.transforms.biject_to(support)
                value = transform(free)
                log_density = transform.inv.log_abs_det_jacobian(value, free)
                inner = jnp.ndim(log_density) - (jnp.ndim(value) - support.event_dim)
                log_density = jnp.sum(log_density, axis=tuple(range(-inner, 0)))
                delta = dist.Delta(value, log_density=log_density, event_dim=support.event_dim)
                out[name] = numpyro.sample(name, delta)
            return out

        return guide

    def _check_supports(self, mixture: Mixture) -> None:
        """Raise if a support depends on other variables: the guide's transformations are fixed."""
        biject_to = _numpyro().distributions.transforms.biject_to
        x = mixture.sample(8, key=0)
        right = self.constrain(x)
        for name, free in jax.vmap(self._one)(x).items():
            value = jax.vmap(biject_to(self._sites[name]["fn"].support))(free)
            if not np.allclose(value, right[name], rtol=1e-3):
                raise ValueError(
                    f"The support of the variable {name!r} depends on other variables, which a guide cannot "
                    "express: write it as a fixed one, scaled by a numpyro.deterministic."
                )


def _plates(trace: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Axes named by the plates they belong to; the others as ArviZ names them."""
    dims = {}
    for name, site in trace.items():
        if site["type"] not in ("sample", "deterministic") or not site.get("cond_indep_stack"):
            continue
        shape = np.shape(site["value"])
        frames = {f.dim: f for f in site["cond_indep_stack"]}
        inner = 0 if site["type"] == "deterministic" else site["fn"].event_dim
        if site["type"] == "deterministic" and len(shape) != -min(frames):
            continue  # it is not known which of its axes belong to the plates
        axes = [f"{name}_dim_{i}" for i in range(len(shape))]
        for place, frame in frames.items():
            axis = len(shape) - inner + place
            if axis >= 0 and shape[axis] == frame.size:
                axes[axis] = frame.name
        dims[name] = tuple(axes)
    return dims


def _numpyro() -> Any:
    with needs("NumPyro", "numpyro", "A NumPyro model"):
        import numpyro
        import numpyro.infer
    return numpyro
