"""The places of a report's figures: headings, controls and captions; the script draws into them."""

from typing import TYPE_CHECKING, Any

from natmix.estimate import counted
from natmix.report.markup import Markup, Section, joined, section, tag

if TYPE_CHECKING:
    from natmix.diagnostics import Diagnosis
    from natmix.report.variables import ReportDraws

_ENOUGH = 100
"""Effective samples from which on contours by importance weights are more than a few spots."""
_NO_SCRIPT = "This figure needs JavaScript; the tables have the numbers."


def corner_section(diagnosis: "Diagnosis | None", draws: "ReportDraws", data: dict[str, Any]) -> Section:
    """Pairs of variables, and one of them large."""
    corrected = draws.weights is not None
    boxes = [
        ("show-draws", "draws"),
        ("show-components", "components"),
        ("show-mixture", "mixture's contours"),
    ]
    if corrected:
        boxes += [("show-target", "target's contours"), ("show-weights", "draws sized by weight")]
    if len(set(data["mode"])) > 1:
        boxes.append(("show-modes", "coloured by mode"))
    switches = [_switch(name, words, name not in ("show-weights", "show-modes")) for name, words in boxes]
    chooser = tag(
        "details",
        tag("summary", "Choose variables"),
        tag("label", "Find ", tag("input", type="search", id="find", autocomplete="off", spellcheck="false")),
        tag("div", id="choices", role="group", aria_label="Variables shown"),
        class_="chooser",
    )
    left = data["all_variables"] - len(data["variables"])
    drawn, all_components = len(data["components"]["weights"]), data["components"]["number"]
    facts = [f"{len(data['mode']):,} of {data['all_draws']:,} samples of the mixture"]
    if drawn < all_components:
        facts.append(f"the {drawn} heaviest of {counted(all_components, 'component')}")
    if left:
        facts.append(f"the first {len(data['variables'])} of {data['all_variables']:,} variables")
    few = ""
    if corrected and diagnosis is not None and diagnosis.effective_samples < _ENOUGH:
        count = diagnosis.effective_samples
        few = f"What is said of the target rests on {count:.0f} effective samples, too few to rely on. "
    caption = [
        "On the diagonal: the mixture's density and, in steps, "
        + ("that of the target by importance weights. " if corrected else "a histogram of its draws. "),
        "Below it: draws, and components as ellipses of two standard deviations. ",
        "Above it: contours that enclose 50% and 90%"
        + (
            ", of the mixture as lines, of the target as areas, by the same smoothed draws. "
            if corrected
            else ". "
        ),
        few,
        "Choose a panel to enlarge it; in the large one, drag or use + and − to zoom, and arrow keys to go "
        f"through the draws. Shown are {', '.join(facts)}.",
    ]
    figure = tag(
        "div",
        tag("div", id="corner", role="group", aria_label="Pairs of variables"),
        tag(
            "div",
            tag("h3", id="detail-title"),
            tag(
                "div",
                tag("button", "+", type="button", id="zoom-in", aria_label="zoom in"),
                tag("button", "−", type="button", id="zoom-out", aria_label="zoom out"),
                tag("button", "all", type="button", id="zoom-all", aria_label="show all"),
                class_="buttons",
            ),
            _canvas("detail", "The chosen panel, large"),
            tag("p", id="detail-text", class_="readout", aria_live="polite"),
            class_="detail",
        ),
        class_="pairs",
    )
    inside = [
        tag("div", *switches, class_="switches", role="group", aria_label="What the panels show"),
        chooser,
        tag("p", id="legend", class_="legend"),
        figure,
        tag("p", *caption, class_="faint"),
    ]
    return section("pairs", "Variables and pairs", *_scripted(inside))


def traces_section(data: dict[str, Any] | None) -> Section:
    """ELBO, KL and components over the course of the fit."""
    if data is None:
        return section("traces", "Traces", tag("p", "This result has no iterations to show."))
    options = [("evaluations", "evaluations"), ("iterations", "iterations"), ("seconds", "seconds")]
    known = [tag("option", words, value=name) for name, words in options if name in data]
    inside = [
        tag(
            "div",
            tag("label", "Over ", tag("select", *known, id="traces-over")),
            _switch("traces-whole", "from the first point, steep start included", False),
            class_="switches",
        ),
        _canvas("traces-plot", "ELBO, KL divergence and number of components over the fit"),
        tag("p", id="traces-text", class_="readout", aria_live="polite"),
        tag(
            "p",
            f"The ELBO in each iteration (faint) and its running mean over "
            f"{counted(data['window'], 'iteration')}"
            + ("; KL(q || p) as the fit estimated it from its samples" if "kl" in data else "")
            + "; the number of components. Point at it, or use arrow keys, to read numbers.",
            class_="faint",
        ),
    ]
    return section("traces", "Traces", *_scripted(inside))


def weights_section(diagnosis: "Diagnosis | None", data: dict[str, Any] | None) -> Section:
    """Histogram and tail of the importance weights."""
    if data is None or diagnosis is None:
        words = "There are no importance weights: no sample has a known, positive density of the target."
        return section("weights", "Importance weights", tag("p", words))
    d = diagnosis
    reliable = "within" if d.k_hat <= d.k_limit else "above"
    hidden = f"{d.hidden:.1%}" if d.hidden < 1 else "all"
    inside = [
        tag(
            "p",
            f"k-hat is {d.k_hat:.2f}, {reliable} the {d.k_limit:.2f} up to which estimates from "
            f"{d.samples:,} samples are reliable; the effective sample size is {d.effective_samples:,.0f}. "
            f"If the tail goes on as fitted, weights larger than those seen have {hidden} of the mass.",
        ),
        tag(
            "div",
            _canvas("weights-plot", "Histogram of the log importance weights"),
            _canvas("tail-plot", "The largest importance weights by rank"),
            class_="beside wide",
        ),
        tag("p", id="weights-text", class_="readout", aria_live="polite"),
        tag(
            "p",
            "Left: log weights, log p − log q − log Z, of all samples; a perfect fit has all at 0. Right: "
            "the largest weights by rank, as they are (dots) and Pareto smoothed (line), in shares of the "
            "mean weight.",
            class_="faint",
        ),
    ]
    return section("weights", "Importance weights", *_scripted(inside))


def curves_section() -> Section:
    """The ELBO of all seeds of a run."""
    inside = [
        tag("p", id="curves-legend", class_="legend"),
        _canvas("curves-plot", "ELBO of all seeds over evaluations"),
        tag("p", id="curves-text", class_="readout", aria_live="polite"),
        tag("p", "−ELBO of every seed, from its first evaluation on; lower is better.", class_="faint"),
    ]
    return section("seeds", "Learning curves", *_scripted(inside))


def _switch(name: str, words: str, on: bool) -> Markup:
    return tag("label", tag("input", type="checkbox", id=name, checked=on), " ", words)


def _canvas(name: str, words: str) -> Markup:
    return tag("div", tag("canvas", id=name, tabindex="0", role="img", aria_label=words), class_="plot")


def _scripted(parts: list[Markup]) -> tuple[Markup, Markup]:
    """Parts that only show where scripts run, and a sentence where they do not."""
    return tag("div", joined(parts), class_="scripted"), tag("noscript", tag("p", _NO_SCRIPT))
