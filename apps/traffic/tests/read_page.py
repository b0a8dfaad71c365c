"""A page as its reader's browser sees it: elements, attributes and text, and whether it is well formed."""

from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "input", "col"}


class ReadPage(HTMLParser):
    """Reads a page; raises if an element is not closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[tuple[str, str]] = []
        self.feed(page)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        """What is read, without style and script."""
        return " ".join(data for tag, data in self.words if tag not in {"style", "script"})

    def texts(self, tag: str) -> list[str]:
        """The texts of all elements of one name."""
        return [data for inside, data in self.words if inside == tag]

    def classes(self, class_: str) -> list[dict[str, str]]:
        """The attributes of all elements of a class."""
        return [found for _, found in self.elements if class_ in found.get("class", "").split()]

    def ids(self, tag: str) -> list[str]:
        """The ids of all elements of one name."""
        return [found["id"] for name, found in self.elements if name == tag and "id" in found]
