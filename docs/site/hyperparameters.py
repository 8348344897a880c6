"""The API reference shows hyperparameters with the words that declare them: `real(0.1, "stepsize")`."""

import ast
from typing import Any

import griffe

DECLARATIONS = {"real", "count", "integer", "ratio", "series", "flag"}
"""The functions of `natmix.modules.hyperparameters`."""


class Hyperparameters(griffe.Extension):
    """Gives attributes that are hyperparameters a docstring."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """The second argument of a declaration says what the hyperparameter does."""
        call = node.value if isinstance(node, ast.AnnAssign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in DECLARATIONS:
            words = ast.literal_eval(call.args[1])
            attr.docstring = griffe.Docstring(words[0].upper() + words[1:] + ".", parent=attr)
