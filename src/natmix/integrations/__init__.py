"""natmix within other libraries: BlackJAX, PyMC. Each module imports its library only when it is used."""

from natmix.integrations import blackjax, pymc

__all__ = ["blackjax", "pymc"]
