"""What the user gives to `fit` about a target."""

import dataclasses
from typing import Any

from natmix.targets import AbstractTarget


@dataclasses.dataclass(frozen=True)
class Given:
    """The arguments of `natmix.fit` that describe a target; None where one was left out."""

    target: Any
    dim: int | None = None
    model_args: tuple[Any, ...] | None = None
    model_kwargs: dict[str, Any] | None = None
    position: Any = None
    bounds: Any = None

    @property
    def is_function(self) -> bool:
        """Whether the target is a function, of whatever."""
        return callable(self.target) and not isinstance(self.target, AbstractTarget)

    def names(self, *arguments: str) -> list[str]:
        """Those of these arguments that were given."""
        return [name for name in arguments if getattr(self, name) is not None]

    def leave_out_all(self, kind: str) -> None:
        """Raise if anything was given beside a target that knows its data and variables."""
        for name in self.names("model_args", "model_kwargs", "position", "bounds"):
            raise ValueError(f"A {kind} knows its data and variables: leave {name} out.")
