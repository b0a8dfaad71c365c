"""Response times of soft events: against a model of the bus in which they compete by quantised priorities."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genus.can._plan.admission import plan
from genus.can._plan.calendar import Calendar
from genus.can._plan.interference import ErrorInterference, HardInterference, Message, response_time
from genus.can._plan.response_times import BusConditions, ResponseTimes, Rival, SoftAnalysis
from genus.can._plan.system import BusSpec, ChannelSpec, System
from genus.can._wire.frame import Timing
from tests.can.bus_model import random_releases, run, simultaneous_releases, streams
from tests.examples import examples

FRAME = 160


def message(name: str, period: int, deadline: int, frames: int = 1, jitter: int = 0) -> Message:
    return Message(name, 0, frames * (FRAME,), period, jitter, deadline)


def medium(*, tolerance: int = FRAME, blocking: int = FRAME, hard: HardInterference | None = None) -> BusConditions:
    nothing = HardInterference((), 0)
    return BusConditions(FRAME, tolerance, blocking, hard or nothing, ErrorInterference(None, 31))


def bounds(*messages: Message, on: BusConditions) -> dict[str, int | None]:
    analysis = SoftAnalysis(messages, on)
    return {message.name: analysis.response_time(index) for index, message in enumerate(messages)}


def test_one_event_waits_for_a_frame_on_the_wire() -> None:
    assert bounds(message("a", 10_000, 5_000), on=medium()) == {"a": 2 * FRAME}


def test_an_event_that_was_queued_during_a_frame_may_wait_for_one_more() -> None:
    """It competes once with the priority it had then, so that one more than a level less urgent passes."""
    near, later = message("near", 10_000, 1_000), message("later", 10_000, 1_000 + 2 * FRAME - 1)
    assert bounds(near, later, on=medium())["near"] == 3 * FRAME
    assert bounds(near, later, on=medium(blocking=0))["near"] == 2 * FRAME


def test_an_event_that_must_start_much_later_does_not_pass() -> None:
    near, far = message("near", 10_000, 1_000), message("far", 100_000, 50_000)
    assert bounds(near, far, on=medium())["near"] == 2 * FRAME
    assert bounds(near, far, on=medium())["far"] == 3 * FRAME


def test_events_within_the_tolerance_pass() -> None:
    found = bounds(message("a", 10_000, 1_000), message("b", 10_000, 1_000 + FRAME - 1), on=medium())
    assert found["a"] == 3 * FRAME
    found = bounds(message("a", 10_000, 1_000), message("b", 10_000, 1_000 + FRAME + 1), on=medium(blocking=0))
    assert found["a"] == 2 * FRAME  # b came a tick before, and now is within the tolerance


@pytest.mark.parametrize("later", [1, 5, FRAME // 2])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_all_that_came_before_into_the_tolerance_pass(later: int, is_foreign: bool) -> None:
    """Events, or frames of others, which come before the event until they must start exactly the tolerance later."""
    start, frames = 1_000 + later, range(3)
    rivals = tuple(Rival(start, FRAME, 10_000, 0) for _ in frames if is_foreign)
    events = [message(str(number), 10_000, start + FRAME) for number in frames if not is_foreign]
    conditions = msgspec.structs.replace(medium(blocking=0), rivals=rivals)
    assert bounds(message("a", 10_000, 1_000), *events, on=conditions)["a"] == 4 * FRAME - later


def test_what_is_further_than_all_levels_may_pass_what_is_nearer() -> None:
    horizon = 249 * FRAME
    first, last = message("first", 10**6, horizon + 5_000), message("last", 10**6, horizon + 50_000)
    assert bounds(first, last, on=medium())["first"] == 3 * FRAME


def test_hard_slots_and_errors_are_in_the_way() -> None:
    hard = HardInterference([(0, 351)], 10_000)
    assert bounds(message("a", 10_000, 5_000), on=medium(hard=hard)) == {"a": 2 * FRAME + 351}
    with_errors = BusConditions(FRAME, FRAME, FRAME, hard, ErrorInterference(10_000, 31))
    assert bounds(message("a", 10_000, 5_000), on=with_errors) == {"a": 2 * FRAME + 351 + 31 + FRAME}


def test_more_than_the_bus_can_carry_has_no_bound() -> None:
    assert bounds(message("a", 200, 150), message("b", 500, 400), on=medium()) == {"a": None, "b": None}
    assert bounds(on=medium()) == {}


def test_very_many_short_frames_are_still_analysed() -> None:
    """So many that there is always another one within the tolerance: everything may pass everything."""
    crowd = [Message(str(n), 0, (20,), 1_000, deadline=900 + n) for n in range(20)]
    found = bounds(*crowd, on=medium())
    assert all(response is not None and response <= FRAME + 2 * 20 * 20 for response in found.values())


soft_sets = st.lists(
    st.tuples(st.sampled_from([2, 3, 4, 5, 7, 10, 20]), st.integers(40, 100), st.integers(0, 12), st.integers(0, 15)),
    min_size=2,
    max_size=6,
)


def system_of(parts: list[tuple[int, int, int, int]]) -> System:
    bus = BusSpec(timing=Timing(1_000_000), middleware=False)
    channels = [
        ChannelSpec(
            name=str(place),
            event=str(place),
            node=str(place),
            number=len(parts) - place,
            etag=128,
            qos_class="soft",
            period_ns=(period := milliseconds * 1_000_000),
            deadline_ns=period * percent // 100,
            jitter_ns=period * jitter // 100,
            size=size,
        ).on_bus(bus)
        for place, (milliseconds, percent, size, jitter) in enumerate(parts)
    ]
    return System(bus, tuple(channels), {channel.node: channel.number for channel in channels})


@examples(60)
@given(soft_sets, st.integers(0, 10**6))
def test_no_pattern_exceeds_the_bound(parts: list[tuple[int, int, int, int]], seed: int) -> None:
    system = system_of(parts)
    analysis = ResponseTimes(system, Calendar())
    kept = [channel for channel in system.channels if analysis.meets_deadline(channel)]
    rng = random.Random(seed)
    for releases in (
        simultaneous_releases(system, 60_000_000, 0),
        random_releases(system, 60_000_000, rng),
        nearly_together(system, rng),
    ):
        outcome = run(system, Calendar(), releases, 60_000_000)
        for channel in kept:
            response = analysis.response_ns(channel)
            assert response is not None
            assert outcome.worst.get(channel.name, 0) <= response


def nearly_together(system: System, rng: random.Random) -> dict[str, list[int]]:
    """Events that must start at nearly the same time, in the order that most often makes them pass each other."""
    found = {}
    for channel in system.channels:
        assert channel.deadline_ns is not None
        first = 25_000_000 - channel.deadline_ns + rng.randint(0, 400_000)
        found[channel.name] = list(range(first, 60_000_000, streams(system)[channel.name][0]))
    return found


def test_a_calendar_without_faults_leaves_more_time_than_is_promised() -> None:
    parts = [(5, 80, 8, 0), (10, 60, 8, 0)]
    system = system_of(parts)
    found = plan(system)
    outcome = run(system, found.calendar, simultaneous_releases(system, 10_000_000, 0), 10_000_000)
    assert found.ok
    assert outcome.worst["0"] <= 2 * 160_000


@pytest.mark.parametrize("enough", [0, 100, 10**9])
def test_a_search_that_may_stop_early_says_the_same_about_the_deadline(enough: int) -> None:
    analysis = SoftAnalysis([message("a", 5_000, 4_000), message("b", 5_000, 4_500)], medium())
    full = analysis.response_time(0)
    early = analysis.response_time(0, enough)
    assert full is not None
    assert early is not None
    assert (full <= enough) == (early <= enough)


class CountedInterference(HardInterference):
    """Hard slots that count how often an analysis asks for them: once for each step of its search."""

    steps = 0

    def within(self, window_ns: int) -> int:
        self.steps += 1
        return super().within(window_ns)


def nearly_full(rng: random.Random, spare: float, hard: HardInterference) -> SoftAnalysis:
    """Soft messages that leave only a small share of the bus, besides slots that take a fifth of it."""
    weights = [rng.uniform(0.5, 1) for _ in range(rng.randint(3, 8))]
    messages = []
    for place, weight in enumerate(weights):
        frames = rng.choice((1, 1, 1, 2, 5)) * (rng.randint(60, FRAME),)
        period = 1 + int(sum(frames) * sum(weights) / (weight * (0.8 - spare)))
        jitter = rng.choice((0, rng.randrange(period)))
        messages.append(Message(str(place), 0, frames, period, jitter, int(period * rng.uniform(0.5, 1.5))))
    return SoftAnalysis(messages, medium(tolerance=FRAME + 10, hard=hard))


@pytest.mark.parametrize(
    ("hard", "errors", "is_bounded"),
    [
        ([(0, 400)], None, True),
        ([(0, 1_900)], None, False),
        ([], 700, True),
        ([], 191, False),
        ([(0, 1_000)], 400, False),
        ([(0, 1_000)], 100_000, True),
    ],
)
def test_an_overload_is_known_by_its_rate_without_a_search(
    hard: list[tuple[int, int]], errors: int | None, is_bounded: bool
) -> None:
    """Of soft events, hard slots and errors, with the longest frame that is repeated, together."""
    slots = CountedInterference(hard, 2_000)
    conditions = BusConditions(FRAME, FRAME, FRAME, slots, ErrorInterference(errors, 31))
    analysis = SoftAnalysis([message("a", 2_000, 1_500)], conditions)
    assert (analysis.response_time(0) is not None) is is_bounded
    assert (slots.steps > 0) is is_bounded
    steps = slots.steps
    found = response_time(message("a", 2_000, 0), [], [], slots, ErrorInterference(errors, 31))
    assert (found is not None) is is_bounded
    assert (slots.steps > steps) is is_bounded


def test_a_load_of_exactly_all_the_bus_has_no_bound() -> None:
    assert bounds(message("a", 2 * FRAME, 1_000), message("b", 2 * FRAME, 1_000), on=medium()) == {"a": None, "b": None}
    assert None not in bounds(message("a", 2 * FRAME, 1_000), message("b", 2 * FRAME + 2, 1_000), on=medium()).values()


@examples(30)
@given(st.integers(0, 10**6), st.sampled_from([0.1, 0.03, 0.01, 0.003]))
def test_a_search_takes_a_few_steps_for_each_frame_of_the_busy_period(seed: int, spare: float) -> None:
    """However close to full load: what was found for one instant is where the search for the next one begins."""
    hard = CountedInterference([(0, 400)], 2_000)
    analysis = nearly_full(random.Random(seed), spare, hard)
    assert analysis._busy is not None
    frames = sum(rival.most(analysis._busy) for rival in analysis._rivals) + analysis._busy // 2_000
    for index in range(len(analysis.messages)):
        hard.steps = 0
        assert analysis.response_time(index) is not None
        assert hard.steps <= 20 + 4 * frames


@pytest.mark.parametrize("seed", range(40))
def test_no_instant_is_left_out(seed: int) -> None:
    """The search examines few instants, and none of the others is worse."""
    rng = random.Random(seed)
    messages = []
    for place in range(rng.randint(2, 5)):
        period = rng.randint(30, 90)
        frames = (rng.randint(3, 8),)
        messages.append(Message(str(place), 0, frames, period, rng.randrange(period), rng.randint(15, 99)))
    conditions = BusConditions(8, 9, 8, HardInterference([(0, 10)], 100), ErrorInterference(None, 1))
    analysis = SoftAnalysis(messages, conditions)
    assert analysis._busy is not None
    for index, analysed in enumerate(messages):
        rivals = [rival for rival in analysis._rivals if rival.owner != index]
        chains = list(analysis._chains(index))
        response = analysis.response_time(index)
        assert response is not None
        for queued in range(min(analysis._busy, 500)):
            chain = max(length for begin, length in chains if begin <= queued)
            wait = analysis._demand(analysed, rivals, chain, queued, queued).longest_wait({})
            assert wait + analysed.last <= response
