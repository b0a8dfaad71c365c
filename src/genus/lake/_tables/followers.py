"""The followers of a lake: inboxes, derived tables and functions of streams, and how far each has come.

Each has a store of its own, whose first commit names the lake, and whose ledger has the version that was processed. A
lake does not know where they are; those in its folder, beside it and at given paths are found.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Literal, get_args

import msgspec

from genus.errors import LakeError
from genus.lake._tables.commits import count_rows
from genus.lake._tables.files import absolute_path, local_path
from genus.lake._tables.ledger_folder import LOG_FOLDER
from genus.lake._tables.state import LedgerState
from genus.lake._tables.store import HOLDS, Store
from genus.model.internal import time_of_micros

STREAMS = "_streams"
"""The folder of a lake for what streams keep."""
MAX_FOLDERS = 1000
"""Folders in one place that are looked at."""
FollowerKind = Literal["inboxes", "derived", "function"]


class FollowerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A follower of a lake, from `LakeReader.followers`."""

    path: str
    kind: FollowerKind
    """`function` is what `Stream.for_each` calls."""
    version: int
    """The version of the lake that it has processed."""
    behind: int
    """Commits of the lake that it has not processed."""
    rows: int
    """Deliveries or results that it has, and rows that wait."""
    at: datetime
    """When it last committed something."""
    about: str = ""
    """The analysis and the subscription, where it has one."""
    problem: str = ""
    """Why it cannot go on; empty if nothing is wrong."""


class FollowerSearch:
    """State: the stores of followers that were found, each of which is read on, and the folders that are none."""

    def __init__(self, lake: Store) -> None:
        self._lake = lake
        self._stores: dict[str, Store] = {}

    def find(self, paths: Iterable[str | os.PathLike[str]] = ()) -> list[FollowerStatus]:
        """How far the followers have come, by path; those in the lake's folder, beside it, and at given paths."""
        lake = self._lake.state()
        opened: dict[str, Store] = {}
        for path in filter(_has_ledger, dict.fromkeys([*self._folders(), *map(absolute_path, paths)])):
            with suppress(LakeError):  # such as one that only Spark can open
                opened[path] = self._stores.get(path) or Store(path)
        self._stores = opened
        found = [self._status(store, lake) for store in opened.values()]
        return sorted((each for each in found if each is not None), key=lambda each: each.path)

    def _folders(self) -> Iterator[str]:
        path, files = self._lake.path, self._lake.files
        for stream in files.list_folder(f"{path}/{STREAMS}")[:MAX_FOLDERS]:
            yield stream.path
            yield from (each.path for each in files.list_folder(stream.path)[:MAX_FOLDERS] if each.is_folder)
        local = local_path(path)
        for place in () if local is None else (local, os.path.dirname(local)):
            yield from (each for each in _folders_in(place) if each != local)

    def _status(self, store: Store, lake: LedgerState) -> FollowerStatus | None:
        try:
            state = store.state()
        except (LakeError, OSError) as problem:
            self._stores = {path: each for path, each in self._stores.items() if each is not store}
            if not store.path.startswith(f"{self._lake.path}/{STREAMS}/"):
                return None  # only its place can say that it is of this lake
            return FollowerStatus(
                path=store.path,
                kind="function",
                version=0,
                behind=0,
                rows=0,
                at=time_of_micros(0),
                problem=str(problem),
            )
        kind = state.notes.get(HOLDS, "lake")
        if kind not in get_args(FollowerKind) or state.notes.get("lake") != lake.lake:
            return None
        version = state.cursor.version
        restored = f"it has processed version {version} of before the lake was restored or replaced"
        return FollowerStatus(
            path=store.path,
            kind=kind,  # type: ignore[arg-type]
            version=version,
            behind=max(0, lake.version - version),
            rows=count_rows(state.parts.values()),
            at=time_of_micros(state.at_us),
            about=" of ".join(filter(None, (state.notes.get("analysis"), state.notes.get("subscription")))),
            problem="" if self._lake.ledger.has(state.cursor) else restored,
        )


def _folders_in(place: str) -> list[str]:
    try:
        with os.scandir(place) as entries:
            names = [each.path for each in islice(entries, MAX_FOLDERS) if not each.name.startswith((".", "_"))]
    except OSError:
        return []
    return list(filter(_has_ledger, names))


def _has_ledger(path: str) -> bool:
    """Return whether a folder has a ledger; others than local ones may have one."""
    return local_path(path) is None or os.path.isdir(os.path.join(path, LOG_FOLDER))
