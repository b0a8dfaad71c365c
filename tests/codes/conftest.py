"""What the tests of codes share: real hierarchies and an oracle that walks parents."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from genus.codes import read_hierarchy

DATA = Path(__file__).parents[3] / "shared" / "data"

Hierarchy = Mapping[str, Sequence[str]]


@pytest.fixture
def real() -> Callable[[str], Hierarchy]:
    """Read one of the real hierarchies, or skip."""

    def read(path: str) -> Hierarchy:
        if not (DATA / path).exists():
            pytest.skip(f"real data not found: {DATA / path}")
        return read_hierarchy(DATA / path)

    return read
