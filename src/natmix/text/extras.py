"""Libraries that natmix uses only if they are there, by the extra of natmix that installs them."""

import contextlib
from collections.abc import Iterator


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'natmix[{extra}]'"


@contextlib.contextmanager
def needs(library: str, extra: str, what: str = "This") -> Iterator[None]:
    """A context for importing a library; where it is not installed the error says how to install it.

    Args:
        library: its name in words.
        extra: of natmix.
        what: needs it.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{what} needs {library}: {install(extra)}.") from error
