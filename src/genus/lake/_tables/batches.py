"""Which version of a lake each row came with, so that followers read what is new from the present files alone.

The rows of an ingest have the version of its commit, which the ledger notes with their parts. Files that a compaction
or a deletion writes have the version of each row in a column, `_batch`, and their parts the first and the last one. So
a follower that has processed a version goes on with the rows of later ones, whatever became of the files they came in.
"""

from collections.abc import Iterable, Sequence

import msgspec

from genus.errors import LakeError
from genus.lake._tables.commits import Part
from genus.lake._tables.ledger import Ledger
from genus.lake._tables.names import DEAD_LETTERS
from genus.lake._tables.state import LedgerState


def joined_versions(parts: Iterable[Part]) -> dict[str, int]:
    """Return the fields `first`, `last` and `unsure` of a part that has rows of several ones."""
    given = list(parts)
    return {
        "first": min(part.first for part in given),
        "last": max(part.last for part in given),
        "unsure": max(part.unsure for part in given),
    }


def is_cut(part: Part, after: int) -> bool:
    """Return whether a part has rows of a version and before, and later ones: its rows are told apart by `_batch`."""
    return part.first <= after < part.last


def parts_after(ledger: Ledger, state: LedgerState, after: int) -> list[Part]:
    """Return the parts of event tables in a state with rows that came after a version; 0 for all.

    LakeError if an older Genus has rewritten rows that came before and after it.
    """
    found = [part for part in state.parts.values() if part.last > after and part.table != DEAD_LETTERS]
    if not after or all(part.unsure <= after for part in found):
        return found
    found = [part for part in find_versions(ledger, found, after) if part.last > after]
    if unsure := [part.unsure for part in found if part.unsure > after]:
        raise LakeError(
            f"version {max(unsure)} was compacted by an older Genus that did not keep numbers, so that events after "
            f"version {after} cannot be told from earlier ones; start again with a new folder or checkpoint"
        )
    return found


def find_versions(ledger: Ledger, parts: Sequence[Part], after: int = 0) -> list[Part]:
    """Parts of a lake that an older Genus has written, with the versions that commits after a version say.

    If all these commits are there, what they do not name came before. What is not known stays unsure.
    """
    wanted = {part.folder for part in parts if part.unsure > after}
    found: dict[str, Part] = {}
    for commit in ledger.history() if wanted else ():
        if commit.version <= after:
            earlier = {"first": after, "last": after, "unsure": after}
            found |= {part.folder: msgspec.structs.replace(part, **earlier) for part in parts if part.folder in wanted}
            break
        found |= {part.folder: part for part in commit.added if part.folder in wanted}
        wanted -= found.keys()
        if not wanted:
            break
    return [found.get(part.folder, part) for part in parts]
