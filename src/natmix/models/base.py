"""The interface of a model."""

import abc
import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np
from jaxtyping import Array, Float

from natmix.array_types import PRNGKey, Scalar
from natmix.mixture import Mixture
from natmix.models.given import Given
from natmix.models.structure import encoded, leaf_name

Points = Float[Array, "N D"] | Float[np.ndarray, "N D"]

MAX_SCALE = 1e3
"""The initial region of a wider prior, in unconstrained coordinates, is cut to this scale."""


class PriorRegion(NamedTuple):
    """Where the prior has its mass: the default initial region, in unconstrained coordinates."""

    mean: Float[np.ndarray, " D"]
    scale: Float[np.ndarray, " D"]


def around(draws: Float[np.ndarray, "N D"]) -> PriorRegion:
    """The region of prior draws, by quartiles: heavy tails have no useful standard deviation."""
    low, middle, high = np.quantile(np.where(np.isfinite(draws), draws, 0), [0.25, 0.5, 0.75], axis=0)
    return PriorRegion(middle, np.clip((high - low) / 1.349, 1e-3, MAX_SCALE))


class ModelFile(NamedTuple):
    """What a file keeps of a model.

    Attributes:
        header: plain data for JSON, with ``kind``, the name of the model's class, and ``coordinates``.
        arrays: numbers, in groups.
    """

    header: dict[str, Any]
    arrays: dict[str, list[np.ndarray]]


class AbstractModel(abc.ABC):
    """A density of named variables as a density of unconstrained vectors.

    A subclass is a front end if `recognises` and `from_given` tell how `natmix.fit` gets it from what the
    user gives, and `natmix.models.register` or an entry point of the group ``natmix.models`` names it.

    Attributes:
        takes_dim: whether `fit` may be told ``dim`` beside what the model is made of.
        dim: the length of the vector.
        coordinates: the names of its entries, such as ``theta[3]`` (of the unconstrained variable).
        latent: names of the latent variables; `constrain` may return deterministic ones too. Empty if there
            are no others.
        observed: the model's data by name, if it knows them.
        constant: other constants by name, inputs for example, if it knows them.
        dims: names of the axes of its variables and data, without the axis of samples, if it knows them.
        coords: labels along these axes.
        first_index: the first index in the names of array entries.
        remark: a note for the user; empty for none.
        build_seconds: that compiling it outside of JAX took; ``max_seconds`` of a fit does not cover them.
    """

    takes_dim: ClassVar[bool] = False

    dim: int
    coordinates: tuple[str, ...]
    latent: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    observed: Mapping[str, np.ndarray] = MappingProxyType({})
    constant: Mapping[str, np.ndarray] = MappingProxyType({})
    dims: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    coords: Mapping[str, Any] = MappingProxyType({})
    first_index: int = 0
    remark: str = ""
    build_seconds: float = 0.0

    # Front end ----------------------------------------------------------------------------------

    @classmethod
    def recognises(cls, given: Given) -> bool:
        """Whether this is a model of this kind; nothing expensive is imported or called to find out."""
        return False

    @classmethod
    def from_given(cls, given: Given) -> Self:
        """The model, of what `recognises` has recognised."""
        raise NotImplementedError(f"{cls.__name__} is not a front end: it recognises nothing.")

    # Names --------------------------------------------------------------------------------------

    def labels(self, name: str, shape: tuple[int, ...]) -> list[str]:
        """Names of a variable's entries: ``theta[a]`` if its axis has distinct labels, otherwise indices."""
        axes = self.dims.get(name, ())
        along = [self._along(axes[i] if i < len(axes) else "", size) for i, size in enumerate(shape)]
        return [f"{name}[{','.join(at)}]" if at else name for at in itertools.product(*along)]

    def _along(self, axis: str, size: int) -> list[str]:
        found = [str(label) for label in np.ravel(self.coords.get(axis, ()))]
        usual = [str(i + self.first_index) for i in range(size)]
        return found if len(found) == size == len(set(found)) else usual

    # Density and variables ----------------------------------------------------------------------

    @abc.abstractmethod
    def log_density(self, x: Float[Array, " D"]) -> Scalar:
        """The log density of an unconstrained vector, with the Jacobian of the transformations."""

    def target(self) -> Any:
        """The target of a fit: the log density in JAX, or a target outside JAX."""
        return self.log_density

    @abc.abstractmethod
    def constrain(self, x: Points) -> Any:
        """The model's own (constrained) variables, samples first."""

    def free(self, x: Points) -> dict[str, np.ndarray]:
        """The unconstrained variables by name, samples first."""
        return dict(zip(self.coordinates, np.asarray(x).T, strict=True))

    def unconstrain(self, values: Any) -> Points:
        """Unconstrained vectors of the model's own variables, samples first: the inverse of `constrain`."""
        raise ValueError(
            f"A {type(self).__name__} cannot turn variables by name into vectors: give an array "
            f"[N, {self.dim}] in its unconstrained coordinates, {_few(self.coordinates)}."
        )

    def unconstrain_vectors(self, x: Float[np.ndarray, "*N D"]) -> Float[np.ndarray, "*N D"]:
        """Unconstrained vectors for those that `natmix.Result.sample` gives, if it gives vectors."""
        return x

    @abc.abstractmethod
    def start(self, key: PRNGKey) -> PriorRegion | None:
        """The default initial region; None if the model does not have one."""

    @property
    def likelihood_outputs(self) -> tuple[str, ...]:
        """Those of `variables` that are the log likelihood of each observation."""
        return ()

    # What some models can do --------------------------------------------------------------------

    def predict(
        self, seed: int, samples: dict[str, np.ndarray], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, np.ndarray]:
        """Posterior predictive samples; the arguments are those of the model."""
        raise ValueError("predict() needs a NumPyro or PyMC model, which can draw data.")

    def log_likelihood(self, x: Points) -> dict[str, np.ndarray]:
        """The log likelihood of each observation, samples first."""
        raise ValueError("log_likelihood needs a NumPyro, PyMC or Stan model, which knows its observations.")

    def guide(self, mixture: Mixture) -> Any:
        """The mixture as a guide of NumPyro's."""
        raise ValueError(
            "to_numpyro_guide() needs the NumPyro model that was fitted; a result from a file gets it by "
            "natmix.Result.load(path, model=model)."
        )

    # Files --------------------------------------------------------------------------------------

    def to_file(self, x: Points | None) -> ModelFile:
        """What is kept of the model: names, data, and its variables at the saved samples ``x``."""
        tree = None if x is None else self.constrain(x)
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        for name, value in self.observed.items():
            if np.asarray(value).dtype.kind not in "fiub":
                kind = np.asarray(value).dtype
                raise ValueError(f"The data {name!r} are not numbers ({kind}), and cannot be saved.")
        header = {
            "kind": self.kind,
            "coordinates": list(self.coordinates),
            "names": [leaf_name(path) for path, _ in leaves],
            "structure": encoded(tree),
            "latent": list(self.latent),
            "variables": list(self.variables),
            "observed": list(self.observed),
            "dims": {name: list(axes) for name, axes in self.dims.items()},
            "coords": {name: _as_json(values) for name, values in self.coords.items()},
            "first_index": self.first_index,
        }
        arrays = {
            "variables": [np.asarray(leaf) for _, leaf in leaves],
            "observed": [np.asarray(value) for value in self.observed.values()],
        }
        return ModelFile(header, arrays)

    @property
    def kind(self) -> str:
        """The name of the model's class, in files and messages."""
        return type(self).__name__

    @classmethod
    def from_file(cls, file: ModelFile, x: Float[np.ndarray, "N D"]) -> "AbstractModel":
        """What a file has of the model; ``x`` are the saved samples."""
        from natmix.models.saved import SavedModel

        return SavedModel(file, x)

    def with_function(self, target: Any) -> "AbstractModel | None":
        """The model of a file with its function given again; None if the function alone does not make it."""
        return None


def _as_json(labels: Any) -> list[Any]:
    """Numbers and text as they are, dates and others as text."""
    array = np.asarray(labels)
    return array.tolist() if array.dtype.kind in "iufbU" else [str(v) for v in array]


def prior_remark(latent: Sequence[str]) -> str:
    """The remark on a model without data."""
    return (
        f"The model observes nothing (latent: {', '.join(latent)}): this is its prior. "
        "Were data meant to be given?"
    )


def by_name(draws: Any, names: Sequence[str]) -> dict[str, Any]:
    """The draws of these variables, equally many of each."""
    if not isinstance(draws, Mapping):
        raise ValueError(f"Give the draws by name, as a dictionary with {_few(tuple(names))}.")
    missing = [name for name in names if name not in draws]
    if missing:
        raise ValueError(f"The draws do not have the model's variable {missing[0]!r}.")
    found = {name: draws[name] for name in names}
    check_lengths(found)
    return found


def check_lengths(draws: Mapping[str, Any]) -> None:
    """Raise unless there are equally many draws of every variable."""
    lengths = {name: np.shape(value)[:1] for name, value in draws.items()}
    (first, length), *others = lengths.items()
    for name, other in others:
        if other != length:
            raise ValueError(
                f"There must be as many draws of every variable, but {first} has {_draws(length)} and {name} "
                f"{_draws(other)}."
            )


def _draws(length: tuple[int, ...]) -> str:
    return str(length[0]) if length else "a number"


def _few(names: tuple[str, ...]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")


def coordinate_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """``name`` for a number, ``name[i,j]`` for the entries of an array."""
    if not shape:
        return [name]
    return [f"{name}[{','.join(map(str, i))}]" for i in np.ndindex(*shape)]
