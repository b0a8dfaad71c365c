"""The event types of a DBC file as a Python module, such as one would write by hand.

Programs that import it have types that checkers and editors know, and need neither the DBC file nor cantools to read a
recording: its types have the names and attributes of those that `load_dbc` declares.
"""

import json
import textwrap
from collections.abc import Iterator

from genus.can._dbc.decode import Dbc
from genus.can._dbc.layout import MessageLayout, SignalLayout
from genus.can._dbc.types import describe, member_names

WIDTH = 120


def python_source(dbc: Dbc) -> str:
    """The text of a module that declares the types of a DBC file."""
    about = _docstring(f"The messages of {dbc.path.name} as event types.", "")
    return "\n\n\n".join([f"{about}\n\n{_imports(dbc)}", *_classes(dbc)]) + "\n"


def _imports(dbc: Dbc) -> str:
    """What is used, no more; annotations are texts, so that no attribute can stand before a type of its name."""
    signals = [signal for message in dbc.messages for signal in message.signals]
    has_labels = any(signal.label is not None for signal in signals)
    has_units = any(signal.unit for signal in signals)
    ours = {"Event", "Kind", *(signal.annotation for signal in signals)} - {"bytes", "float"}
    ours |= {"Unit"} if has_units else set()
    ours |= {"Maybe"} if has_labels or any(signal.multiplexer is not None for signal in signals) else set()
    standard = ["from enum import Enum"] * has_labels + ["from typing import Annotated"] * has_units
    parts = ["from __future__ import annotations", *(["\n".join(standard)] if standard else [])]
    return "\n\n".join([*parts, f"from genus import {', '.join(sorted(ours, key=_as_ruff_sorts))}"])


def _as_ruff_sorts(name: str) -> tuple[str, int]:
    letters = name.rstrip("0123456789")
    return letters, int(name[len(letters) :] or 0)


def _classes(dbc: Dbc) -> Iterator[str]:
    kind = dbc.kind.__name__
    yield f"class {kind}(Kind):\n{_docstring(f'A message of {kind}.', '    ')}"
    for message in dbc.messages:
        yield from (_enumeration(signal) for signal in message.signals if signal.label is not None)
        yield "\n".join([f"class {message.type_name}(Event, {kind}):", *_body(message)])


def _enumeration(signal: SignalLayout) -> str:
    members = (f"    {name} = {_quoted(label)}" for name, label in member_names(signal.labels))
    return "\n".join([f"class {signal.enumeration}(Enum):", *members])


def _body(message: MessageLayout) -> Iterator[str]:
    yield _docstring(describe(message), "    ")
    if message.signals:
        yield ""
    for signal in message.signals:
        yield f"    {signal.attribute}: {_annotation(signal)}"
        if signal.comment:
            yield _docstring(" ".join(signal.comment.split()), "    ")
        if signal.label is not None:
            yield f"    {signal.label}: Maybe[{signal.enumeration}] = None"


def _annotation(signal: SignalLayout) -> str:
    note = f"Annotated[{signal.annotation}, Unit({_quoted(signal.unit)})]" if signal.unit else signal.annotation
    return note if signal.multiplexer is None else f"Maybe[{note}] = None"


def _quoted(text: str) -> str:
    """A text in double quotes: JSON's escapes are Python's, and what cannot be seen is escaped as well."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in quoted)


def _docstring(text: str, indent: str) -> str:
    lines = textwrap.wrap(_quoted(text)[1:-1], WIDTH - len(indent) - 6, break_long_words=False, break_on_hyphens=False)
    end = '"""' if len(lines) < 2 else '\n"""'
    return textwrap.indent('"""' + "\n".join(lines) + end, indent)
