"""Response times under fixed priorities: published examples, and a bus that is simulated tick by tick."""

import heapq
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._plan.interference import (
    NO_ERRORS,
    NO_HARD,
    ErrorInterference,
    HardInterference,
    Message,
    middleware_messages,
    response_time,
)
from genus.can._plan.system_file import parse_system
from genus.can._wire.frame import Identifier


def response_times(
    messages: Sequence[Message], hard: HardInterference = NO_HARD, errors: ErrorInterference = NO_ERRORS
) -> dict[str, int | None]:
    """The response time of every message; None if it has no bound."""
    everything = sorted(messages, key=lambda message: message.rank)
    return {
        message.name: response_time(message, everything[:index], everything[index + 1 :], hard, errors)
        for index, message in enumerate(everything)
    }


def observed(messages: Sequence[Message], first: Sequence[int], until: int) -> dict[str, int]:
    """The longest response of each message when all come periodically from given instants on."""
    arrivals = sorted(
        (time, message.rank)
        for message, begin in zip(messages, first, strict=True)
        for time in range(begin, until, message.period)
    )
    arrivals.reverse()
    by_rank = {message.rank: message for message in messages}
    waiting: list[tuple[float, int]] = []
    worst = dict.fromkeys((message.name for message in messages), 0)
    now = 0
    while arrivals or waiting:
        if not waiting:
            now = max(now, arrivals[-1][0])
        while arrivals and arrivals[-1][0] <= now:
            time, rank = arrivals.pop()
            heapq.heappush(waiting, (rank, time))
        rank, time = heapq.heappop(waiting)
        now += by_rank[rank].length
        worst[by_rank[rank].name] = max(worst[by_rank[rank].name], now - time)
    return worst


def test_the_example_that_refuted_the_earlier_analysis() -> None:
    """Davis et al. 2007: the second event of C in its busy period takes longest."""
    periods = {"A": 2_500_000, "B": 3_500_000, "C": 3_500_000}
    messages = [Message(name, rank, (1_000_000,), period) for rank, (name, period) in enumerate(periods.items())]
    assert response_times(messages) == {"A": 2_000_000, "B": 3_000_000, "C": 3_500_000}


message_sets = st.lists(
    st.tuples(st.integers(10, 60), st.integers(60, 400)),
    min_size=1,
    max_size=5,
).map(lambda parts: [Message(str(rank), rank, (length,), period) for rank, (length, period) in enumerate(parts)])


@given(message_sets)
def test_the_bound_is_reached_at_the_critical_instant(messages: list[Message]) -> None:
    """The longest frame below starts a tick before all others come, and so blocks them a tick less than it might."""
    for place, message in enumerate(messages):
        above, below = messages[:place], messages[place + 1 :]
        blocker = max(below, key=lambda other: other.length, default=None)
        shorter = [Message("", 99, (blocker.length - 1,), 1)] if blocker else []
        bound = response_time(message, above, shorter)
        if bound is None or sum(each.length / each.period for each in (message, *above)) > 0.95:
            continue  # the busy period may be longer than what is observed
        late = 10**6  # the others below stay away
        first = [1 if other.rank <= message.rank else 0 if other is blocker else late for other in messages]
        assert observed(messages, first, 1 + 20_000)[message.name] == bound


@given(message_sets, st.data())
def test_no_phase_makes_it_longer(messages: list[Message], data: st.DataObject) -> None:
    first = [data.draw(st.integers(0, message.period)) for message in messages]
    bounds = response_times(messages)
    for name, worst in observed(messages, first, 4_000).items():
        bound = bounds[name]
        assert bound is None or worst <= bound


def test_a_queue_that_grows_for_ever_has_no_bound() -> None:
    bounds = response_times([Message("a", 0, (60,), 100), Message("b", 1, (50,), 100)])
    assert bounds == {"a": 110, "b": None}


def test_jitter_lets_events_come_in_a_row() -> None:
    calm = Message("a", 0, (10,), 100)
    hasty = Message("a", 0, (10,), 100, jitter=95)
    victim = Message("b", 1, (10,), 1_000)
    assert response_time(victim, [calm], []) == 20
    assert response_time(victim, [hasty], []) == 30
    assert response_time(hasty, [], []) == 15  # the second comes 5 ticks after the first


def test_between_the_frames_of_an_event_more_urgent_ones_go_first() -> None:
    long = Message("long", 1, (20, 20, 20, 20, 10, 10), 10_000)
    short = Message("short", 0, (5,), 50)
    assert response_times([long, short])["short"] == 25
    assert response_times([long, short])["long"] == 100 + 5 * 3  # at 0, 50 and 100


def test_hard_slots_and_errors_take_their_time() -> None:
    message = Message("a", 0, (10,), 1_000)
    slots = HardInterference([(0, 30), (50, 30)], 1_000)
    assert response_time(message, [], [], slots) == 40
    assert response_time(message, [], [], slots, ErrorInterference(1_000, 5)) == 40 + 5 + 10
    assert response_time(message, [], [], HardInterference([(0, 999)], 1_000)) is None
    assert response_time(message, [], [], errors=ErrorInterference(15, 5)) is None


@pytest.mark.parametrize("rank", [0, 1])
def test_the_last_message_is_not_blocked(rank: int) -> None:
    messages = [Message("0", 0, (10,), 1_000), Message("1", 1, (30,), 1_000)]
    assert response_times(messages)[str(rank)] == 40


def test_the_middleware_sends_each_of_its_frames_with_its_own_period() -> None:
    """Those of the broker, a heartbeat of each node, and a report of each channel; below all soft events."""
    text = '[bus]\nbitrate = "500k"\nsync_period = "50ms"\n[nodes]\na = 5\nb = 6\n[[channel]]\nname = "c"\nnode = "a"\n'
    system = parse_system(text + 'class = "none"\nperiod = "1s"\nsize = 1\n')
    found = {each.name: (int(each.rank), each.frames, each.period) for each in middleware_messages(system)}
    assert found == {
        name: (Identifier(251, node, etag).pack(), (320_000,), period * 1_000_000)
        for name, node, etag, period in [
            ("sync", 127, 8, 50), ("follow-up", 127, 9, 50), ("broker", 127, 10, 800),
            ("claim of a", 5, 5, 800), ("claim of b", 6, 5, 800), ("report of c", 5, 7, 1_000),
        ]
    }  # fmt: skip
    silent = msgspec.structs.replace(system.bus, middleware=False)
    assert middleware_messages(system.on_bus(silent)) == []


def test_a_message_has_the_time_of_all_its_frames() -> None:
    message = Message("a", 0, (20, 30, 10), 100, jitter=5)
    assert (message.length, message.blocking, message.last) == (60, 30, 10)
    assert [message.work(window) for window in (0, 94, 95, 195)] == [60, 60, 120, 180]
    assert Message("a", 0, (20, 10), 100, deadline=70).latest == 60


def test_hard_slots_may_start_earlier_or_later_by_the_error_of_the_clocks() -> None:
    starts = [(0, 3), (10, 5)]
    shifted = HardInterference(starts, 100, shift_ns=2)
    assert [shifted.within(window) for window in (5, 6, 85, 86)] == [5, 8, 8, 8]
    assert HardInterference(starts, 100).rate == pytest.approx(0.08)
    with_stream = HardInterference(starts, 100, 0, [Message("s", 0, (7,), 50)])
    assert [with_stream.within(window) for window in (0, 10, 50)] == [5 + 7, 8 + 7, 8 + 14]
    assert with_stream.rate == pytest.approx(0.08 + 0.14)
    assert HardInterference((), 0).rate == NO_HARD.within(10**9) == 0


def test_errors_come_at_least_their_interval_apart() -> None:
    errors = ErrorInterference(1_000, 31)
    assert [errors.within(window, 160) for window in (0, 999, 1_000, 2_000)] == [191, 191, 382, 573]
    assert errors.rate(160) == pytest.approx(0.191)
    assert (NO_ERRORS.within(10**9, 160), NO_ERRORS.rate(160)) == (0, 0)
