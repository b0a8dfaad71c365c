"""Followers by the versions that rows came with: every event once, whatever becomes of the files."""

import json
from collections import Counter
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from genus.errors import LakeError
from genus.lake._stream.source import last_version, parts_to_read
from genus.lake._tables import ledger as ledger_module
from genus.lake._tables.commits import CommitDraft, Cursor, Kind, Part, StoredFile, checksum
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.state import find_versions, is_cut, joined_versions
from tests.examples import examples
from tests.lake.test_ledger import MemoryFiles


class Row(NamedTuple):
    """An event in a file of the model; files of an ingest have no versions."""

    event: int
    batch: int | None = None


class Disk:
    """A lake without Spark: a ledger, and the rows of each folder."""

    def __init__(self) -> None:
        self.files = MemoryFiles({})
        self.rows: dict[str, list[Row]] = {}
        self.made = 0
        self.reopen()

    def reopen(self) -> None:
        self.ledger = Ledger(self.files, "/lake")

    def commit(self, kind: Kind, parts: list[list[Row]], replaced: list[Part]) -> None:
        self.made += 1
        added = []
        for number, rows in enumerate(parts):
            folder = f"tables/Loop/_commit={self.made:04x}/{number}"
            self.rows[folder] = rows
            versions: Any = joined_versions(replaced) if replaced else {}
            added.append(Part("Loop", folder, (StoredFile("a.parquet", len(rows), 1, ""),), **versions))
        gone = tuple(part.folder for part in replaced)
        self.ledger.commit(
            CommitDraft(id=f"{self.made:04x}", kind=kind, at_us=self.made, added=tuple(added), removed=gone)
        )

    def rewrite(self, kind: Kind, parts: list[Part], gone: int | None = None) -> None:
        """Rewrite parts as `LakeTables._rows_to_rewrite` does, without an event."""
        known = find_versions(self.ledger.history(), parts)
        rows = [
            Row(row.event, part.last if row.batch is None else row.batch)
            for part in known
            for row in self.rows[part.folder]
        ]
        left = [row for row in rows if row.event != gone]
        self.commit(kind, [left] if left else [], known)

    def clean(self) -> None:
        """Remove all files and commits that can be."""
        parts = self.ledger.state().parts
        self.rows = {folder: rows for folder, rows in self.rows.items() if folder in parts}
        self.ledger.forget(1 << 60)

    def new_events(self, after: int, upto: int) -> list[int]:
        """The events that a follower reads, as `LakeTables.events` and `LakeStreamReader` do."""
        found = []
        for part in parts_to_read(self.ledger, self.ledger.state(), after):
            rows = self.rows[part.folder]
            if is_cut(part, after) or is_cut(part, upto):
                assert all(row.batch is not None for row in rows)
                rows = [row for row in rows if row.batch is not None and after < row.batch <= upto]
            found += [row.event for row in rows if part.first <= upto]
        return found

    def batches(self) -> list[list[int]]:
        """The events of each batch of a query that reads the lake from its start, one file at a time."""
        after, last, found = 0, self.ledger.state().version, []
        while after < last:
            upto = last_version(parts_to_read(self.ledger, self.ledger.state(), after), after, last, 1)
            found.append(self.new_events(after, upto))
            after = upto
        return found


class Followers(RuleBasedStateMachine):
    """Events come in, are compacted and deleted; old files are removed; followers process what is new."""

    @initialize()
    def begin(self) -> None:
        self.disk = Disk()
        self.events: list[int] = []
        self.cursors = [Cursor(), Cursor()]
        self.done: list[Counter[int]] = [Counter(), Counter()]
        self.waiting: list[set[int]] = [set(), set()]
        self.disk.commit("create", [], [])

    @rule(count=st.integers(1, 3), parts=st.integers(1, 2))
    def ingest(self, count: int, parts: int) -> None:
        made = [[Row(len(self.events) + each * count + n) for n in range(count)] for each in range(parts)]
        self.disk.commit("ingest", made, [])
        new = [row.event for rows in made for row in rows]
        self.events += new
        for waiting in self.waiting:
            waiting.update(new)

    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        present = list(self.disk.ledger.state().parts.values())
        if chosen := data.draw(st.lists(st.sampled_from(present), unique_by=id)) if present else []:
            self.disk.rewrite("compact", chosen)

    @rule(data=st.data(), kind=st.sampled_from(["delete", "expire"]))
    def delete(self, data: st.DataObject, kind: Kind) -> None:
        parts = self.disk.ledger.state().parts
        present = [(folder, row.event) for folder in parts for row in self.disk.rows[folder]]
        if present:
            folder, event = data.draw(st.sampled_from(present))
            self.disk.rewrite(kind, [parts[folder]], gone=event)
            for waiting in self.waiting:
                waiting.discard(event)

    @rule()
    def clean(self) -> None:
        self.disk.clean()

    @rule()
    def restart(self) -> None:
        self.disk.reopen()

    @rule(who=st.integers(0, 1), most=st.none() | st.integers(1, 3))
    def follow(self, who: int, most: int | None) -> None:
        """Process all that is new, or whole commits with few files, as a streaming query does."""
        ledger, cursor = self.disk.ledger, self.cursors[who]
        assert ledger.has(cursor)
        state = ledger.state()
        upto = last_version(parts_to_read(ledger, state, cursor.version), cursor.version, state.version, most)
        assert upto >= cursor.version
        assert upto > cursor.version or cursor.version == state.version
        found = self.disk.new_events(cursor.version, upto)
        self.done[who].update(found)
        self.waiting[who] -= set(found)
        self.cursors[who] = Cursor(upto, ledger.id_at(upto))
        assert set(self.done[who].values()) <= {1}
        assert upto < state.version or not self.waiting[who]


@pytest.mark.parametrize("every", [2, 64])
def test_every_event_is_processed_once_if_it_is_not_deleted_before(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of ingests, compactions, deletions, expiry, cleaning, steps of followers and restarts."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", every)
    monkeypatch.setattr(ledger_module, "RADIX", 2)
    Followers.TestCase.settings = settings(examples(60), stateful_step_count=40)
    Followers.TestCase("runTest").debug()


def _age(disk: Disk) -> None:
    """Take all versions of rows out of the ledger, as an older Genus wrote it; seals are made again."""
    seal = ""
    for path in sorted(path for path in disk.files.content if path[-17:-5].isdigit()):
        commit = json.loads(disk.files.content[path])["commit"]
        for part in commit.get("added", ()):
            for name in ("first", "last", "unsure"):
                part.pop(name, None)
        commit["previous"] = seal
        text = msgspec.json.encode(commit)
        seal = checksum(text)
        disk.files.content[path] = b'{"seal":"%b","commit":%b}' % (seal.encode(), text)
    for path in [path for path in disk.files.content if not path[-17:-5].isdigit()]:
        del disk.files.content[path]
    for folder, rows in disk.rows.items():
        disk.rows[folder] = [Row(row.event) for row in rows]
    disk.reopen()


def test_versions_of_an_older_lake_are_those_of_its_ingests() -> None:
    """What it compacted is read as a whole by followers before and after; others are told to start again."""
    disk = Disk()
    for event in range(3):
        disk.commit("ingest", [[Row(event)]], [])
    disk.rewrite("compact", list(disk.ledger.state().parts.values())[:2])  # events 0 and 1, version 4
    disk.commit("ingest", [[Row(3)]], [])
    _age(disk)
    assert sorted(disk.new_events(0, 5)) == [0, 1, 2, 3]
    assert disk.new_events(4, 5) == [3]
    assert disk.batches() == [[2, 0, 1], [3]]
    with pytest.raises(LakeError, match=r"version 4 was compacted by an older Genus .* start again with a new folder"):
        disk.new_events(1, 5)
    disk.rewrite("compact", list(disk.ledger.state().parts.values()))
    assert disk.new_events(4, 6) == [3]
    assert sorted(disk.new_events(0, 6)) == [0, 1, 2, 3]
    with pytest.raises(LakeError, match="version 4 was compacted"):
        disk.new_events(3, 6)


def test_versions_in_folds_of_an_older_genus_are_found_in_its_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fold has no versions of parts; the commits have, unless they were forgotten."""
    monkeypatch.setattr(ledger_module, "FOLD_EVERY", 2)
    disk = Disk()
    for event in range(8):
        disk.commit("ingest", [[Row(event)]], [])
    folds = {path: found for path, found in disk.files.content.items() if path.endswith(".fold.json")}
    _age(disk)
    for path, found in folds.items():  # the folds that an older Genus would have made
        envelope = json.loads(found)
        commit, last = envelope["commit"], int(path[-22:-10])
        for part in commit["added"]:
            del part["first"], part["last"]
        seals = [json.loads(disk.files.content[f"/lake/_log/{n:012}.json"])["seal"] for n in range(1, last + 1)]
        commit["previous"] = ["", *seals][commit["first"] - 1]
        text = msgspec.json.encode(commit)
        seal = checksum(text + seals[-1].encode())
        disk.files.content[path] = msgspec.json.encode({"seal": seal, "commit": msgspec.Raw(text), "last": seals[-1]})
    disk.reopen()
    assert {part.unsure for part in disk.ledger.state().parts.values()} == {2, 4, 6, 8}
    assert disk.new_events(3, 8) == [3, 4, 5, 6, 7]
    assert disk.batches() == [[event] for event in range(8)]
    disk.ledger.forget(1 << 60)
    with pytest.raises(LakeError, match="start again"):
        disk.new_events(1, 8)
    assert disk.new_events(7, 8) == [7]
    assert [event for batch in disk.batches() for event in batch] == list(range(8))
