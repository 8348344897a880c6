"""One HTML file with everything in it: words, numbers, style and script."""

import base64
import dataclasses
import hashlib
import importlib.resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from natmix.diagnostics.evidence import SampleEvidence, gather_evidence
from natmix.files.durable import write_text
from natmix.files.json_text import to_json
from natmix.report import words
from natmix.report.figure_data import SeedCurve, corner_data, curves_data, trace_data, weights_data
from natmix.report.figures import corner_section, curves_section, traces_section, weights_section
from natmix.report.markup import escaped, joined, tag
from natmix.report.variables import report_draws
from natmix.result.diagnosing import known_diagnosis
from natmix.text.table import TextTable

if TYPE_CHECKING:
    from natmix.diagnostics import Diagnosis
    from natmix.report.variables import ReportDraws
    from natmix.result.result import Result

SCRIPTS = ("base.js", "density.js", "chart.js", "corner.js", "detail.js", "lines.js", "main.js")
"""In the order in which they run, as one script."""
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""What JSON in HTML must not hold as it is: it could end the script."""


@dataclasses.dataclass(frozen=True)
class RunContext:
    """What a report about one seed of a run says about the run.

    Attributes:
        command: repeats the run.
        tables: of the seeds and their metrics.
        curves: the ELBO of every seed.
        missing: what a run does not keep, a sentence each.
    """

    command: str
    tables: tuple[TextTable, ...] = ()
    curves: tuple[SeedCurve, ...] = ()
    missing: tuple[str, ...] = ()


def write_report(result: "Result", path: str | Path, title: str = "", run: RunContext | None = None) -> Path:
    """`Result.report`: write the page, in one step, and return where it is."""
    if not isinstance(path, (str, Path)):
        raise ValueError(f"path must be that of the file to write, such as 'fit.html', got {path!r}.")
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it, such as {path / 'report.html'}.")
    if not path.parent.is_dir():
        raise ValueError(
            f"There is no folder {path.parent} for {path.name}; make it, or choose another place."
        )
    write_text(path, report_html(result, title, run))
    return path


def report_html(result: "Result", title: str = "", run: RunContext | None = None) -> str:
    """The page as text; the target is not evaluated."""
    diagnosis = known_diagnosis(result)
    evidence = None if result.draws is None or len(result.draws) < 2 else gather_evidence(result.draws)
    known = evidence is not None and bool((evidence.weights > 0).any())
    draws = report_draws(result, evidence.weights if evidence is not None and known else None)
    data = _data(result, evidence, draws, run)
    missing = [*_missing(result, diagnosis, draws, run), *(() if run is None else run.missing)]
    name = title or _name(result)
    sections = [
        words.verdict(result, diagnosis, missing),
        *([curves_section()] if data["curves"] else []),
        *(() if run is None else (words.table_section(f"table-{i}", t) for i, t in enumerate(run.tables))),
        corner_section(diagnosis, draws, data["corner"]),
        words.modes_section(diagnosis, draws),
        words.variables_section(draws),
        weights_section(diagnosis, data["importance"]),
        traces_section(data["trace"]),
        words.costs_section(result),
        words.settings_section(result),
        words.code_section(result, "" if run is None else run.command),
    ]
    style, script = asset("style.css"), script_text()
    return Template(asset("page.html")).substitute(
        title=escaped(name),
        policy=_policy(style, script),
        style=style,
        header=words.heading(result, name),
        contents=joined(tag("a", s.title, href=f"#{s.name}") for s in sections),
        sections=joined(s.html for s in sections),
        data=json_for_html(data),
        script=script,
    )


def _data(
    result: "Result", evidence: SampleEvidence | None, draws: "ReportDraws", run: RunContext | None
) -> dict[str, Any]:
    log_ratio = None
    if result.draws is not None:
        log_ratio = result.draws.log_ratio[result.draws.log_target < float("inf")]
    return {
        "corner": corner_data(result.mixture, draws),
        "trace": trace_data(result),
        "importance": None if log_ratio is None else weights_data(evidence, log_ratio),
        "curves": [] if run is None else curves_data(run.curves),
    }


def _name(result: "Result") -> str:
    """A title for a fit that the user has given none."""
    if result.model is None:
        return f"Fit of a function of {result.mixture.dim} variables"
    latent = result.model.latent or result.model.coordinates
    few = ", ".join(latent[:3]) + (", …" if len(latent) > 3 else "")
    return f"Fit of {few if len(few) <= 80 else few[:79] + '…'}"


def _missing(
    result: "Result", diagnosis: "Diagnosis | None", draws: "ReportDraws", run: RunContext | None
) -> list[str]:
    """What this result cannot show, and why."""
    found = []
    if draws.weights is None:
        found.append("Importance weights and corrected figures: no sample has a known density of the target.")
    if not result.trajectory:
        found.append("Traces: the result has no iterations, or was put together from several fits.")
    known = [v for v in draws.variables if v.latent]
    several = sum(v.entry is None for v in known)
    if several:
        found.append(
            f"Densities and ellipses of {several} of {len(known)} variables, which depend on several "
            "coordinates of the mixture, or in a way that the file does not hold; their draws are shown."
        )
    as_coordinates = result.model is not None and [v.name for v in known] == list(result.model.coordinates)
    if as_coordinates and result.draws is None:
        found.append("The model's own variables, of which there are no samples: coordinates are shown.")
    unsearched = diagnosis is not None and diagnosis.mode_search is None and result.verification is None
    if unsearched and run is None:
        found.append(
            "A search for missed modes: a report evaluates nothing. Call result.diagnosis before, where the "
            "target is known."
        )
    return found


def asset(name: str) -> str:
    """A file of the page."""
    return (importlib.resources.files("natmix.report") / "assets" / name).read_text(encoding="utf-8")


def script_text() -> str:
    """All scripts as one."""
    return '"use strict";\n' + "\n".join(asset(name) for name in SCRIPTS)


def json_for_html(data: Any) -> str:
    """JSON that may stand inside a script element."""
    text = to_json(data)
    for character, written in _UNSAFE.items():
        text = text.replace(character, written)
    return text


def _policy(style: str, script: str) -> str:
    """A content security policy that lets this style and this script run, and nothing load."""
    hashes = (base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in (style, script))
    of_style, of_script = (f"'sha256-{h}'" for h in hashes)
    return (
        f"default-src 'none'; style-src {of_style}; script-src {of_script}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
