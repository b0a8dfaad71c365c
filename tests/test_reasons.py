"""Tables of reasons are bounded whatever arrives, and their counts add up to what arrived."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.bus import read_recording
from genus.bus._attribute_map import UnreadValues
from genus.bus._blocks import HEADER, EventGroup, bundle, pack_events
from genus.bus._recorder import Refusals
from genus.errors import Reasons
from genus.records._payload import Rejections, UnreadFields
from tests.examples import examples

TEXTS = st.text(st.characters(), max_size=3) | st.text("\ud800x", min_size=195, max_size=300)
"""Texts that others choose: short, long, and with what cannot be encoded."""


def by_item(table: Reasons, texts: list[str]) -> None:
    for text in texts:
        table[text] += 1


def by_add(table: Reasons, texts: list[str]) -> None:
    firsts = [table.add(text) for text in texts]
    assert sum(firsts) == len(table), "each key is new once"


def by_update(table: Reasons, texts: list[str]) -> None:
    table.update(texts[::2])
    table.update(Reasons(texts[1::2]))


@pytest.mark.parametrize("count", [by_item, by_add, by_update])
@examples(100)
@given(texts=st.lists(TEXTS, max_size=60))
def test_any_stream_of_reasons_leaves_few_keys_and_an_exact_sum(
    count: Callable[[Reasons, list[str]], None], texts: list[str]
) -> None:
    class Few(Reasons):
        MAX_COUNT = 5
        MAX_LENGTH = 200

    table = Few()
    count(table, texts)
    assert len(table) <= Few.MAX_COUNT + 1
    assert table.total() == len(texts)
    assert all(len(key.encode()) <= 4 * Few.MAX_LENGTH for key in table), "they can be written, and are short"
    assert table.copy() == table


def test_reasons_can_be_sent_to_other_processes() -> None:
    table = Reasons(f"unknown type {number}" for number in range(1000))
    assert pickle.loads(pickle.dumps(table)) == table


def rejections(texts: list[str]) -> Mapping[str, int]:
    table = Rejections()
    for text in texts:
        table.add(text, payload=text.encode())
    assert table.examples.keys() == table.counts.keys()
    return table.counts


def unread_fields(texts: list[str]) -> Mapping[str, int]:
    table = UnreadFields()
    for text in texts:
        table.add(text)
    return table.counts


def unread_values(texts: list[str]) -> Mapping[str, int]:
    table = UnreadValues(is_logged=True)
    for text in texts:
        table.note("Lamp", text, b"", lambda: "the class has no attribute of that name")
    assert table.reasons.keys() == table.examples.keys() == table.keys()
    return table


def recording(texts: list[str]) -> Mapping[str, int]:
    ends, bundles = bundle(msgspec.msgpack.Encoder().encode_into, [{}])
    groups = [EventGroup(text, {}, 1, ends, bundles) for text in texts]
    blocks = [pack_events([at], b"", [group], before=at) for at, group in enumerate(groups)]
    with TemporaryDirectory() as folder:
        path = Path(folder, "strangers.genus")
        path.write_bytes(HEADER + b"".join(blocks))
        read = read_recording(path, [])
        assert list(read) == []
    return read.problems


def refused_by_a_recorder(texts: list[str]) -> Mapping[str, int]:
    table = Refusals("count")
    for text in texts:
        table.add(text, f"{text} is wrong")
    assert table.total == len(texts)
    return {reason: each.count for reason, each in table.items()}


@pytest.mark.parametrize("read", [rejections, unread_fields, unread_values, recording, refused_by_a_recorder])
def test_each_table_keeps_the_law_and_logs_few_lines(
    read: Callable[[list[str]], Mapping[str, int]], caplog: pytest.LogCaptureFixture
) -> None:
    texts = [f"name {number}" * 50 if number % 2 else f"name {number}" for number in range(2000)]
    table = read(texts)
    assert len(table) <= Reasons.MAX_COUNT + 1
    assert sum(table.values()) == len(texts)
    assert len(caplog.messages) <= len(table)
