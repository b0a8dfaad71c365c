"""What all parts of the page are made of: sections, figures, tables, legends and verdicts."""

from collections.abc import Iterable, Sequence

from genus_traffic.report.markup import Child, Markup, element, together


def section(anchor: str, title: str, says: Child, *content: Child) -> Markup:
    """A part of the story: a heading, a sentence or two, pictures."""
    heading = element("h2", element("a", title, href=f"#{anchor}"), id=f"{anchor}-title")
    return element(
        "section", heading, element("p", says, class_="says"), *content, id=anchor, aria_labelledby=f"{anchor}-title"
    )


def figure(caption: Child, *content: Child) -> Markup:
    """A picture with its caption above it."""
    return element("figure", element("figcaption", caption), *content)


def empty(says: str) -> Markup:
    """In place of a picture for which there is nothing to draw."""
    return element("p", says, class_="empty")


def verdict(holds: bool | None, says: str) -> Markup:
    """A line that says how it went, by a sign and by words, not by colour alone."""
    sign, class_ = {True: ("✓", "good"), False: ("✗", "bad"), None: ("–", "unknown")}[holds]
    return element("p", element("span", sign, class_="sign", aria_hidden="true"), " ", says, class_=f"verdict {class_}")


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Colours and what they stand for: (class of the swatch, words)."""
    items = (element("li", element("i", class_=f"swatch {class_}"), words) for class_, words in entries)
    return element("ul", *items, class_="legend")


def table(heads: Sequence[Child], rows: Iterable[Sequence[Child]], caption: str) -> Markup:
    """A table that can be scrolled sideways where the screen is narrow; the first cell of a row is its head."""
    head = element("thead", element("tr", *(element("th", text, scope="col") for text in heads)))
    body = element("tbody", *(_row(cells) for cells in rows))
    spoken = element("caption", caption, class_="spoken")
    return scrolling(element("table", spoken, head, body), caption)


def scrolling(content: Markup, label: str) -> Markup:
    """Something wide, which the keyboard can scroll too."""
    return element("div", content, class_="scrolling", tabindex=0, role="region", aria_label=label)


def folded(summary: str, *content: Child, unfolded: bool = False, on_paper: bool = True) -> Markup:
    """What not every reader wants to see; it is unfolded on paper, unless it would take too much of it."""
    class_ = None if on_paper else "screen-only"
    return element("details", element("summary", summary), *content, open=unfolded, class_=class_)


def meter(part: float, class_: str = "good", *, label: str) -> Markup:
    """A bar, filled to a part of its length; a part that is not zero can be seen."""
    width = f"{100 * min(max(part, 0.0), 1.0):.2f}%"
    fill = element("span", style=f"width:{width}", class_=class_ + (" some" if part > 0 else ""))
    return element("span", fill, class_="meter", role="img", aria_label=label)


def _row(cells: Sequence[Child]) -> Markup:
    first, *others = cells
    return together(["" if not cells else element("tr", element("th", first, scope="row"), *_data(others))])


def _data(cells: Iterable[Child]) -> Iterable[Markup]:
    return (element("td", cell) for cell in cells)
