"""The results of a run, from which the report is made and which `--json` prints, and the steps that give them."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from typing import TypeAlias

import msgspec

GOAL = 0.995
"""Of the complete passages, how many speeds have to be right."""


class TypeRow(msgspec.Struct, frozen=True, kw_only=True):
    """An event type or kind, as the catalog knows it."""

    name: str
    says: str
    """The first line of its docstring."""
    parents: tuple[str, ...]
    is_kind: bool
    code: int
    factors: tuple[int, ...]
    etag: int | None
    """None for kinds."""
    etag_blocks: tuple[tuple[int, int], ...] = ()
    """The (value, mask) pairs that its event tags, and those of all types below it, lie in."""
    attributes: tuple[str, ...]
    """Its own ones, without those it inherits."""
    bits: dict[str, int]
    """The bit of every attribute in its family's vector."""


class CompiledSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription, what it was compiled to, and how many events it matched on each target."""

    subscriber: str
    """VelocityMonitor, StatisticsCollector, ..."""
    text: str
    filters: tuple[tuple[int, int], ...]
    """Acceptance filters of a CAN controller: 29-bit (value, mask)."""
    left_to_receiver: str
    """What the filters cannot test, in words; empty if nothing."""
    python: str
    """The generated code."""
    spark: str
    """What Spark does, in plain words: its explain()."""
    answers: dict[str, int]
    """Events it matched, by target: "CAN", "bus", "python", "arrow", "index", "replay", "Spark"."""


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A site of the city, with its own CAN segment."""

    name: str
    place: str
    kind: str
    """Such as "motorway", "street", "signals"."""
    lanes: int
    refit_us: int | None
    """When its upper sensor was replaced."""


class FrameSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A frame on the bus; microseconds count from the start of the picture."""

    start_us: float
    end_us: float
    channel: str
    node: str
    qos: str
    """"hard", "soft", "none" or "system"."""
    identifier: int
    """The 29 bits of the arbitration, of which the first 8 are the priority."""


class SlotSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A slot of the calendar, reserved for a hard channel; its event is delivered exactly at the end."""

    start_us: float
    deadline_us: float
    channel: str


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A soft event from when it was published to when it was delivered, with its deadline."""

    published_us: float
    delivered_us: float | None
    """None if it never was."""
    deadline_us: float
    channel: str


class BusPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A short span of one segment's bus."""

    site: str
    from_us: int
    length_us: float
    frames: tuple[FrameSpan, ...]
    slots: tuple[SlotSpan, ...]
    waits: tuple[Wait, ...]


class ChannelRow(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a channel on one segment."""

    site: str
    channel: str
    """Such as "Occupancy of upper"."""
    qos: str
    """"hard", "soft" or "none"."""
    published: int
    delivered: int
    """Deliveries to subscribing nodes: an event with two receivers counts twice."""
    filtered: int
    """Rejected by acceptance filters of CAN controllers or by receivers, once per node."""
    missed: int
    """Events that were not there at the deadline (hard), sent too late or not at all (soft), or lost (none)."""
    worst_us: float
    """The longest time from publishing (hard: from the slot's start) to the end of the event's last frame."""
    bound_us: float | None
    """The bound of `worst_us` that the plan proves; None if the channel has none."""


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """The vehicles of a category at a site in a minute."""

    site: str
    category: str
    start: datetime
    count: int
    speed_mean: float | None
    """In m/s; None if no speed could be measured."""


class Trap(msgspec.Struct, frozen=True, kw_only=True):
    """Passages that are hard to measure, and how many were measured right."""

    name: str
    met: int
    right: int
    """Within the tolerance; for one-sided hits: no speed was invented."""


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Speeds against the truth."""

    complete: int
    """Passages that both loops detected."""
    right: int
    """Those whose speed is within the tolerance."""
    wrong: int
    """Those whose speed is not."""
    unmeasured: int
    """Those without one."""
    one_sided: int
    """Passages that are not complete."""
    invented: int
    """Speeds that belong to no passage."""
    tolerance: float
    errors: tuple[tuple[float, float, int], ...]
    """A histogram of measured minus true speed: from, to (m/s), passages."""
    by_site: dict[str, tuple[int, int]]
    """Complete and right ones."""
    traps: tuple[Trap, ...]
    counted: int
    """Vehicles in the statistics."""
    to_count: int
    """Vehicles that upper loops detected and reported in time."""

    @property
    def share(self) -> float:
        """Of the complete passages, those that are right; 1 if there are none."""
        return self.right / self.complete if self.complete else 1.0

    @property
    def is_good(self) -> bool:
        """Whether enough of the speeds are right, and none was invented."""
        return self.reaches_goal and self.invented == 0

    @property
    def reaches_goal(self) -> bool:
        """Whether enough of the speeds are right; with few vehicles, one may have none."""
        return self.share >= GOAL or (self.wrong == 0 and self.complete - self.right <= 1 < self.complete)


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """What the statistics collector received from a site in a span of time."""

    site: str
    start_us: int
    old: int
    """From the first generation of sensors."""
    new: int
    """From the one that reports a confidence."""


class Refit(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of sensors, as the statistics collector received it without a restart."""

    span_us: int
    """Of each `Received`."""
    received: tuple[Received, ...]
    published: int
    """Events that conform to its subscription, counted where they were made."""
    delivered: int
    asked_us: int | None
    """When the second subscription, for events with `confidence`, was made."""
    confident: int
    """Events of the second subscription."""
    longest_pause_s: dict[str, float]
    """Per site: the longest time between two of its events around the refit."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the run."""

    name: str
    seconds: float
    amount: int
    what: str
    """What is counted: "frames", "events", "passages"."""


class Roadside(msgspec.Struct, frozen=True, kw_only=True):
    """Passages of the roadside velocity monitors compared with those of the lake, in lanes without late events."""

    lanes: int
    alike: int
    """Lanes in which both found exactly the same passages."""
    passages: int


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """Events that arrived out of order or too late."""

    out_of_order: int
    late: int
    """Too late to be counted: the same ones in batch and on a stream."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a run."""

    seed: int
    start: datetime
    minutes: float
    master: str
    machine: str
    """Such as "2 cores, Python 3.11, Spark 4.1"."""
    sites: tuple[Site, ...]
    types: tuple[TypeRow, ...]
    subscriptions: tuple[CompiledSubscription, ...]
    bus: BusPicture
    channels: tuple[ChannelRow, ...]
    traffic: tuple[Minute, ...]
    accuracy: Accuracy
    refit: Refit
    lateness: Lateness
    stages: tuple[Stage, ...]
    roadside: Roadside
    stream_equals_batch: bool
    event_count: int
    dead_letters: int


# -- the steps of a run ------------------------------------------------------------------------------------------------


Progress: TypeAlias = Callable[[float], object]
"""Called with how much of a step is done, up to 1."""
Display: TypeAlias = Callable[[str], AbstractContextManager[Progress]]
"""Displays the step of a name while it runs."""


def no_display(_: str) -> AbstractContextManager[Progress]:
    """Display nothing."""
    return nullcontext(lambda _: None)


class Step:
    """State: a step while it runs."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.amount = 0
        """How much was done; the block sets it."""


class Steps:
    """State: the finished steps."""

    def __init__(self, display: Display = no_display) -> None:
        self.stages: list[Stage] = []
        self._display = display

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Time and display the block as a step; `what` is counted in it, such as events."""
        began = time.perf_counter()
        with self._display(name) as progress:
            step = Step(progress)
            yield step
        seconds = time.perf_counter() - began
        self.stages.append(Stage(name=name, seconds=seconds, amount=step.amount, what=what))
