"""Expected errors end in one sentence, not in a traceback."""

import contextlib
from collections.abc import Iterator

import typer

from natmix.targets import TargetError

BAD_INPUT = 2
"""The exit code."""


@contextlib.contextmanager
def one_sentence() -> Iterator[None]:
    """Print the message of an expected error and exit with `BAD_INPUT`."""
    try:
        yield
    except OSError as error:
        _leave(_about(error), error)
    except (ValueError, ImportError, TargetError) as error:
        _leave(str(error), error)


def _about(error: OSError) -> str:
    if not error.filename:
        return str(error)
    return f"{error.filename} cannot be used ({error.strerror or error}); check the path, or choose another."


def _leave(message: str, error: Exception) -> None:
    typer.echo(f"natmix: {message}", err=True)
    raise typer.Exit(BAD_INPUT) from error
