"""The parts of a report that are words and tables; they need no script."""

import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from natmix.diagnostics.judgement import kl_text
from natmix.estimate import counted
from natmix.files.versions import versions
from natmix.modules.codenames import MODULES
from natmix.report.call import repeated_call
from natmix.report.markup import Cells, Markup, Section, folded, joined, named, section, table, tag
from natmix.report.variables import ReportDraws, ReportVariable
from natmix.result.summary import title
from natmix.result.summary_table import shown_number
from natmix.text.table import TextTable

if TYPE_CHECKING:
    from natmix.diagnostics import Diagnosis
    from natmix.result.result import Result

_MOST_ROWS = 1000
"""Variables in the table."""
_MOST_BY_MODE = 12
"""Modes whose means are listed."""
_PURPOSES = (
    ("to initialise", "first_evaluations"),
    ("in training", "training_evaluations"),
    ("for the ELBO", "elbo_evaluations"),
    ("to verify", "verification_evaluations"),
    ("to find it not accurate yet", "refuted_evaluations"),
)
_PHASES = (
    ("initialising", "start"),
    ("compiling", "compilation"),
    ("iterations", "iterations"),
    ("searches", "verification"),
    ("the final ELBO", "elbo"),
)
_QUALITY = {
    "trust": ("good", "✓"),
    "unsearched": ("fair", "✓"),
    "proposal": ("fair", "~"),
    "undecided": ("fair", "?"),
    "distrust": ("bad", "✕"),
}
"""Class and sign of a verdict: it is never told by colour alone."""


def heading(result: "Result", name: str) -> Markup:
    """What was fitted, by what, and when this was written."""
    now = datetime.datetime.now().astimezone()
    used = versions()
    written = f"Written {now:%Y-%m-%d %H:%M} by natmix {used['natmix']} with JAX {used['jax']}."
    return tag("header", tag("h1", named(name)), tag("p", title(result)), tag("p", written, class_="faint"))


def verdict(result: "Result", diagnosis: "Diagnosis | None", missing: list[str]) -> Section:
    """The verdict in words, the numbers that it rests on, and what the report lacks."""
    parts: list[str] = []
    if diagnosis is None:
        parts.append(tag("p", "There is no verdict: the result has no samples with the target's density."))
        quality, sign = _QUALITY["undecided"]
    else:
        quality, sign = _QUALITY[diagnosis.verdict]
        first, *_ = str(diagnosis).splitlines()
        parts.append(
            tag("p", tag("span", sign, class_="sign", aria_hidden="true"), " ", first, class_="headline")
        )
        parts += [tag("p", reason) for reason in diagnosis.reasons]
    parts.append(tag("dl", *_key_numbers(result, diagnosis), class_="tiles"))
    if missing:
        parts += [tag("h3", "Not in this report"), tag("ul", *(tag("li", line) for line in missing))]
    if diagnosis is not None:
        printed = tag("pre", str(diagnosis), tabindex="0")
        parts.append(folded("The diagnosis as it is printed", printed))
    inside = tag("div", *parts, class_=f"verdict {quality}")
    return section("verdict", "Verdict", inside)


def _key_numbers(result: "Result", diagnosis: "Diagnosis | None") -> list[Markup]:
    mixture = result.mixture
    tiles = [("ELBO", str(result.elbo), "evidence lower bound, from fresh samples")]
    if diagnosis is not None:
        d = diagnosis
        tiles = [
            (
                "KL(q || p)",
                kl_text(d.gap),
                "distance of the mixture from the target; good: at most 0.05 nats",
            ),
            ("k-hat", f"{d.k_hat:.2f}", f"tail of the importance weights; reliable up to {d.k_limit:.2f}"),
            (
                "effective samples",
                f"{d.effective_samples:,.0f} of {d.samples:,}",
                "after correction by importance weights",
            ),
            ("log evidence", str(d.log_evidence), "if no mode is missing"),
            *tiles,
        ]
    about = f"{mixture.covariance_family} covariances, {mixture.dtype}, {counted(mixture.dim, 'dimension')}"
    tiles.append(("mixture", counted(mixture.num_components, "component"), about))
    return [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", why, class_="faint"))
        for name, value, why in tiles
    ]


def variables_section(draws: ReportDraws) -> Section:
    """Moments and quantiles of every variable, of the mixture and corrected."""
    corrected = draws.weights is not None
    titles = ["variable", "mean", "sd", "5%", "50%", "95%"] + (["corrected mean", "corrected sd"] * corrected)
    rows = [_moments(v, draws.weights) for v in draws.variables[:_MOST_ROWS]]
    left = len(draws.variables) - len(rows)
    parts = [
        tag(
            "p",
            f"By {counted(len(draws.x), 'sample')} of the mixture"
            + ("; the last two columns by their importance weights." if corrected else "."),
            class_="faint",
        ),
        table(Cells(titles, rows, (True, *[False] * (len(titles) - 1))), "Variables", caption=False),
    ]
    if left:
        parts.append(tag("p", f"{counted(left, 'variable')} more: result.to_pandas() has them all."))
    return section("variables", "Variables", *parts)


def _moments(variable: ReportVariable, weights: Any) -> list[str]:
    x = variable.values
    name = named(variable.name)
    finite = np.isfinite(x)
    if not finite.all():
        return [
            name,
            f"{counted(int((~finite).sum()), 'value')} not finite",
            *[""] * (4 + 2 * (weights is not None)),
        ]
    sd = float(x.std())
    numbers = [float(x.mean()), *map(float, np.quantile(x, [0.05, 0.5, 0.95]))]
    mean, *quantiles = (shown_number(v, sd) for v in numbers)
    row = [name, mean, f"{sd:.3g}", *quantiles]
    if weights is not None:
        total = float(weights.sum())
        true_mean = float(weights @ x) / total if total > 0 else np.nan
        true_sd = float(np.sqrt(weights @ (x - true_mean) ** 2 / total)) if total > 0 else np.nan
        row += [shown_number(true_mean, true_sd), f"{true_sd:.3g}"]
    return row


def modes_section(diagnosis: "Diagnosis | None", draws: ReportDraws) -> Section:
    """Share, corrected share and position of every mode; a button marks its draws in the figures."""
    if diagnosis is None or not diagnosis.modes:
        return section("modes", "Modes", tag("p", "The modes are not known without importance weights."))
    rows = []
    for number, (mode, position) in enumerate(zip(diagnosis.modes, diagnosis.positions, strict=True)):
        button = tag(
            "button",
            f"mode {number + 1}",
            type="button",
            class_="mode",
            data_mode=str(number),
            aria_pressed="false",
        )
        shares = f"{mode.share:.2%}", mode.corrected.percent()
        rows.append((button, *shares, f"{mode.components:,}", tag("bdi", position)))
    cells = Cells(
        ("mode", "share", "corrected", "components", "position"), rows, (True, False, False, False, True)
    )
    parts = [
        tag(
            "p",
            "Components without a dip in density between them are one mode. The corrected share is by "
            "importance weights; the two agree within the error if the fit is good. A mode's button marks "
            "its draws above.",
            class_="faint",
        ),
        table(cells, "Modes", caption=False),
    ]
    if diagnosis.label_switching is not None:
        parts.append(tag("p", "Some modes are permutations of each other (label switching)."))
    if len(diagnosis.modes) > 1:
        parts.append(folded("Means of all variables by mode", _by_mode(draws, len(diagnosis.modes))))
    return section("modes", "Modes", *parts)


def _by_mode(draws: ReportDraws, modes: int) -> Markup:
    shown = range(min(modes, _MOST_BY_MODE))
    inside = [draws.mode == m for m in shown]
    rows = []
    for variable in draws.variables[:_MOST_ROWS]:
        x = variable.values
        means = [
            f"{x[i].mean():.4g} ± {x[i].std():.2g}" if i.sum() > 1 and np.all(np.isfinite(x[i])) else "–"
            for i in inside
        ]
        rows.append((named(variable.name), *means))
    titles = ("variable", *(f"mode {m + 1}" for m in shown))
    made = table(Cells(titles, rows, (True, *[False] * len(inside))), "Mean ± sd of the draws of each mode")
    left = modes - len(inside)
    return joined([made, tag("p", f"{left} lighter modes are left out.")]) if left else made


def costs_section(result: "Result") -> Section:
    """Evaluations by purpose and seconds by phase."""
    counts, times = result.counts, result.timings
    spent = [(words, getattr(counts, field)) for words, field in _PURPOSES]
    calls = [(words, f"{n:,}", _bar(n / max(counts.evaluations, 1))) for words, n in spent if n]
    calls.append(("all", f"{counts.evaluations:,}", Markup("")))
    phases = [(words, getattr(times, field)) for words, field in _PHASES]
    seconds = [(words, f"{s:.2f} s", _bar(s / max(times.total, 1e-9))) for words, s in phases if s > 0]
    seconds.append(("all", f"{times.total:.2f} s", Markup("")))
    rate = f"{counts.iterations / times.iterations:.3g} per second" if times.iterations > 0 else ""
    facts = [
        ("iterations", f"{counts.iterations:,}", rate),
        ("components added", f"{counts.added:,}", ""),
        ("components deleted", f"{counts.deleted:,}", ""),
        ("of negligible weight, left out", f"{counts.left_out:,}", ""),
        ("updates that failed and were skipped", f"{counts.failed_updates:,}", ""),
        ("evaluations with a density of zero", f"{counts.zeros:,}", ""),
        ("evaluations excluded (NaN, +inf)", f"{counts.invalid:,}", ""),
    ]
    columns = (True, False, True)
    return section(
        "costs",
        "Evaluations and time",
        tag(
            "div",
            table(Cells(("", "", ""), calls, columns), "Evaluations of the target"),
            table(Cells(("", "", ""), seconds, columns), "Time"),
            table(Cells(("", "", ""), facts, columns), "Course of the fit"),
            class_="beside",
        ),
    )


def _bar(share: float) -> Markup:
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    rect = tag("rect", width=width, height="8", rx="1")
    return tag("svg", rect, class_="bar", viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")


def settings_section(result: "Result") -> Section:
    """The settings by name, the algorithm's by module, and the notes."""
    settings = dict(result.settings)
    algorithm = settings.pop("algorithm", None) or {}
    rows = [(name.replace("_", " "), _value(value)) for name, value in settings.items()]
    parts = [table(Cells(("setting", "value"), rows, (True, True)), "Settings of the fit")]
    if algorithm:
        modules = [("codename", str(algorithm.get("codename", "")))]
        modules += [(m.replace("_", " "), _value(algorithm[m])) for m in MODULES if m in algorithm]
        others = [k for k in algorithm if k not in (*MODULES, "codename")]
        modules += [(k.replace("_", " "), _value(algorithm[k])) for k in others]
        parts.append(table(Cells(("module", "hyperparameters"), modules, (True, True)), "Algorithm"))
    used = [(name, version) for name, version in versions().items()]
    parts.append(table(Cells(("", ""), used, (True, True)), "Versions that wrote this report"))
    notes = [tag("li", note) for note in result.notes]
    return section(
        "settings",
        "Settings",
        *([tag("h3", "Notes of the fit"), tag("ul", *notes)] if notes else []),
        folded("All settings", *parts),
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} = {_value(v)}" if k != "option" else f"option {v}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(_value(v) for v in value) + ")"
    return f"{value:.6g}" if isinstance(value, float) else "–" if value is None else str(value)


def code_section(result: "Result", command: str) -> Section:
    """The call that repeats the fit."""
    if command:
        return section("code", "To repeat it", tag("pre", tag("code", command), tabindex="0"))
    call = repeated_call(result)
    parts: list[str] = []
    if call.code:
        parts += [
            tag("p", "The same call gives the same numbers, with the same versions on the same machine."),
            tag("pre", tag("code", call.code, id="call"), tabindex="0"),
            tag("button", "Copy", type="button", id="copy", hidden=True),
        ]
    if call.unknown:
        parts += [
            tag("p", "What the report does not know:"),
            tag("ul", *(tag("li", u) for u in call.unknown)),
        ]
    return section("code", "To repeat it", *parts)


def table_section(name: str, made: TextTable) -> Section:
    """Another table, such as that of the seeds of a run."""
    rows = [(*row, *[""] * (len(made.columns) - len(row))) for row in made.rows]
    cells = Cells([c.title for c in made.columns], rows, [c.words for c in made.columns])
    notes = [tag("p", note, class_="faint") for note in made.notes]
    return section(name, made.title, table(cells, made.title, caption=False), *notes)
