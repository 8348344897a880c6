"""A line in the output of a notebook's cell that is updated in place; IPython is used only if it runs."""

import sys
from typing import Any

from rich.text import Text

from natmix.text.html import html_line


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel: IPython's shell that talks by ZMQ."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class NotebookLine:
    """One line of output, shown when it is first given."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: Text) -> None:
        """The line instead of the one before."""
        from IPython.display import display

        shown = {"text/plain": line.plain, "text/html": html_line(line.plain)}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
