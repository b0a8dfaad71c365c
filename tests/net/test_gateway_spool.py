"""The spool of a gateway: in order, bounded, counted, and kept over a restart or a crash."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, EIO, ENOSPC
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from genus import Event, Maybe
from genus.errors import BusError
from genus.net._envelope import Arrival, Origin
from genus.net._gateway.outlet import SUFFIX, Spool


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
    os.close(spool._position)
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


# -- a disk that refuses -----------------------------------------------------------------------------------------------


class FaultyDisk:
    """State: the calls of the operating system that a spool makes, some of which fail while `rate` is not 0.

    A write may fail after a part of it was done, as on a disk that is full.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rate = 0.0
        self.failures = 0

    def refuses(self) -> bool:
        fails = self.random.random() < self.rate
        self.failures += fails
        return fails

    def call(self, name: str, real: Any) -> Any:
        def called(*arguments: Any) -> Any:
            if not self.refuses():
                return real(*arguments)
            if name in ("write", "pwrite") and self.random.random() < 0.5:
                part = arguments[1][: self.random.randrange(len(arguments[1]))]
                return real(arguments[0], part, *arguments[2:])
            raise OSError(self.random.choice([ENOSPC, EDQUOT, EIO]), "injected")

        return called

    @contextmanager
    def used(self) -> Iterator["FaultyDisk"]:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("write", "pwrite", "fsync", "ftruncate"):
                patch.setattr(os, name, self.call(name, getattr(os, name)))
            yield self


def run_on_faulty_disk(folder: Path, seed: int, steps: int = 400) -> tuple[list[int], list[int], list[int]]:
    """Append and send at random, on a disk that fails in phases; what was appended, what was told, what came out."""
    disk = FaultyDisk(seed)
    added, told, found = [], [], []
    with disk.used():
        spool = Spool(folder, most_bytes=disk.random.choice([8_000, 20_000, 1 << 20]))
        for step in range(steps):
            if step % 50 == 0:
                disk.rate = disk.random.choice([0.0, 0.1, 0.5, 1.0])
            if disk.random.random() < 0.7:
                added.append(step)
                try:
                    told += [one.origin.number for one in spool.append(arrival(step, "x" * disk.random.randrange(80)))]
                except OSError:
                    told.append(step)
            elif (first := spool.first()) is not None:
                found.append(first.origin.number)
                spool.sent()
            if disk.random.random() < 0.02:
                spool.sync()
        disk.rate = 0.0
        before = len(told)
        for step in range(steps, steps + 20):  # there is space again
            added.append(step)
            told += [one.origin.number for one in spool.append(arrival(step))]
        assert not set(told[before:]) & set(range(steps, steps + 20))
        found += [one.origin.number for one in take_all(spool)]
        assert spool.damaged == 0
        assert list(folder.glob(f"*{SUFFIX}")) == []
        spool.close()
    assert disk.failures > 0
    return added, told, found


@pytest.mark.parametrize("seed", range(10))
def test_on_a_disk_that_fails_each_event_comes_out_once_or_is_told(tmp_path: Path, seed: int) -> None:
    added, told, found = run_on_faulty_disk(tmp_path, seed)
    assert sorted(told + found) == added
    assert found == sorted(found)


@pytest.mark.slow
def test_sweep_of_disks_that_fail(tmp_path: Path) -> None:
    for seed in range(100, 1100):
        added, told, found = run_on_faulty_disk(tmp_path / str(seed), seed)
        assert sorted(told + found) == added


def test_files_that_cannot_be_read_again_are_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, most_bytes=16_000)
    for number in range(100):
        spool.append(arrival(number))
    victim = min(tmp_path.glob(f"*{SUFFIX}"))
    victim.unlink()
    found = take_all(spool)
    assert 0 < spool.damaged == 100 - len(found) < 100
    spool.close()
