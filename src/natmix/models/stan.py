"""A Stan program with its data."""

import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.models import stan_backends
from natmix.models.base import AbstractModel, Points, PriorRegion
from natmix.models.given import Given
from natmix.models.holders import holds_stan_program, stan_program
from natmix.targets import HostTarget
from natmix.text.suggestions import meant

_LOG_LIK = "log_lik"
_TRIES = 100
_RADIUS = 2.0
"""Stan initialises its samplers within this distance of zero, in unconstrained coordinates."""


class StanModel(AbstractModel):
    """The posterior of a Stan program given data, on Stan's unconstrained space, with Stan's gradients.

    It is compiled to C++ (about a minute, once: the result is kept, by the program's code) by BridgeStan
    where that is installed with the sources of Stan, otherwise by what the package httpstan brings along.
    Points are evaluated in parallel threads, which changes no bit. Log densities hold all constants, those
    that ``~`` may drop too, so that the evidence is right, if all parameters have priors
    (``~ uniform(0, 2)``: bounds alone do not integrate to one). A point that the program rejects
    has density zero. Variables of size zero are left out.

    Args:
        program: the code, or the path of a ``.stan`` file.
        data: numbers and arrays by name, or the path of a JSON file; a Stan tuple is a Python tuple.
        observed: names of the data that are observations, for `Result.to_arviz`; all arrays if left out.
        seed: for random numbers of the block ``transformed data``.
        backend: ``"bridgestan"`` or ``"httpstan"``; the best one installed if left out.

    Attributes:
        build_seconds: that compiling took just now; 0 if the program had been compiled before.
    """

    @classmethod
    def recognises(cls, given: Given) -> bool:
        """The code of a Stan program, or the path of one, or a `posteriordb.Posterior`."""
        return stan_backends.is_program(given.target) or holds_stan_program(given.target)

    @classmethod
    def from_given(cls, given: Given) -> Self:
        """With its data as ``model_kwargs``; a `posteriordb.Posterior` has its own."""
        if holds_stan_program(given.target):
            given.leave_out_all("posterior of posteriordb")
            return cls(*stan_program(given.target))
        if given.names("model_args", "position", "bounds"):
            raise ValueError(
                "A Stan program takes its data as model_kwargs; leave model_args, position and bounds out."
            )
        return cls(given.target, given.model_kwargs)

    def __init__(
        self,
        program: "str | os.PathLike[str]",
        data: "Mapping[str, Any] | str | os.PathLike[str] | None" = None,
        *,
        observed: Sequence[str] | None = None,
        seed: int = 0,
        backend: str | None = None,
    ) -> None:
        self._given = (program, data, observed, seed, backend)
        given = stan_backends.as_data(data)
        self.observed = _observed(given.values, observed)
        self._backend = stan_backends.load(stan_backends.Program.read(program), given, seed, backend)
        self.build_seconds = self._backend.compile_seconds
        self.dim = self._backend.dim
        if self.dim == 0:
            raise ValueError("The Stan program has no parameters: there is nothing to infer.")
        self.coordinates = stan_backends.labels(self._backend)
        self.first_index = 1
        self.latent = stan_backends.variables(self._backend.coordinates)
        self.variables = stan_backends.variables(self._backend.names)
        self._outputs = stan_backends.Outputs(self._backend.names)
        self._check_density()

    def __reduce__(self) -> tuple[Any, ...]:
        return _stan_model, self._given

    def _check_density(self) -> None:
        """Raise if the program rejects all points where Stan would initialise."""
        rng = np.random.default_rng(0)
        for radius in (0.0, *[_RADIUS] * _TRIES):
            if np.isfinite(self._backend.values(rng.uniform(-radius, radius, (1, self.dim)))[0]):
                return
        why = self._backend.rejection
        raise ValueError(
            f"The Stan program has no finite log density at any of {_TRIES + 1} points within {_RADIUS:g} of "
            f"zero, in unconstrained coordinates{f': {stan_backends.stan_reason(why)}' if why else '.'}"
        )

    def target(self) -> HostTarget:
        """The log density and its gradient, outside JAX."""
        return _StanTarget(
            fn=self._with_gradients,
            dim=self.dim,
            batched=True,
            returns_gradient=True,
            alone=self._values,
        )

    def _with_gradients(self, x: Float[np.ndarray, "N D"]) -> tuple[np.ndarray, np.ndarray]:
        return self._backend.with_gradients(x)

    def _values(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        return self._backend.values(x)

    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        """Of a concrete point: JAX cannot trace Stan."""
        value: Any = self._backend.values(np.asarray(x, float)[None]).reshape(())
        return value

    def constrain(self, x: Points) -> dict[str, np.ndarray]:
        """Parameters, transformed parameters and generated quantities under Stan's names.

        Random numbers in generated quantities are new for every sample, and the same for the same samples.
        """
        points = np.array(x, np.float64)
        return self._outputs.arrays(self._backend.constrain(points, zlib.crc32(points.tobytes())))

    @property
    def likelihood_outputs(self) -> tuple[str, ...]:
        return (_LOG_LIK,) if _LOG_LIK in self.variables else ()

    def log_likelihood(self, x: Points) -> dict[str, np.ndarray]:
        """The generated quantity ``log_lik``, samples first."""
        if _LOG_LIK not in self.variables:
            raise ValueError(
                "The Stan program does not give the log likelihood of its observations: compute it as "
                f"`vector[N] {_LOG_LIK};` in the block 'generated quantities'."
            )
        return {_LOG_LIK: self.constrain(x)[_LOG_LIK]}

    def unconstrain(self, values: Any) -> Points:
        """Not available: httpstan does not expose Stan's transformation."""
        raise ValueError(
            "Variables of a Stan program by name cannot be turned into vectors here: give an array "
            f"[N, {self.dim}] in Stan's unconstrained coordinates, as by BridgeStan's param_unconstrain."
        )

    def start(self, key: PRNGKey) -> PriorRegion | None:
        """Around zero with standard deviation 1, much as Stan initialises."""
        return PriorRegion(np.zeros(self.dim), np.ones(self.dim))

    def predict(
        self, seed: int, samples: dict[str, np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        """Stan predicts by generated quantities."""
        raise ValueError("Write predictions into the block 'generated quantities': sample() gives them.")


class _StanTarget(HostTarget):
    """Values alone cost less than half of what they cost with gradients."""

    alone: Callable[[np.ndarray], np.ndarray] = eqx.field(static=True, kw_only=True)

    def call(self, points: np.ndarray, needs_gradient: bool) -> tuple[np.ndarray, np.ndarray | None]:
        if needs_gradient:
            return super().call(points, True)
        return HostTarget(fn=self.alone, dim=self.dim, batched=True).call(points, False)


def _stan_model(program: Any, data: Any, observed: Any, seed: int, backend: Any) -> StanModel:
    return StanModel(program, data, observed=observed, seed=seed, backend=backend)


def _observed(values: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, np.ndarray]:
    if names is None:
        return {name: v for name, v in values.items() if isinstance(v, np.ndarray) and v.ndim}
    if isinstance(names, str):
        names = (names,)
    for name in names:
        if name not in values:
            raise ValueError(
                f"observed names {name!r}, but the data are {', '.join(values) or 'none'}."
                f"{meant(name, values)}"
            )
    return {name: np.asarray(values[name]) for name in names}
