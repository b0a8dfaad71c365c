"""A page as its reader's browser sees it: elements, attributes, text and tables, and whether it is well formed."""

import json
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "br", "hr", "input", "col"}


class ReadPage(HTMLParser):
    """Reads a page; raises if an element is not closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[tuple[str, str]] = []
        self.scripts: dict[str, str] = {}
        """The text of every script that has an id."""
        self.tables: dict[str, list[list[str]]] = {}
        """The rows of every table by its caption; the first one has the heads."""
        self._rows: list[list[str]] = []
        self.feed(page)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self._rows.append([])
        elif tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        self.words.append((inside, data))
        if inside == "caption":
            self._rows = self.tables[data] = []
        elif inside == "script" and (name := self.elements[-1][1].get("id")):
            self.scripts[name] = self.scripts.get(name, "") + data
        elif "td" in self.open or "th" in self.open:
            self._rows[-1][-1] += data

    @property
    def text(self) -> str:
        """What is read, without style and script, in one line."""
        return " ".join(" ".join(data for tag, data in self.words if tag not in {"style", "script"}).split())

    def texts(self, tag: str) -> list[str]:
        """The texts of all elements of one name."""
        return [data for inside, data in self.words if inside == tag]

    def classes(self, class_: str) -> list[dict[str, str]]:
        """The attributes of all elements of a class."""
        return [found for _, found in self.elements if class_ in found.get("class", "").split()]

    def ids(self, tag: str) -> list[str]:
        """The ids of all elements of one name."""
        return [found["id"] for name, found in self.elements if name == tag and "id" in found]

    @property
    def charts(self) -> Any:
        """The data that the script draws."""
        return json.loads(self.scripts["chart-data"])
