"""Registries refuse a second entry of one name, in one sentence."""

import dataclasses

import pytest

from natmix.experiments.problems import catalogue
from natmix.gaussians import FAMILIES
from natmix.models import FRONT_ENDS, AbstractModel, register
from natmix.modules import codenames
from natmix.registry import add_entry, registry_of


@dataclasses.dataclass(frozen=True)
class Named:
    name: str
    size: int = 0


def test_entries_keep_their_order():
    entries = Named("b"), Named("a")
    assert list(registry_of("thing", entries, lambda e: e.name).values()) == list(entries)


def test_a_second_entry_of_one_name_is_refused():
    with pytest.raises(ValueError, match=r"^There is a thing 'a' already: choose another name\.$"):
        registry_of("thing", (Named("a"), Named("a", 1)), lambda e: e.name)


def test_the_same_entry_may_be_added_again():
    one = Named("a")
    registry = {"a": one}
    add_entry(registry, "thing", "a", one)
    assert registry == {"a": one}
    with pytest.raises(ValueError, match="There is a thing 'a' already"):
        add_entry(registry, "thing", "a", Named("a", 1))
    assert registry == {"a": one}


def test_all_entries_of_natmix_are_found_by_their_own_names():
    assert all(family.name == name for name, family in FAMILIES.items())
    assert all(entry.name == name for name, entry in catalogue().items())
    assert all(option.letter == letter for letter, (_, option) in codenames.LETTERS.items())


def test_a_front_end_with_a_taken_name_is_refused():
    """Files know a model by the name of its front end."""
    for taken in FRONT_ENDS:
        twin = type(taken.__name__, (AbstractModel,), {})
        with pytest.raises(
            ValueError, match=f"^There is a front end '{taken.__name__}' already: choose another name"
        ):
            register(twin)
