"""Completion of half-typed subscription texts: what can stand at the cursor, best first.

Only the text before the cursor counts. Its tokens lead through the head of a subscription (`Loop has place where`) by a
table of states; within `where`, the parser and the binder are asked what fits (`_completion_where`).
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from genus.errors import SubscriptionError
from genus.filters._completion_where import OpenTest, Proposal, shortened
from genus.filters._parser import longest_name, token_pattern
from genus.filters._subscription import drop_implied
from genus.filters._type_names import Token, TypesByName, find_type, meant_by_name
from genus.model import Event, Kind, attributes, is_event_type, is_type, name_of, subtypes, vector
from genus.model.internal import RESERVED_WORDS
from genus.model.types import Attribute

MAX_ITEMS = 100
"""The most items of a completion."""

ItemKind: TypeAlias = Literal["type", "kind", "attribute", "keyword", "value", "function"]

_NOTES = {
    "exact": "this type alone, without its subtypes",
    "&": "and of this type or kind, too",
    "has": "attributes that must be present",
    "lacks": "attributes that must be absent",
    "where": "a predicate that must be true",
    ",": "another attribute",
}
_NEXT: dict[str, dict[str, str]] = {
    "start": {"exact": "only", "NAME": "typed"},
    "only": {"NAME": "exactly typed"},
    "exactly typed": {"has": "has", "lacks": "lacks", "where": "where"},
    "typed": {"has": "has", "lacks": "lacks", "where": "where", "&": "type"},
    "type": {"NAME": "typed"},
    "has": {"NAME": "having"},
    "having": {",": "has", "lacks": "lacks", "where": "where"},
    "lacks": {"NAME": "lacking"},
    "lacking": {",": "lacks", "where": "where"},
}
"""The words and signs that can follow in the head of a subscription, each with the state it leads to."""


class CompletionItem(msgspec.Struct, frozen=True):
    """A text that can stand at the cursor.

    `kind` says what it is, operators and signs being keywords. `note` is the type and unit of an attribute, the first
    line of a type's docstring, or a few words.
    """

    text: str
    kind: ItemKind
    note: str = ""


class Completion(msgspec.Struct, frozen=True):
    """What can stand at a cursor: each item's text can replace the characters from `start` up to `end`."""

    start: int
    end: int
    items: tuple[CompletionItem, ...]


def complete(text: str, at: int, types: Iterable[type] | None = None) -> Completion:
    """Return what can stand at the cursor of a half-typed subscription text: types, attributes, keywords, values.

    The word at the cursor is completed: items that begin with what is typed of it come first, then those that contain
    it. Types and attributes that do not fit are left out: after `speed >` there are numbers only. There are no items
    where the text before the cursor is wrong, and at most 100. Never raises, whatever the text.

    Args:
        text: The text, which may go on after the cursor.
        at: The position of the cursor, counted from 0.
        types: The types and kinds that may be named; all declared ones if none are given.

    >>> from genus import Event, Maybe
    >>> from genus.filters import complete
    >>> class Truck(Event):
    ...     axles: int
    ...     load: Maybe[float] = None
    >>> text = "Truck has lo"
    >>> found = complete(text, len(text), [Truck])
    >>> found.start, found.end, found.items
    (10, 12, (CompletionItem(text='load', kind='attribute', note='float64?'),))
    >>> [item.text for item in complete("Truck ", 6, [Truck]).items]
    ['has', 'lacks', 'where', '&']
    >>> [item.text for item in complete("Truck where axles <= ", 21, [Truck]).items]
    ['axles', 'load', 'abs(', 'length(', 'coalesce(', 'if', 'inf', '(']
    """
    at = max(0, min(at, len(text)))
    known = tuple(dict.fromkeys(types if types is not None else (*subtypes(Event), *subtypes(Kind))))
    tokens, start = _split(text[:at])
    word = text[start:at]
    items = _Head([cls for cls in known if is_type(cls)]).items(text[:start], tokens)
    return Completion(start, at + _rest_of_word(word, text[at:]), _best(items, word))


# -- the word at the cursor --------------------------------------------------------------------------------------------


def _split(text: str) -> tuple[list[Token], int]:
    """Return the tokens of a text but for the word at its end, and where that word begins."""
    tokens, at, match = list[Token](), 0, token_pattern().match
    while (found := match(text, at)) and (kind := found.lastgroup) and kind != "end":
        word = longest_name(found[kind]) if kind == "name" else found[kind]
        if not word:
            break
        tokens.append(Token(kind, word, found.start(kind) + 1))
        at = found.start(kind) + len(word)
    rest = text[at:]
    unread = at + len(rest) - len(rest.lstrip())
    is_joined = unread == at and rest[:1] in ("", ".") and bool(tokens) and tokens[-1].kind != "op"
    return (tokens[:-1], tokens[-1].column - 1) if is_joined else (tokens, unread)


def _rest_of_word(word: str, after: str) -> int:
    """Return how many characters after the cursor belong to the word before it."""
    if not word:
        return 0
    pattern = r"[\w\-]*'?" if word[0] == "'" else r"[0-9T:.+\-]*Z?" if word[0] == "@" else r"[\w.]*"
    found = re.match(pattern, after)
    return found.end() if found else 0


def _best(items: Iterable[CompletionItem], word: str) -> tuple[CompletionItem, ...]:
    """Return the items that match what is typed of a word, the best first."""
    ranked = [(rank, item) for item in items if (rank := _rank(item.text, word)) is not None]
    return tuple(item for _, item in sorted(ranked, key=lambda pair: pair[0]))[:MAX_ITEMS]


def _rank(text: str, word: str) -> int | None:
    small, typed = text.lower(), word.lower()
    if text.startswith(word):
        return 0
    if small.startswith(typed):
        return 1
    if typed[:1] == "'":
        return 2 if text[0] == "'" and typed[1:] in small else None
    if any(part.startswith(typed) for part in re.split(r"[._]", small)):
        return 2
    return 3 if typed in small else None


# -- the head of a subscription ----------------------------------------------------------------------------------------


class _Head:
    """State: how far the tokens lead, and the names on the way."""

    def __init__(self, known: list[type]) -> None:
        self.known = known
        self.state = "start"
        self.named: dict[str, list[str]] = {"typed": [], "exactly typed": [], "having": [], "lacking": []}

    def items(self, text: str, tokens: list[Token]) -> list[CompletionItem]:
        """Return the items that can follow the tokens of a text."""
        for place, token in enumerate(tokens):
            if self.state == "where":
                return self._of_test(text, tokens[place:])
            if not self._step(token):
                return []
        return self._of_test(text, []) if self.state == "where" else list(self._of_head())

    def _step(self, token: Token) -> bool:
        after = _NEXT[self.state]
        is_name = "NAME" in after and token.kind == "name" and token.text not in RESERVED_WORDS
        if not is_name and (token.text not in after or token.kind not in ("name", "op")):
            return False
        self.state = after["NAME" if is_name else token.text]
        if is_name:
            self.named[self.state].append(token.text)
        return True

    def _of_head(self) -> Iterator[CompletionItem]:
        after = _NEXT[self.state]
        if "NAME" in after and self.state in ("has", "lacks"):
            yield from self._attributes()
        elif "NAME" in after:
            yield from self._types()
        yield from (CompletionItem(word, "keyword", _NOTES[word]) for word in after if word != "NAME")

    def _types(self) -> Iterator[CompletionItem]:
        """Types by name; after others, those that an event can have as well."""
        above = self._named_types()
        named: dict[str, list[type]] = {}
        for cls in self.known if above is not None else ():
            named.setdefault(name_of(cls), []).append(cls)
        for name in sorted(named, key=str.lower):
            cls, *others = meant_by_name(named[name])
            if others or not _can_join(above or (), cls):
                continue
            doc = (vars(cls).get("__doc__") or "").strip().partition("\n")[0]
            yield CompletionItem(name, "type" if is_event_type(cls) else "kind", shortened(doc))

    def _attributes(self) -> Iterator[CompletionItem]:
        scope = self._scope()
        taken = {*self.named["having"], *self.named["lacking"]}
        if scope is not None:
            yield from (item for item in map(_describe, _attributes(scope)) if item.text not in taken)

    def _of_test(self, text: str, tokens: list[Token]) -> list[CompletionItem]:
        scope = self._scope()
        if scope is None:
            return []
        test = OpenTest(scope, text, tokens)
        return [self._item(scope, proposal) for proposal in test.proposals(_attributes(scope))]

    def _item(self, scope: type, proposal: Proposal) -> CompletionItem:
        attribute = vector(scope).get(proposal.text) if proposal.kind == "attribute" else None
        return _describe(attribute) if attribute else CompletionItem(proposal.text, proposal.kind, proposal.note)

    def _scope(self) -> type | None:
        """Return the type whose attributes are meant; None if a type is not known."""
        found = self._named_types()
        return _first(found) if found else None

    def _named_types(self) -> tuple[type, ...] | None:
        """Return the types named so far; None if one is not known."""
        known = TypesByName(self.known)
        try:
            return tuple(
                find_type(Token("name", name, 1), known, name)
                for name in (*self.named["typed"], *self.named["exactly typed"])
            )
        except SubscriptionError:
            return None


def _first(types: tuple[type, ...]) -> type | None:
    try:
        return drop_implied(types)[0]
    except SubscriptionError:
        return None


def _can_join(above: tuple[type, ...], cls: type) -> bool:
    return cls not in above and _first((*above, cls)) is not None


def _attributes(scope: type) -> list[Attribute]:
    """Return the attributes of a type's family, those that the type has itself first."""
    own = {attribute.name for attribute in attributes(scope)}
    return sorted(vector(scope), key=lambda attribute: bool(own) and attribute.name not in own)


def _describe(attribute: Attribute) -> CompletionItem:
    note = shortened(str(attribute).partition(": ")[2])
    return CompletionItem(attribute.name, "attribute", f"{note} [{attribute.unit}]" if attribute.unit else note)
