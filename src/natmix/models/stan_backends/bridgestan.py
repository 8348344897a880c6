"""Stan by BridgeStan."""

from typing import Any

import numpy as np
from jaxtyping import Float

from natmix.models.stan_backends.backend import AbstractBackend
from natmix.models.stan_backends.cache import cached_file
from natmix.models.stan_backends.compiling import shown_compiling
from natmix.models.stan_backends.data import Data
from natmix.models.stan_backends.errors import compiler_reason, data_error
from natmix.models.stan_backends.program import Program


class BridgeStanBackend(AbstractBackend):
    """`bridgestan.StanModel`, point by point."""

    def __init__(self, program: Program, data: Data, seed: int) -> None:
        import bridgestan

        file = program.path
        if file is None or "#include" not in program.code:
            file = cached_file(program.code.encode(), "program.stan")
        options = [f"--include-paths={file.parent}", f"--filename-in-msg={(program.path or file).name}"]
        try:
            with shown_compiling():
                library = bridgestan.compile_model(file, stanc_args=options)
        except FileNotFoundError as error:
            raise RuntimeError(f"BridgeStan compiles by make and a C++ compiler: {error}.") from error
        except RuntimeError as error:
            raise ValueError(f"The Stan program does not compile: {compiler_reason(str(error))}") from error
        try:
            self._model: Any = bridgestan.StanModel(library, data=data.json, seed=seed, warn=False)
        except RuntimeError as error:
            raise data_error(str(error)) from error
        self.dim = int(self._model.param_unc_num())
        self.coordinates = tuple(self._model.param_unc_names())
        self.names = tuple(self._model.param_names(include_tp=True, include_gq=True))

    def values(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        return np.array([self._value(row) for row in x]).reshape(len(x))

    def _value(self, row: Float[np.ndarray, " D"]) -> float:
        try:
            return float(self._model.log_density(row, propto=False, jacobian=True))
        except RuntimeError as error:
            self.rejection = str(error)
            return -np.inf

    def with_gradients(
        self, x: Float[np.ndarray, "N D"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N D"]]:
        values, gradients = np.empty(len(x)), np.zeros(x.shape)
        for i, row in enumerate(x):
            try:
                values[i], gradients[i] = self._model.log_density_gradient(row, propto=False, jacobian=True)
            except RuntimeError as error:
                self.rejection = str(error)
                values[i] = -np.inf
        return values, gradients

    def constrain(self, x: Float[np.ndarray, "N D"], seed: int) -> Float[np.ndarray, "N M"]:
        rng = self._model.new_rng(seed)
        rows = [self._model.param_constrain(row, include_tp=True, include_gq=True, rng=rng) for row in x]
        return np.array(rows).reshape(len(x), len(self.names))
