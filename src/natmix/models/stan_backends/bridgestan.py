"""Stan by BridgeStan."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from natmix.kernels.plan import usable_cores
from natmix.models.stan_backends.backend import AbstractBackend
from natmix.models.stan_backends.cache import cached_file, record
from natmix.models.stan_backends.compiling import Compilation
from natmix.models.stan_backends.data import Data
from natmix.models.stan_backends.errors import compiler_reason, data_error
from natmix.models.stan_backends.program import Program

_WORTH_THREADS = 1e-3
"""Seconds of work that starting threads is worth."""


class BridgeStanBackend(AbstractBackend):
    """`bridgestan.StanModel`, point by point, many points in threads."""

    def __init__(self, program: Program, data: Data, seed: int) -> None:
        import bridgestan

        file = program.path
        if file is None or "#include" not in program.code:
            file = cached_file(program.code.encode(), "program.stan", "threads")
        options = [f"--include-paths={file.parent}", f"--filename-in-msg={(program.path or file).name}"]
        try:
            with Compilation((program.path or file).name) as compilation:
                library = bridgestan.compile_model(file, stanc_args=options, make_args=["STAN_THREADS=True"])
        except FileNotFoundError as error:
            raise RuntimeError(f"BridgeStan compiles by make and a C++ compiler: {error}.") from error
        except RuntimeError as error:
            raise ValueError(f"The Stan program does not compile: {compiler_reason(str(error))}") from error
        if file != program.path:
            record(Path(library))
        try:
            self._model: Any = bridgestan.StanModel(library, data=data.json, seed=seed, warn=False)
        except RuntimeError as error:
            raise data_error(str(error)) from error
        self.compile_seconds = compilation.seconds
        # A library that was compiled without it beforehand, beside its program, is not compiled again.
        self._threads = "STAN_THREADS=true" in self._model.model_info()
        self.dim = int(self._model.param_unc_num())
        self.coordinates = tuple(self._model.param_unc_names())
        self.names = tuple(self._model.param_names(include_tp=True, include_gq=True))

    def values(self, x: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        values = np.empty(len(x))

        def evaluate(i: int) -> None:
            values[i] = self._model.log_density(x[i], propto=False, jacobian=True)

        self._each(evaluate, values)
        return values

    def with_gradients(
        self, x: Float[np.ndarray, "N D"]
    ) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N D"]]:
        values, gradients = np.empty(len(x)), np.zeros(x.shape)

        def evaluate(i: int) -> None:
            values[i], gradients[i] = self._model.log_density_gradient(x[i], propto=False, jacobian=True)

        self._each(evaluate, values)
        return values, gradients

    def _each(self, evaluate: Callable[[int], None], values: Float[np.ndarray, " N"]) -> None:
        """Evaluate every point, in threads if that is worth it; -inf where the program rejects."""
        reasons: dict[int, str] = {}

        def some(points: Iterable[int]) -> None:
            for i in points:
                try:
                    evaluate(i)
                except RuntimeError as error:
                    values[i], reasons[i] = -np.inf, str(error)

        n, start = len(values), time.perf_counter()
        some(range(min(n, 1)))
        threads = usable_cores() if self._threads else 1
        if threads > 1 and (n - 1) * (time.perf_counter() - start) > _WORTH_THREADS:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(some, (range(1 + k, n, threads) for k in range(threads))))
        else:
            some(range(1, n))
        if reasons:
            self.rejection = reasons[max(reasons)]

    def constrain(self, x: Float[np.ndarray, "N D"], seed: int) -> Float[np.ndarray, "N M"]:
        rng = self._model.new_rng(seed)
        rows = [self._model.param_constrain(row, include_tp=True, include_gq=True, rng=rng) for row in x]
        return np.array(rows).reshape(len(x), len(self.names))
