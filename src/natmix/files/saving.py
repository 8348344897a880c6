"""Writing the files of a run while the disk is full or the directory is gone: the run goes on in memory."""

import logging
from collections.abc import Callable

logger = logging.getLogger("natmix")


class Saving:
    """Writes files; that it cannot is one warning, until it can again.

    Args:
        path: of the run directory, for messages.
        restore: makes the run directory again, if it is gone.
    """

    def __init__(self, path: object, restore: Callable[[], None]) -> None:
        self._path, self._restore = path, restore
        self._fails = False
        self._waiting: dict[str, Callable[[], None]] = {}

    def attempt(self, write: Callable[[], object]) -> bool:
        """Call ``write``, which raises an `OSError` if it cannot; whether it could.

        What still waits to be written is tried before.
        """
        try:
            self._restore()
            self._write_waiting()
            write()
        except OSError as error:
            if not self._fails:
                logger.warning(
                    "%s: the run goes on in memory and tries again; make room or bring the folder back. (%s)",
                    self._path,
                    error,
                )
            self._fails = True
            return False
        if self._fails:
            logger.warning("%s can be written to again.", self._path)
        self._fails = False
        return True

    def keep_until_written(self, what: str, write: Callable[[], None]) -> None:
        """Call ``write`` now, or later as soon as it is possible."""
        self._waiting.pop(what, None)
        if not self.attempt(write):
            self._waiting[what] = write

    def finish(self) -> None:
        """Write what waits.

        Raises:
            OSError: that is not possible.
        """
        if not self._waiting:
            return
        try:
            self._restore()
            self._write_waiting()
        except OSError as error:
            raise OSError(
                f"The results could not be saved ({', '.join(self._waiting)}): {error} Make room and give "
                "the same command again; it goes on from the last checkpoint."
            ) from error

    def _write_waiting(self) -> None:
        for what in list(self._waiting):
            self._waiting[what]()
            del self._waiting[what]
