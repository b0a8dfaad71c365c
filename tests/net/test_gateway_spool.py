"""The spool of a gateway: in order, bounded, counted, and kept over a restart or a crash."""

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from genus import Event, Maybe
from genus.errors import BusError
from genus.net._envelope import Origin
from genus.net._gateway.spool import SUFFIX, Spool
from genus.net._relay import Arrival


class Spooled(Event):
    number: int
    note: Maybe[str] = None


def arrival(number: int, note: str | None = None, kept: str | None = None) -> Arrival:
    return Arrival(Spooled(number=number, note=note), Origin(b"12345678", number, 3), kept)


def take_all(spool: Spool) -> list[Arrival]:
    found = []
    while (first := spool.first()) is not None:
        found.append(first)
        spool.sent()
    return found


def test_what_was_added_comes_out_in_order_with_its_origin(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    given = [arrival(number, "x" * number, "gate" if number % 2 else None) for number in range(50)]
    given[7] = replace(given[7], is_forgotten=True)
    for one in given:
        assert spool.append(one) == []
    assert len(spool) == 50
    assert take_all(spool) == given
    assert len(spool) == 0
    assert list(tmp_path.glob(f"spool/*{SUFFIX}")) == []
    spool.append(arrival(1))
    assert take_all(spool) == [arrival(1)]
    spool.close()


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=20_000)
    choice, added, found = random.Random(1), 0, []
    for _ in range(3000):
        if choice.random() < 0.5:
            spool.append(arrival(added))
            added += 1
        elif (first := spool.first()) is not None:
            found.append(first.origin.number)
            spool.sent()
    found += [one.origin.number for one in take_all(spool)]
    assert found == list(range(added))
    spool.close()


def test_a_full_spool_drops_the_oldest_and_says_how_many(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=16_000)
    dropped = sum(len(spool.append(arrival(number, "x" * 50))) for number in range(1000))
    assert spool.size <= 16_000
    left = [one.origin.number for one in take_all(spool)]
    assert left == list(range(dropped, 1000))
    assert dropped > 0
    spool.close()


def test_what_waits_is_there_after_a_restart(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=16_000)
    for number in range(100):
        spool.append(arrival(number))
    for _ in range(30):
        spool.first()
        spool.sent()
    spool.close()
    again = Spool(tmp_path, most_bytes=16_000)
    assert len(again) == 70
    again.append(arrival(100))
    assert [one.origin.number for one in take_all(again)] == list(range(30, 101))
    again.close()


def test_after_a_crash_a_part_may_come_again_but_nothing_is_missing(tmp_path: Path) -> None:
    """The process is killed: `close` is not called, and the lock is gone."""
    spool = Spool(tmp_path)
    for number in range(1000):
        spool.append(arrival(number))
    for _ in range(600):
        spool.first()
        spool.sent()
    spool._lock.close()
    again = Spool(tmp_path)
    numbers = [one.origin.number for one in take_all(again)]
    assert numbers == list(range(512, 1000))
    again.close()


def test_a_cut_file_loses_its_last_event_and_damage_its_own(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(20):
        spool.append(arrival(number, "some text of a length"))
    spool.close()
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data[:-3])
    again = Spool(tmp_path)
    assert again.damaged == 2
    numbers = [one.origin.number for one in take_all(again)]
    assert len(numbers) == 18
    assert numbers == sorted(numbers)
    again.close()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_damage_it_opens_and_the_rest_is_read(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    spool = Spool(tmp_path)
    for number in range(40):
        spool.append(arrival(number))
    spool.close()
    (path,) = tmp_path.glob(f"*{SUFFIX}")
    data = bytearray(path.read_bytes())
    for _ in range(3):
        data[choice.randrange(len(data))] = choice.randrange(256)
    path.write_bytes(data[: choice.randrange(len(data))])
    (tmp_path / "position").write_bytes(choice.randbytes(5))
    again = Spool(tmp_path)
    numbers = [one.origin.number for one in take_all(again)]
    assert numbers == sorted(set(numbers))
    again.append(arrival(99))
    assert [one.origin.number for one in take_all(again)] == [99]
    again.close()


def test_two_gateways_cannot_use_one_folder(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    with pytest.raises(BusError, match="used by another gateway"):
        Spool(tmp_path)
    spool.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(BusError, match="cannot be used"):
        Spool(tmp_path / "file")
