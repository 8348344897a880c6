"""`fit_many`: the same model fitted to many data sets, its programs compiled once."""

import multiprocessing
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import Any, NamedTuple

from natmix.checks import as_int
from natmix.engine.fits_progress import FitsProgress
from natmix.fit import fit
from natmix.models import AbstractModel
from natmix.models.given import Given
from natmix.models.pymc import PymcModel
from natmix.models.stan import StanModel
from natmix.result.many_results import ManyResults
from natmix.result.result import Result
from natmix.targets import AbstractTarget, TargetError

_DATA = ("data", "model_args")


def fit_many(
    model: Any,
    datasets: Iterable[Any],
    *,
    seed: int | Sequence[int] = 0,
    executor: Executor | None = None,
    progress: bool | None = None,
    **arguments: Any,
) -> ManyResults:
    """Fit the same model to many data sets.

    Fits to data of the same shapes share their compiled programs, so only the first one is slow. A fit that
    raises an error does not end the others.

    Args:
        model: as for `fit`: a NumPyro or PyMC model, a Stan program, or a function ``f(x, data)``.
        datasets: one item for each fit. For a NumPyro model a tuple of its arguments or a dictionary of its
            keyword arguments; for a Stan program its data; for a PyMC model a dictionary of values for its
            ``pymc.Data`` by name; for a function whatever it takes as ``data``.
        seed: of the first fit, the following ones have the next numbers; or one for each fit.
        executor: to run the fits on: any `concurrent.futures.Executor`, such as a process pool that spawns,
            ``client.get_executor()`` of Dask, or ``MPIPoolExecutor`` of mpi4py. Model, data, arguments and
            results travel by pickle. One fit after another in this process if left out.
        progress: show a live line that counts the fits; only on a terminal and in a notebook if left out.
        **arguments: of every fit, as for `fit`.

    Returns:
        A list of `Result`; printed, a table of verdicts.

    Raises:
        ValueError: an argument cannot be used.
    """
    if isinstance(datasets, (str, bytes, Mapping)) or not isinstance(datasets, Iterable):
        raise ValueError(
            f"datasets must be a list with one data set for each fit, got {type(datasets).__name__}."
        )
    items = list(datasets)
    _check_arguments(arguments)
    seeds = _seeds(seed, len(items))
    tasks = [_Task(model, item, s, arguments) for item, s in zip(items, seeds, strict=True)]
    for i, item in enumerate(items):
        _check_item(model, item, i, arguments)
    outcomes: list[_Outcome] = []
    with FitsProgress("fit_many", len(tasks), progress) as shown:
        for outcome in map(_run, tasks) if executor is None else _on(executor, tasks):
            outcomes.append(outcome)
            shown.done(len(outcomes), sum(o.error is not None for o in outcomes))
    return ManyResults(
        [o.result for o in outcomes],
        seeds,
        [o.seconds for o in outcomes],
        {i: o.error for i, o in enumerate(outcomes) if o.error is not None},
    )


class _Task(NamedTuple):
    model: Any
    data: Any
    seed: int
    arguments: dict[str, Any]


class _Outcome(NamedTuple):
    result: Result | None
    error: Exception | None
    seconds: float


def _run(task: _Task) -> _Outcome:
    """One fit, in this process or in another one."""
    start = time.perf_counter()
    try:
        target, given = _with_data(task.model, task.data, task.arguments)
        result: Result | None = fit(target, seed=task.seed, progress=False, **given)
        error = None
    except Exception as raised:
        result, error = getattr(raised, "result", None), _plain(raised)
    return _Outcome(result, error, time.perf_counter() - start)


def _plain(error: Exception) -> Exception:
    """The error without what cannot travel: the result is kept beside it."""
    if isinstance(error, TargetError):
        return TargetError(str(error), error.evaluations)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


# What a data set is -----------------------------------------------------------------------------


def _is_function(model: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether the model is a function of a point and data, not one of NumPyro's."""
    named = any(arguments.get(name) is not None for name in ("dim", "position", "bounds"))
    return callable(model) and named


def _with_data(model: Any, data: Any, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Target and arguments of one fit."""
    if PymcModel.recognises(Given(model)):
        return PymcModel.with_data(model, data), arguments
    if _is_function(model, arguments):
        return model, {**arguments, "data": data}
    if isinstance(data, Mapping) or StanModel.recognises(Given(model)):
        common = arguments.get("model_kwargs") or {}
        both = {**common, **data} if isinstance(data, Mapping) else data
        return model, {**arguments, "model_kwargs": both}
    return model, {**arguments, "model_args": tuple(data)}


def _check_item(model: Any, data: Any, place: int, arguments: Mapping[str, Any]) -> None:
    if isinstance(model, (AbstractModel, AbstractTarget)):
        raise ValueError(
            f"A {type(model).__name__} has its data: "
            "give fit_many the model itself, or a function f(x, data)."
        )
    if PymcModel.recognises(Given(model)):
        if not isinstance(data, Mapping):
            raise ValueError(
                f"A data set of a PyMC model is a dictionary of values for its pymc.Data by name, got "
                f"{type(data).__name__} at {place}."
            )
    elif not _is_function(model, arguments) and not isinstance(data, (tuple, list, Mapping)):
        kind = type(data).__name__
        raise ValueError(
            f"A data set of a model is a tuple of its arguments or a dictionary by name, got {kind} at "
            f"{place}; for a function f(x, data) give dim, position or bounds."
        )


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    for name in _DATA:
        if arguments.get(name) is not None:
            raise ValueError(f"fit_many gets the data as datasets: leave {name} out.")
    if "target" in arguments:
        raise ValueError("fit_many gets the target as its first argument: leave target out.")


def _seeds(seed: int | Sequence[int], number: int) -> list[int]:
    if isinstance(seed, Sequence) and not isinstance(seed, str):
        if len(seed) != number:
            raise ValueError(f"There must be one seed for each of {number} data sets, got {len(seed)}.")
        return [as_int(s, "seed", 0) for s in seed]
    first = as_int(seed, "seed", 0)
    return list(range(first, first + number))


# Elsewhere --------------------------------------------------------------------------------------


def _on(executor: Executor, tasks: list[_Task]) -> Iterator[_Outcome]:
    """All fits on an executor; a process that dies or code that cannot travel ends all of them."""
    if not callable(getattr(executor, "submit", None)):
        raise ValueError(f"executor must be a concurrent.futures.Executor, got {type(executor).__name__}.")
    _check_start(executor)
    futures: list[Future] = []
    try:
        futures.extend(executor.submit(_run, task) for task in tasks)
        yield from map(_outcome, futures)
    finally:
        for future in futures:
            future.cancel()


def _outcome(future: Future) -> _Outcome:
    try:
        found: _Outcome = future.result()
    except BrokenExecutor as error:
        raise RuntimeError(
            "A process of the executor ended before its fit did: a script that starts processes needs "
            "`if __name__ == '__main__':` around its calls, and every process needs memory for a fit."
        ) from error
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"Model, data, arguments and results travel to an executor by pickle, which failed ({error}): "
            "define the model and functions by `def` at the top of a module."
        ) from error
    return found


def _check_start(executor: Executor) -> None:
    """Raise for processes that are forked: JAX has threads, and a fork of them hangs."""
    if not isinstance(executor, ProcessPoolExecutor):
        return
    context = getattr(executor, "_mp_context", None)
    method = context.get_start_method() if context is not None else multiprocessing.get_start_method()
    if method == "fork":
        raise ValueError(
            "A process pool that forks hangs with JAX: make it by "
            "ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))."
        )
