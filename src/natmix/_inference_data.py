"""ArviZ's container of samples, in its old and its new form."""

from typing import Any


def inference_data(groups: dict[str, dict[str, Any]]) -> Any:
    """InferenceData, or a DataTree from ArviZ 1 on; arrays have chains and draws first."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("This needs ArviZ: pip install natmix[arviz].") from error
    make: Any = arviz.from_dict
    return make(groups) if int(arviz.__version__.split(".")[0]) >= 1 else make(**groups)
