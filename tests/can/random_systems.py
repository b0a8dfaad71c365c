"""Random systems on a CAN bus from a seed: hard, soft and other channels, with a load at which many are admitted."""

import random
from collections.abc import Iterator
from typing import Any

from genus.can import BusSpec, ChannelSpec, System, Timing
from genus.can.internal import FIRST_ETAG
from genus.can.types import Slot

MILLISECOND = 1_000_000

_BITRATES = (1_000_000, 1_000_000, 500_000, 250_000)
_HARD_PERIODS_MS = (5, 10, 20, 40)
_MAX_SOFT = 24
"""The most bytes of a soft event; one in eight is longer than a classic frame."""


def random_system(
    seed: int, *, load: float | None = None, bitrate: int | None = None, data_bitrate: int | None = None
) -> System:
    """Return a random system, the same for the same arguments.

    `load` is the share of the bus that soft events take, 0 to 1; it and the bit rates are random unless given.

    >>> system = random_system(7)
    >>> system == random_system(7), len(system.channels) == len(system.hard) + len(system.soft) + len(system.none)
    (True, True)
    """
    rng = random.Random(f"system {seed}")
    timing = Timing(bitrate or rng.choice(_BITRATES), data_bitrate)
    bus = BusSpec(timing=timing, precision_ns=rng.choice((1, 5, 10)) * 1_000)
    nodes = {f"node-{number}": number for number in range(1, rng.randint(3, 16) + 1)}
    channels = [*_hard(rng, bus), *_soft(rng, bus, load or rng.uniform(0.05, 0.5)), *_none(rng)]
    numbered = (_random_channel(rng, number, fields, nodes) for number, fields in enumerate(channels))
    return System(bus, tuple(channel.on_bus(bus) for channel in numbered), nodes, f"random system {seed}")


def _random_channel(rng: random.Random, number: int, fields: dict[str, Any], nodes: dict[str, int]) -> ChannelSpec:
    """Return a channel with a random publisher and random subscribers."""
    node, *subscribers = rng.sample(list(nodes), min(len(nodes), rng.randint(2, 4)))
    name = f"{fields['qos_class']}-{number}"
    return ChannelSpec(
        name=name,
        event=name,
        node=node,
        number=nodes[node],
        etag=FIRST_ETAG + number,
        subscribers=tuple(subscribers),
        **fields,
    )


def _hard(rng: random.Random, bus: BusSpec) -> Iterator[dict[str, Any]]:
    """Hard channels that together reserve up to half of the bus."""
    reserved, most = 0.0, rng.uniform(0, 0.5)
    scale = max(1, 1_000_000 // bus.timing.bitrate)
    while True:
        fields: dict[str, Any] = {
            "qos_class": "hard",
            "period_ns": rng.choice(_HARD_PERIODS_MS) * scale * MILLISECOND,
            "omissions": rng.choice((0, 1, 1, 2)),
            "size": rng.choice((rng.randint(1, 8), 8, 8, 12)),
        }
        slot = Slot.of(ChannelSpec(name="", event="", node="", number=1, etag=FIRST_ETAG, **fields).on_bus(bus), bus)
        reserved += slot.length_ns / slot.period_ns
        if reserved > most:
            return
        yield fields


def _soft(rng: random.Random, bus: BusSpec, load: float) -> list[dict[str, Any]]:
    """Soft channels, with periods scaled so that they take the load."""
    drafts: list[dict[str, Any]] = [
        {"qos_class": "soft", "size": _soft_size(rng), "period_ns": int(10 ** rng.uniform(6.5, 8.3))}
        for _ in range(rng.randint(4, 20))
    ]
    taken = sum(sum(map(bus.frame_ns, bus.frame_sizes(draft["size"]))) / draft["period_ns"] for draft in drafts)
    for draft in drafts:
        period = int(draft["period_ns"] * taken / load) // 1_000 * 1_000
        deadline = int(period * rng.uniform(0.5, 1.0))
        jitter = rng.choice((0, 0, rng.randint(0, period // 10)))
        draft |= {"period_ns": period, "deadline_ns": deadline, "expires_ns": 2 * deadline, "jitter_ns": jitter}
    return drafts


def _soft_size(rng: random.Random) -> int:
    return rng.randint(9, _MAX_SOFT) if rng.random() < 1 / 8 else rng.randint(1, 8)


def _none(rng: random.Random) -> Iterator[dict[str, Any]]:
    for _ in range(rng.randint(1, 5)):
        yield {
            "qos_class": "none",
            "period_ns": rng.randint(20, 500) * MILLISECOND,
            "jitter_ns": rng.choice((0, rng.randint(0, 20) * MILLISECOND)),
            "priority": rng.choice((0, 0, 1)),
            "size": rng.choice((rng.randint(1, 8), 8, rng.randint(9, 64))),
        }
