"""What a commit costs in a ledger that grows, and what opening it costs; on the local disk, flushes included."""

import tempfile
import time
from typing import NamedTuple

from bench.timing import markdown
from genus.lake._tables.commits import CommitDraft, IngestedFile, Part, StoredFile
from genus.lake._tables.file_systems import LocalFileSystem
from genus.lake._tables.ledger import FOLD_EVERY, RADIX, Ledger

BLOCK = FOLD_EVERY * RADIX
"""Commits that are measured together, so that each block has its share of folds."""
MARKS = (5_000, 25_000)


class Cost(NamedTuple):
    """Milliseconds."""

    commits: int
    per_commit: float
    opening: float


def run(marks: tuple[int, ...] = MARKS) -> list[Cost]:
    """The cost after the first hundred commits, and around each mark."""
    with tempfile.TemporaryDirectory() as folder:
        ledger, costs, made = Ledger(LocalFileSystem(), folder), [], 0
        for upto in (100, *marks):
            while made + BLOCK < upto:
                made = _commit(ledger, made, BLOCK)
            began = time.perf_counter()
            done = _commit(ledger, made, upto - made)
            per_commit = (time.perf_counter() - began) / (done - made) * 1e3
            made = done
            costs.append(Cost(made, per_commit, _opening(folder)))
        return costs


def _commit(ledger: Ledger, first: int, count: int) -> int:
    for number in range(first, first + count):
        ledger.commit(_draft(number))
    return first + count


def _draft(number: int) -> CommitDraft:
    """An ingest of one file into two tables."""
    id = f"{number:016x}"
    stored = (StoredFile("part-00000-000.parquet", 1000, 26_000, "0" * 32, "1" * 32),)
    added = tuple(Part(name, f"tables/{name}/_commit={id}/_day=2026-05-01", stored, {1: 1000}) for name in "AB")
    source = IngestedFile(number, f"/landing/{number:08}.genus", 100_000, 2000, 0)
    return CommitDraft(id=id, kind="ingest", at_us=number, added=added, sources=(source,))


def _opening(folder: str) -> float:
    """The least of five."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        Ledger(LocalFileSystem(), folder).state()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def table(costs: list[Cost]) -> str:
    rows = [[f"{each.commits:,}", f"{each.per_commit:.2f}", f"{each.opening:.0f}"] for each in costs]
    return markdown(["commits", "ms per commit", "ms to open"], rows)


if __name__ == "__main__":
    print(table(run()))
