"""Errors that a target may raise, and what to say of them."""

from natmix.targets.base import TargetError

FAILURES = (TargetError, RuntimeError, ValueError)
"""Errors that a target or a compiled step may raise."""


def as_target_error(error: Exception) -> TargetError:
    """The error itself, or one that says which error a compiled step raised."""
    if isinstance(error, TargetError):
        return error
    failure = TargetError(f"An iteration failed: {gist(error)}")
    failure.__cause__ = error
    return failure


def gist(error: Exception) -> str:
    """The message of an error in one line: the last line of a quoted traceback, or Equinox's message."""
    _, found, message = str(error).partition("EquinoxRuntimeError: ")
    if found:
        return message.strip().splitlines()[0]
    lines = [type(error).__name__, *str(error).strip().splitlines()]
    return lines[-1] if "Traceback" in str(error) else ": ".join(lines[:2])
