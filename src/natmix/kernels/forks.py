"""A fork of a process that has used JAX is refused: a fork has none of JAX's threads, and it hangs."""

import os
import sys

_used = False
_fork_of_user = False


def check_not_forked() -> None:
    """Raise in a fork of a process that had used JAX.

    Raises:
        RuntimeError: it is one.
    """
    global _used
    if _fork_of_user:
        raise RuntimeError(
            "This process is a fork of one that has used JAX, and JAX would hang in it: start processes by "
            "multiprocessing.get_context('spawn') or 'forkserver'."
        )
    _used = True


def _after_fork() -> None:
    global _fork_of_user
    _fork_of_user = _fork_of_user or _used or _jax_is_initialised()


def _jax_is_initialised() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    found = getattr(bridge, "backends_are_initialized", None)
    return found is not None and bool(found())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
