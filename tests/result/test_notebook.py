"""What a notebook shows: HTML in which all of the user's text is escaped, at no evaluation."""

import dataclasses
import html.parser

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from quick_fits import LEAST

import natmix
from natmix import Mixture
from natmix.experiments.problems import load
from natmix.text.html import block, folded, headline, html_line, html_table, paragraph, preformatted
from natmix.text.table import Column, TextTable

HOSTILE = "<script>alert('x')</script>&\"<img src=x onerror=alert(1)>"
ALLOWED = {"div", "p", "b", "pre", "table", "thead", "tbody", "tr", "td", "th", "details", "summary", "code"}


class Reader(html.parser.HTMLParser):
    """All tags, their attributes and the text; tags must be closed in order."""

    def __init__(self, text):
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text, self._open = "", list[str]()
        self.feed(text)
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(text):
    found = Reader(text)
    assert found.tags <= ALLOWED
    assert found.attributes <= {"style"}
    return found.text


@pytest.fixture(scope="module")
def named():
    def model(y=None):
        mu = numpyro.sample(HOSTILE, dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    return natmix.fit(model, model_kwargs={"y": 0.3}, **LEAST)


@pytest.mark.parametrize(
    "made",
    [
        *(make(HOSTILE) for make in (paragraph, headline, preformatted, html_line)),
        folded(HOSTILE, paragraph(HOSTILE)),
        block(html_table((HOSTILE, "b"), [(HOSTILE, "1")], (True, False))),
        TextTable(HOSTILE, (Column(HOSTILE), Column("b")), ((HOSTILE, "1"), (HOSTILE,)), (HOSTILE,)).html(),
    ],
)
def test_whatever_is_shown_is_escaped(made):
    assert HOSTILE in read(made)


def test_a_result_with_hostile_names(named):
    hostile = dataclasses.replace(named, notes=(HOSTILE,))
    text = read(hostile._repr_html_())
    assert text.count(HOSTILE) >= 2  # the variable and the note
    for words in ("ELBO", "evaluations", "log evidence", "1 note", "95%"):
        assert words in text


def test_showing_a_result_evaluates_nothing():
    calls = []

    def log_density(x):
        calls.append(1)
        return -0.5 * float(np.sum(np.asarray(x) ** 2))

    result = natmix.fit(log_density, 2, verify=False, elbo_samples=200, **{**LEAST, "algorithm": "zamtron"})
    before = len(calls)
    assert "log evidence" in read(result._repr_html_())
    assert "log evidence" not in read(dataclasses.replace(result, draws=None)._repr_html_())
    assert len(calls) == before
    assert "diagnosis" not in vars(result)


def test_a_diagnosis_has_its_verdict_in_bold(named):
    text = named.diagnosis._repr_html_()
    first, *lines = str(named.diagnosis).splitlines()
    assert f"<b>{first}</b>" in text
    shown = read(text)
    for line in lines:
        assert line.strip() in shown


def test_a_mixture_shows_its_heaviest_components():
    K, D = 12, 10
    q = Mixture.diagonal(np.arange(1, K + 1), np.full((K, D), 0.25), np.full((K, D), 4.0))
    text = read(q._repr_html_())
    assert f"{12 / 78:.2%}" in text
    assert "0.25 ± 2" in text
    assert "4 more components" in text
    assert "2 more dimensions" in text
    assert repr(q) in text
    assert "without arrays" in read(eqx.filter(q, lambda leaf: False)._repr_html_())
    assert "x[0]" in read(Mixture.full([1.0], [[0.0]], [[[1.0]]])._repr_html_())


def test_a_problem_shows_what_is_known_of_it():
    problem = load("gmm2", seed=0, dtype=jnp.float64)
    text = read(problem._repr_html_())
    assert text.startswith("gmm2: ")
    assert "log evidence" in text
    assert read(dataclasses.replace(problem, title=HOSTILE)._repr_html_()).startswith(f"gmm2: {HOSTILE}")


def test_tables_of_fits_and_agreement(named):
    many = natmix.fit_many(lambda x, data: -0.5 * jnp.sum((x - data) ** 2), [0.0, "a"], dim=1, **LEAST)
    assert "1 failed" in read(many._repr_html_())
    assert "log Z of fit 0" in read(natmix.diagnostics.agreement([named, named])._repr_html_())


def test_a_table_lines_its_columns_up():
    table = TextTable(
        "title",
        (Column("name", words=True), Column("n")),
        (("a", "1"), ("long name", "100"), ("b", "x")),
        ("note",),
    )
    assert table.text().splitlines() == [
        "title",
        "  name         n",
        "  a            1",
        "  long name  100",
        "  b            x",
        "  note",
    ]
