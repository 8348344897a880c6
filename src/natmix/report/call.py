"""The call of `natmix.fit` that repeats a fit, as far as its result knows it."""

import ast
import inspect
import pprint
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from natmix.diagnostics.diagnosis import ENDED_EARLY
from natmix.gmmvi import GMMVI
from natmix.modules.codenames import MODULES

if TYPE_CHECKING:
    from natmix.result.result import Result

_ALWAYS = ("sample_selector", "component_adaptation")
"""Modules whose defaults in a fit depend on the target: everything is written down."""
_REGION = ("init_mean", "init_scale", "init_covariance", "box")
_USUAL_REGION = {"init_mean": 0.0, "init_scale": 1.0, "init_covariance": None, "box": None}
_LIMITS = (
    "max_iterations",
    "max_evaluations",
    "max_seconds",
    "tolerance",
    "accuracy",
    "elbo_samples",
    "verify",
)
_BY_KIND = {
    "NumpyroModel": ("model", ("model_args", "model_kwargs")),
    "PymcModel": ("model", ()),
    "StanModel": ("program", ("model_kwargs",)),
    "PytreeModel": ("log_density", ("position", "bounds")),
}
"""What a target is called in the code, and the arguments that belong to it, by the class of the model."""

_WIDTH = 90
_BY_THE_CLOCK = ("max_seconds", "callback", "interrupted")


class RepeatedCall(NamedTuple):
    """Code that repeats a fit.

    Attributes:
        code: Python.
        unknown: what it needs that a result does not hold, a sentence each.
    """

    code: str
    unknown: tuple[str, ...]


def repeated_call(result: "Result") -> RepeatedCall:
    """The call with the settings of this result."""
    settings = result.settings
    if "combined" in settings or "algorithm" not in settings:
        return RepeatedCall(
            "",
            ("This mixture was put together from several fits: natmix.combine([...]) with their results.",),
        )
    kind = None if result.model is None else getattr(result.model, "kind", "")
    target, its_arguments = _BY_KIND.get(kind or "", ("model" if kind else "log_density", ()))
    unknown = [
        f"{', '.join((target, *its_arguments))}: as the fit had them; a report holds no code and no data."
    ]
    arguments = [target]
    if kind is None:
        arguments.append(f"dim={settings['dim']}")
    arguments += [f"{name}={name}" for name in its_arguments]
    arguments.append(f"seed={settings['seed']}")
    arguments += _start(settings, unknown)
    arguments += _computation(settings, unknown)
    arguments += _ending(settings)
    arguments += _algorithm(settings["algorithm"])
    if result.stopped in _BY_THE_CLOCK:
        unknown.append(f"The fit {ENDED_EARLY[result.stopped]}: where it ends again depends on the clock.")
    double = settings.get("dtype") == "float64"
    lines = [
        *(["import jax", ""] if double else []),
        "import natmix",
        "",
        *(['jax.config.update("jax_enable_x64", True)', ""] if double else []),
        "result = natmix.fit(",
        *(line for argument in arguments for line in _lines(argument)),
        ")",
    ]
    return RepeatedCall("\n".join(lines), tuple(unknown))


def _lines(argument: str) -> list[str]:
    """An argument of the call, its value on several lines if it is long."""
    if len(argument) <= _WIDTH:
        return [f"    {argument},"]
    name, _, value = argument.partition("=")
    written = pprint.pformat(ast.literal_eval(value), width=_WIDTH, sort_dicts=False).splitlines()
    indented = [written[0], *("    " + " " * (len(name) + 1) + line for line in written[1:])]
    return (
        [f"    {name}={indented[0]}", *indented[1:-1], f"{indented[-1]},"]
        if len(written) > 1
        else [f"    {argument},"]
    )


def _start(settings: dict[str, Any], unknown: list[str]) -> list[str]:
    found = []
    region = {name: settings.get(name) for name in _REGION}
    if region != _USUAL_REGION:
        found += [f"{name}={value!r}" for name, value in region.items() if value is not None]
    if settings.get("init_mixture"):
        unknown.append("init_mixture: the mixture that was given.")
        return [*found, "init_mixture=init_mixture"]
    given = settings.get("init_draws")
    if given:
        about = f", whose SHA-256 as float64 vectors is {given['sha256']}" if "sha256" in given else ""
        unknown.append(f"init_draws: the draws that were given{about}.")
        return [*found, "init_draws=init_draws"]
    method = settings.get("start", "region")
    found.append(f"start={method!r}")
    if method == "region":
        found.append(f"init_components={settings['init_components']}")
    else:
        unknown.append(f"init_components, if it was given: {method} found {settings['init_components']}.")
    return found


def _computation(settings: dict[str, Any], unknown: list[str]) -> list[str]:
    if settings.get("devices", 1) > 1:
        unknown.append(f"mesh: the {settings['devices']} devices of the fit.")
    found = [f"dtype={settings['dtype']!r}"]
    return found if settings["covariance"] == "full" else [f"covariance={settings['covariance']!r}", *found]


def _ending(settings: dict[str, Any]) -> list[str]:
    from natmix.fit import fit

    usual = inspect.signature(fit).parameters
    found = [
        f"{name}={settings[name]!r}"
        for name in _LIMITS
        if name in settings and settings[name] != usual[name].default
    ]
    if settings.get("accuracy") is None:
        return found
    steps = settings.get("more_samples") or []
    return [*found, f"more_samples={[_shorter(step) for step in steps]!r}"]


def _algorithm(algorithm: dict[str, Any]) -> list[str]:
    codename = algorithm["codename"]
    usual = GMMVI.from_codename(codename).settings()
    found = [f"algorithm={codename.lower()!r}"]
    for name in ("temperature", "zero_penalty"):
        if not _same(algorithm[name], usual[name]):
            found.append(f"{name}={_number(algorithm[name])!r}")
    for module in MODULES:
        values = {k: v for k, v in algorithm[module].items() if k != "option"}
        other = {
            k: _number(v) for k, v in values.items() if module in _ALWAYS or not _same(v, usual[module][k])
        }
        if other:
            found.append(f"{module}={other!r}")
    return found


def _shorter(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _shorter(v) for k, v in value.items()}
    return _number(value)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return bool(np.float32(one) == np.float32(other))
    return bool(one == other)


def _number(value: Any) -> Any:
    """A float as it was before it became single precision."""
    if isinstance(value, float) and float(np.float32(value)) == value:
        return float(str(np.float32(value)))
    return [_number(v) for v in value] if isinstance(value, (list, tuple)) else value
