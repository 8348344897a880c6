"""A diagnosis in words."""

from typing import TYPE_CHECKING

from natmix.diagnostics.exploration import NO_SIGN
from natmix.diagnostics.judgement import TOLERATED_SHARE, kl_text
from natmix.diagnostics.mode_search import ModeSearch
from natmix.diagnostics.remedies import CLEAR
from natmix.estimate import Estimate, counted

if TYPE_CHECKING:
    from natmix.diagnostics.diagnosis import Diagnosis

MINOR_SHARE = TOLERATED_SHARE
"""The share below which a mode counts as minor: such modes come and go with the seed."""
_MAX_MODES = 8
_MAX_MOMENTS = 6
_CHAINS, _EVALUATIONS_PER_CHAIN = 1000, 330


def verdict_lines(d: "Diagnosis") -> list[str]:
    """The verdict, its reasons, and the numbers behind it."""
    lines = [_headline(d), *(f"  {reason}" for reason in d.reasons)]
    lines += [
        f"  k-hat        {d.k_hat:.2f} (reliable up to {d.k_limit:.2f}); effective sample size "
        f"{d.effective_samples:,.0f} of {d.samples:,}",
        f"  log Z        {d.log_evidence} given no unseen mode; {_elbo(d)}, KL {kl_text(d.gap)}",
    ]
    lines += _moment_lines(d)
    if len(d.modes) > 1:
        lines += _mode_lines(d)
    return [*lines, *_search_lines(d), *_chain_lines(d), *_unseen_lines(d)]


def _headline(d: "Diagnosis") -> str:
    searched = d.mode_search is not None
    if d.verdict == "trust":
        if d.exploration is None and d.not_explored != NO_SIGN:
            return (
                "TRUST IT, ITS FAR TAILS ASIDE: the mixture is a good approximation where it has samples; a "
                "search found no other mode, and tails were not searched."
            )
        return "TRUST IT: the mixture is a good approximation of the target, safe to use."
    if d.verdict == "unsearched":
        if d.mode_search is not None and d.mode_search.found and d.mode_search.thorough:
            if not d.mode_search.covers_narrow_modes:
                return (
                    "GOOD AT THE MODES IT HAS: a search found no other mode, but it did not cover narrow "
                    "modes next to them."
                )
            return (
                "GOOD WHERE IT HAS SAMPLES: a search found no other mode; tails that the mixture may lack "
                "were not searched."
            )
        found = "the search for others was not thorough" if searched else "no others were searched for"
        return f"GOOD AT THE MODES IT HAS: {found}, and the mixture may lack some."
    if d.verdict == "proposal":
        unsearched = "" if searched else "; other modes were not searched for"
        return f"USE IT AS A PROPOSAL: {d.remedies.draw()}{unsearched}."
    if d.verdict == "undecided":
        return "CANNOT BE JUDGED: the samples do not suffice to say how good the mixture is."
    return "DO NOT TRUST IT: the mixture is not a good approximation of the target, or cannot be judged."


def _elbo(d: "Diagnosis") -> str:
    if d.zero_share > 0:
        return f"ELBO -inf ({Estimate(d.zero_share, 0.0).value:.2%} of the samples have density zero)"
    return f"ELBO {d.elbo}"


def _moment_lines(d: "Diagnosis") -> list[str]:
    if not d.unreliable:
        return []
    shown = "; ".join(str(m) for m in d.unreliable[:_MAX_MOMENTS])
    more = len(d.unreliable) - _MAX_MOMENTS
    return [f"  not reliable {shown}{f'; and {more} more' if more > 0 else ''}"]


def _search_lines(d: "Diagnosis") -> list[str]:
    search = d.mode_search
    if search is None:
        return [f"  mode search  none: {d.not_searched}"] if d.not_searched else []
    missed = len(search.missed)
    if search.method == "L-BFGS":
        far = f"from up to {search.reach:,.0f} widths of the initial region away"
        made = f"{counted(search.runs, 'L-BFGS run')}, {far},"
    else:
        made = f"a {search.method} search from {counted(search.runs, 'starting point')}"
    lines = [
        f"  mode search  {made} found {counted(search.found, 'mode')}, {missed} of them missed "
        f"({counted(search.evaluations, 'evaluation')})"
    ]
    if search.hits:
        bound = _chance(search.new_mode_chance)
        lines.append(
            f"               chance that another run finds a new mode: below {bound}; {_narrow(search)}"
        )
    return lines


def _narrow(search: ModeSearch) -> str:
    if search.covered_width >= 1:
        return "narrow modes are not covered by this"
    return f"modes less than {search.covered_width:.2g} times as wide as those known are not covered"


def _chance(bound: float) -> str:
    """Rounded up, as it is a bound."""
    return f"{min(int(100 * bound) + 1, 100)}%"


def _chain_lines(d: "Diagnosis") -> list[str]:
    e = d.exploration
    if e is None:
        return [f"  chains       none: {d.not_explored}"] if d.not_explored else []
    return [
        f"  chains       {counted(e.chains, 'Markov chain')} found {e.uncovered.value:.1%} of the total mass "
        f"not covered by the mixture, its samples {e.uncovered_by_samples.value:.1%} "
        f"({counted(e.evaluations, 'evaluation')})"
    ]


def _mode_lines(d: "Diagnosis") -> list[str]:
    """The modes with their shares and positions, and how many are minor."""
    modes = d.modes
    major = [m for m in modes if max(m.share, m.corrected_share) >= MINOR_SHARE]
    minor = len(modes) - len(major)
    small = f", and {minor} minor below {MINOR_SHARE:.0%}" if minor else ""
    lines = [f"  modes        {len(major)}{small}; shares of the mixture, and corrected:"]
    lines += [
        f"    {m.share:7.2%}  {m.corrected.percent():16s}  {position}".rstrip()
        for m, position in zip(modes[:_MAX_MODES], d.positions or [""] * len(modes), strict=False)
    ]
    more = len(modes) - _MAX_MODES
    return [*lines, *([f"    … and {more} more"] if more > 0 else []), *_switching_lines(d)]


def _switching_lines(d: "Diagnosis") -> list[str]:
    if d.label_switching is None:
        return []
    groups = "; ".join(_and([str(i + 1) for i in group]) for group in d.label_switching.modes)
    entries = f"the entries of {_and(list(d.label_switching.variables))}"
    return [f"    label switching: modes {groups} are permutations of each other, of {entries}"]


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _unseen_lines(d: "Diagnosis") -> list[str]:
    """What the numbers cannot show, and which search would."""
    if d.verdict == "undecided":
        return []
    search = d.mode_search is None and not d.not_searched.startswith(CLEAR)
    explore = d.exploration is None and not d.not_explored.startswith((CLEAR, NO_SIGN))
    if not (search or explore):
        return []
    places = " or ".join(["a mode"] * search + ["a narrow neck or a tail"] * explore)
    lines = [f"  {places.capitalize()} where the mixture has no sample does not show in these numbers."]
    chains = explore and d.remedies.explore
    asked = ["search=32"] * (search and d.remedies.search) + [f"explore={_CHAINS}"] * chains
    if asked:
        cost = f" It takes about {_CHAINS * _EVALUATIONS_PER_CHAIN:,} evaluations." if chains else ""
        what = "them" if len(asked) > 1 else "it"
        lines.append(f"  result.diagnose({', '.join(asked)}) searches for {what}.{cost}")
    if search and not d.remedies.search:
        lines.append(
            "  Fits with other seeds may find such modes: natmix.diagnostics.agreement([result, another]) "
            "compares them."
        )
    return lines
