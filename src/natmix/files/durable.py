"""Files that are replaced in one step, and are on the disk when the call returns."""

import contextlib
import errno
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

Bytes = bytes | bytearray | memoryview


class CannotWriteError(OSError):
    """A file could not be written; what was there before is unchanged."""

    def __init__(self, path: Path, cause: OSError) -> None:
        super().__init__(
            f"{path} cannot be written ({cause.strerror or cause}); what was there before is unchanged."
        )
        self.errno, self.path = cause.errno, path

    def __reduce__(self) -> tuple[type["CannotWriteError"], tuple[Path, OSError]]:
        return type(self), (self.path, OSError(self.errno, os.strerror(self.errno or 0)))


@contextlib.contextmanager
def replacing(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """A temporary file name beside ``path``; on success the file replaces ``path``.

    The name is new in every call, so that threads and processes may write to one path: the last one wins.
    What was there is also found as ``keep`` then, if that is given; at no moment there is no ``path``.
    """
    temporary = _temporary(path)
    try:
        yield temporary
        _sync(temporary)
        if keep is not None:
            _keep(path, keep)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        _remove(temporary)


def write_file(path: Path, *parts: Bytes, keep: Path | None = None) -> None:
    """Write a file of these parts in one step; what was there stays as ``keep``, if that is given.

    Raises:
        CannotWriteError: there is no space, no folder, no permission; what was there is unchanged.
    """
    try:
        with replacing(path, keep) as temporary:
            write_new(temporary, parts)
    except OSError as error:
        raise CannotWriteError(path, error) from error


def write_text(path: Path, text: str) -> None:
    """The same for text, in UTF-8."""
    write_file(path, text.encode())


def write_new(path: Path, parts: Iterable[Bytes]) -> None:
    """Write a file that does not exist yet, with the permissions that the process gives to its files."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        for part in parts:
            rest = memoryview(part).cast("B")
            while rest:
                rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def read_bytes(path: Path) -> bytearray:
    """The content of a file.

    Raises:
        FileNotFoundError: there is none.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    with path.open("rb") as file:
        content = bytearray(os.fstat(file.fileno()).st_size)
        del content[file.readinto(content) :]
    return content


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError:  # one may write to a folder without being allowed to list it
        return
    _flush(descriptor)


def check_writable(path: Path) -> None:
    """Make the folder, and make sure that files can be written there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".natmix-"):
            pass
    except OSError as error:
        raise type(error)(
            f"{path} cannot be written to ({error.strerror}); choose another folder."
        ) from error


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of processes that were killed; nobody else may be writing there."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f".*{_MARK}*"):
            _remove(path)


_MARK = ".writing-"


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MARK}{secrets.token_hex(8)}")


def _sync(path: Path) -> None:
    _flush(os.open(path, os.O_RDWR))


def _flush(descriptor: int) -> None:
    """Force to the disk what the system holds of it, and close it; some file systems cannot be asked to."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _keep(path: Path, keep: Path) -> None:
    """Give a file, if it is there, a second name; where a file can have one alone, another one."""
    link = _temporary(keep)
    try:
        os.link(path, link)
        link.replace(keep)
    except FileNotFoundError:
        return
    except OSError:
        if path.exists():
            path.replace(keep)
    finally:
        _remove(link)


def _remove(path: Path) -> None:
    """A file that could not be removed does no harm, and its folder may be gone."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
