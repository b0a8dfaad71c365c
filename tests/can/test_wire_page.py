"""The page on the wire format says what the code does; its vectors are run with all code of the documentation."""

import re
from pathlib import Path

from genus.can._wire.frame import Priority, ProtocolEtag

PAGE = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()


def test_every_tag_of_the_middleware_is_on_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| ([A-Z_]+) \|", PAGE, re.MULTILINE)
    assert {name: int(tag) for tag, name in rows} == dict(ProtocolEtag.__members__)


def test_every_band_is_on_the_page() -> None:
    table = PAGE.split("| priority | band |")[1].split("```")[0]
    bands = [
        (int(first), int(last or first)) for first, last in re.findall(r"^\| (\d+)(?:\.\.|, )?(\d+)? \|", table, re.M)
    ]
    assert [number for first, last in bands for number in range(first, last + 1)] == list(range(256))
    assert (int(Priority.SOFT_FIRST), int(Priority.SOFT_LAST)) in bands
    assert {int(band) for band in (Priority.HARD, Priority.SYSTEM, Priority.NONE, Priority.BULK)} <= {
        b[0] for b in bands
    }
