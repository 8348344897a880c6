"""A page read as a browser does, as far as tests need it."""

import html.parser
import json
import re

_VOID = {"meta", "link", "input", "br"}
_RAW = ("script", "style")


class Page(html.parser.HTMLParser):
    """Elements with their attributes, the words of people, and the raw text of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.raw: list[tuple[dict[str, str], str]] = []
        self._open = list[str]()
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)
        if tag in _RAW:
            self.raw.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in _RAW:
            attributes, before = self.raw[-1]
            self.raw[-1] = (attributes, before + data)
        else:
            self.words += data

    def tags(self):
        return {tag for tag, _ in self.elements}

    def attribute(self, name):
        """The values of an attribute on all elements that have it."""
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    @property
    def data(self):
        """The numbers behind the figures."""
        (text,) = (text for attributes, text in self.raw if attributes.get("id") == "data")
        return json.loads(text)

    @property
    def policy(self):
        (found,) = (
            a["content"] for t, a in self.elements if a.get("http-equiv") == "Content-Security-Policy"
        )
        return dict(part.strip().split(" ", 1) for part in found.split(";"))

    @property
    def sentences(self):
        return re.sub(r"\s+", " ", self.words)
