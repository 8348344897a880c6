"""Messages of Stan and of compilers, as one sentence each."""

import re

_STANC = re.compile(
    r"^(?P<what>\w+ error in .*?)(?:, parsing error)?:?\s*$"
    r".*?^\s*-{10,}.*?^\s*-{10,}\s*$\s*"  # the lines it cites
    r"(?P<why>.*?)\s*(?:\n\s*\n|\nmake|\Z)",
    re.DOTALL | re.MULTILINE,
)


def compiler_reason(text: str) -> str:
    """What stanc or a C++ compiler complained about, where, without the lines it cites."""
    match = _STANC.search(text)
    if match is not None:
        return _sentence(f"{match['what']}: {match['why']}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower()]
    return _sentence((told or lines or ["it gave no reason"])[0])


def data_error(text: str) -> ValueError:
    """For what Stan says when it is given data."""
    return ValueError(f"Stan does not accept the data: {stan_reason(text)}")


def stan_reason(text: str) -> str:
    """An exception of a Stan program."""
    return _sentence(re.sub(r"\b(Exception|Error): |\w+_namespace::\w+: |processing stage=[^;]*; ", "", text))


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".")
    return text if text.endswith("?") else f"{text}."
