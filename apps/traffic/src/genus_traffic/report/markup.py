"""HTML and SVG as nested calls. Whatever is not markup already is escaped, so no name can break out of the page."""

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

Value: TypeAlias = str | int | float | bool | None
_VOID = frozenset({"meta", "input", "br", "hr", "col"})


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child: TypeAlias = str | int | Markup | None
NOTHING = Markup("")


def element(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element; `class_` and `for_` lose their underscore, others inside a name become hyphens.

    >>> element("p", "1 < 2 ", element("b", "yes"), class_="note")
    '<p class="note">1 &lt; 2 <b>yes</b></p>'

    Attributes that are None or False are left out, and those that are True stand alone.
    """
    opening = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opening if name in _VOID else f"{opening}{together(children)}</{name}>")


def together(children: Iterable[Child]) -> Markup:
    """Several things one after the other, as one.

    >>> together([element("br"), "&", None])
    '<br>&amp;'
    """
    return Markup("".join(_child(child) for child in children))


def verbatim(text: str) -> Markup:
    """The page's own style and script, which are not escaped."""
    return Markup(text)


def short(number: float) -> str:
    """A coordinate with two decimals at most, as a page has many of them.

    >>> [short(12.0), short(1 / 3), short(-0.001)]
    ['12', '0.33', '0']
    """
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _child(child: Child) -> str:
    if child is None:
        return ""
    return child if isinstance(child, Markup) else escape(str(child), quote=False)


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(short(value) if isinstance(value, float) else str(value))}"'
