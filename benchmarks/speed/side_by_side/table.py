"""The table of ratios: for the terminal, as Markdown and as CSV."""

import csv
import math
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from side_by_side.load import Seed
from side_by_side.measures import compare, middle
from side_by_side.rows import Row

Measured = dict[str, dict[str, Any]]
"""Numbers by name, by row."""

HEAD = (
    "row",
    "import s",
    "first iteration s",
    "compiling s",
    "start ms",
    "later ms",
    "at iteration",
    "components",
    "evaluations/s",
    "-ELBO",
    "s to its -ELBO",
    "evaluations to it",
    "peak MiB",
)

RATIOS = {
    "import": "import_s",
    "first": "first_iteration_s",
    "start": "start_ms",
    "later": "later_ms",
    "evals/s": "evaluations_per_s",
    "time": "seconds_to_goal",
    "evals": "evaluations_to_goal",
    "memory": "peak_mib",
}
"""Columns of the table for the terminal."""

NOTES = """Each cell: the reference / natmix, and in bold how many times better natmix is.

- **start**: the ten iterations after the first. **later**: the last tenth of the iterations that the
  reference managed (3 to 50 of them), and natmix at the same iterations. The reference's number is the median
  over iterations (so without those in which it builds its graph anew), natmix's the mean (with those that
  search for a new component), without compilation. **components**: at that iteration.
- **-ELBO**: at the end of each one's time. **s to its -ELBO**: the reference's whole time, and when natmix
  was first not above the reference's last -ELBO by more than one standard error of the difference (where
  that estimate is below minus the log evidence, which no -ELBO can be: not above the latter);
  in brackets the ratio to when the reference itself was first there. Compilation included, imports not.
- **evaluations to it**: until each was first there. **evaluations/s**: after the first iteration.
- -ELBOs are those of mixtures kept during the runs, judged afterwards: 2000 samples each, same seed, float64.
- **compiling**: natmix's, over the whole of its time. What the reference takes to build its graphs cannot be
  told from its iterations: the first has most of it.
- The reference's log density was the one that comes with it ("shipped target"), where that is the same
  function, or one written for this benchmark ("fast target"; natmix always has a fast one). natmix's numbers
  are medians over its runs in between; with several seeds, all are medians over seeds.
- **wine** and **wine-fast** are the same row twice: gmmvi with the network that comes with it, which goes
  through the points one by one, and with one written for this benchmark, which takes them all at once. Both
  sides have the training rows of gmmvi's split and minibatches of 128 of them, drawn for every point.
"""


def measure(rows: dict[Row, list[Seed]]) -> Measured:
    """The numbers of every row: medians over seeds."""
    found = {}
    for row, seeds in rows.items():
        compared = [compare(seed) for seed in seeds]
        numbers: dict[str, Any] = {"row": row.name, "codename": row.codename, "seeds": len(seeds)}
        for name in compared[0]:
            values = [c[name] for c in compared]
            if name in ("variant", "variants"):
                numbers[name] = " or ".join(sorted(set(values)))
            else:
                numbers[name] = middle(values)
        found[row.name] = numbers
    return found


def for_terminal(measured: Measured) -> Table:
    """Ratios alone."""
    table = Table(
        title="How many times better natmix is than gmmvi",
        caption="first: until the first iteration is done; start, later: per iteration, at the same "
        "iterations; time, evals: to the reference's last -ELBO; ?: not enough iterations",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    table.add_column("row", no_wrap=True)
    for title in RATIOS:
        table.add_column(title, justify="right", no_wrap=True)
    for m in measured.values():
        table.add_row(m["row"], *(times(m[f"{name}_ratio"]) for name in RATIOS.values()))
    return table


def cells(m: dict[str, Any]) -> list[str]:
    """One row, as Markdown."""
    first = f" ({times(m['first_at_goal_ratio'])})"
    return [
        m["row"],
        pair(m, "import_s"),
        pair(m, "first_iteration_s"),
        number(m["compile_s_ours"]),
        pair(m, "start_ms"),
        pair(m, "later_ms"),
        number(m["later_iteration"]),
        f"{number(m['later_components_theirs'])} / {number(m['later_components_ours'])}",
        pair(m, "evaluations_per_s"),
        f"{value(m['neg_elbo_theirs'], m['neg_elbo_se_theirs'])} / "
        f"{value(m['neg_elbo_ours'], m['neg_elbo_se_ours'])}",
        pair(m, "seconds_to_goal") + first,
        pair(m, "evaluations_to_goal"),
        pair(m, "peak_mib"),
    ]


def pair(m: dict[str, Any], name: str) -> str:
    return f"{number(m[f'{name}_theirs'])} / {number(m[f'{name}_ours'])} **{times(m[f'{name}_ratio'])}**"


def times(ratio: float | None) -> str:
    if ratio is None:
        return "?"
    return "never" if ratio == 0 else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def number(x: float | None) -> str:
    """Three digits, or all of a larger whole number."""
    if x is None or math.isnan(x):
        return "?"
    if math.isinf(x):
        return "never"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def value(x: float | None, error: float | None) -> str:
    """A -ELBO with as many digits as its standard error allows."""
    if x is None or error is None or not math.isfinite(x) or not 0 < error < math.inf:
        return number(x)
    return f"{x:.{min(4, max(0, 1 - math.floor(math.log10(error))))}f}"


def write(measured: Measured, about: str, directory: Path) -> None:
    """bench_cpu.md and bench_cpu.csv."""
    names = list(next(iter(measured.values())))
    with (directory / "bench_cpu.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: _plain(v) for k, v in row.items()} for row in measured.values())
    (directory / "bench_cpu.md").write_text(markdown(measured, about), encoding="utf-8")


def markdown(measured: Measured, about: str) -> str:
    lines = [
        "# natmix and gmmvi side by side on a CPU",
        "",
        f"The paper's hyperparameters, float32; gmmvi had {_budgets(measured, 'budget_s')} s for a run, "
        f"natmix {_budgets(measured, 'budget_s_ours')}. {about}",
        "Rows are SAMTRON unless they name another algorithm. Made by "
        "`python benchmarks/speed/side_by_side`; `make bench` has all rows with 180 s for both "
        "and both allocators.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|---" + "|---:" * (len(HEAD) - 1) + "|",
        *("| " + " | ".join(cells(m)) + " |" for m in measured.values()),
        "",
        NOTES.rstrip(),
        "- How the reference was run; the run with the most iterations counts: "
        + "; ".join(f"{m['row']}: {_variants(m)}" for m in measured.values())
        + ".",
        "",
        "![-ELBO over time](bench_cpu.png)",
        "",
        "![-ELBO over evaluations](bench_cpu_evaluations.png)",
        "",
    ]
    return "\n".join(lines)


def _budgets(measured: Measured, name: str) -> str:
    """The usual number of seconds, and the rows that had another."""
    of_rows = {m["row"]: m[name] for m in measured.values()}
    usual = max(set(of_rows.values()), key=list(of_rows.values()).count)
    others = [f"{row} {seconds:g}" for row, seconds in of_rows.items() if seconds != usual]
    return f"{usual:g}" + (f" ({', '.join(others)})" if others else "")


def _variants(m: dict[str, Any]) -> str:
    return m["variant"] if m["variants"] == m["variant"] else f"{m['variant']} (of {m['variants']})"


def _plain(x: Any) -> Any:
    if x is None:
        return ""
    return f"{x:.6g}" if isinstance(x, float) else x
