"""A pass in plain words; a shape is a type with the attributes that events of it carry."""

from collections.abc import Iterator

import pyarrow.compute as pc

from genus.filters.text import spell
from genus.lake.columns import SHAPE, TYPE
from genus.lake.route.passes import Pass
from genus.lake.route.tables import UNIT
from genus.lake.route.templates import Templates, attributes_in

SHOWN = 3
"""So many templates are written out."""
_HOW = {"shape": "by type and attributes", "equal": "also by the value of", "range": "also by the range of"}


def described(pass_: Pass, templates: Templates) -> Iterator[str]:
    """How subscriptions are found, what is left to be tested, and what that reads and broadcasts."""
    yield f"{counted(pass_.subscriptions, 'subscription')} found {_how(pass_)}: {_sizes(pass_)}"
    if pass_.residual is not None:
        shown = "; ".join(spell(templates.examples[number]) for number in pass_.templates[:SHOWN])
        more = f"; and {len(pass_.templates) - SHOWN:,} more" if len(pass_.templates) > SHOWN else ""
        yield f"  what is found is tested by {counted(len(pass_.templates), 'predicate')}, such as {shown}{more}"
    yield f"  reads {', '.join(_reads(pass_, templates))}; sends {_size(pass_)} to every worker"


def _how(pass_: Pass) -> str:
    names = ", ".join(dimension.name for dimension in pass_.dimensions)
    found = f"{_HOW[pass_.method]} {names}".strip()
    return found if pass_.units.tagged else f"{found}, attributes tested on events"


def _sizes(pass_: Pass) -> str:
    number = pc.count_distinct(pass_.address[UNIT]).as_py()
    units = counted(number, "shape") if pass_.units.tagged else counted(number, "type")
    return f"{units}, {counted(pass_.lookup.num_rows, 'list')} of subscriptions to look up"


def _reads(pass_: Pass, templates: Templates) -> list[str]:
    names = [SHAPE if pass_.units.tagged else TYPE, *(dimension.name for dimension in pass_.dimensions)]
    names += [] if pass_.units.tagged else [attribute.name for attribute in pass_.units.vector]
    names += [name for number in pass_.templates for name, _ in attributes_in(templates.predicates[number])]
    return list(dict.fromkeys(names))


def _size(pass_: Pass) -> str:
    tables = [pass_.address, pass_.lookup, *([] if pass_.residual is None else [pass_.residual])]
    size = sum(table.nbytes for table in tables)
    return f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{-(-size // 1000)} kB"


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "list"), counted(2000, "list")
    ('1 list', '2,000 lists')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
