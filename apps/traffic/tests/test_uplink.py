"""The link from a gateway to the city: late, out of order, failing for a while, and never losing anything."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from genus_traffic.centre.uplink import Uplink
from genus_traffic.segment.listeners import Arrival
from genus_traffic.types import Cleared

SECOND_US = 1_000_000


def leaving(instants: list[int]) -> list[Arrival]:
    """Events that leave a segment at these instants, all of them different."""
    return [
        Arrival(at_us, Cleared(lane=number % 256, place=str(number))) for number, at_us in enumerate(sorted(instants))
    ]


def delays(before: list[Arrival], after: list[Arrival]) -> list[int]:
    """How long each event took, in the order in which they left."""
    arrived = {arrival.event: arrival.at_us for arrival in after}
    return [arrived[each.event] - each.at_us for each in before]


@given(st.lists(st.integers(0, 300 * SECOND_US), max_size=50), st.integers(), st.builds(Uplink, late=st.integers(0, 5)))
def test_every_event_arrives_once_and_after_it_left(instants: list[int], seed: int, uplink: Uplink) -> None:
    """Whatever the link does, and in order of arrival."""
    left = leaving(instants)
    arrived = uplink.carry(left, seed)
    assert Counter(each.event for each in arrived) == Counter(each.event for each in left)
    assert [each.at_us for each in arrived] == sorted(each.at_us for each in arrived)
    assert all(delay >= uplink.latency_us for delay in delays(left, arrived))
    assert arrived == uplink.carry(left, seed)


def test_some_arrive_out_of_order_by_seconds() -> None:
    """A few of a hundred have to be sent again, and take up to some seconds."""
    left = leaving([number * SECOND_US // 10 for number in range(2000)])
    took = delays(left, Uplink(outage_us=0, late=0).carry(left, 1))
    straggling = [delay for delay in took if delay > 60_000]
    assert 20 <= len(straggling) <= 60
    assert 2 * SECOND_US < max(straggling) < 5 * SECOND_US


def test_what_comes_while_the_link_fails_is_sent_afterwards() -> None:
    """For so long nothing arrives; then what was kept does, in its order."""
    left = leaving([number * SECOND_US // 10 for number in range(2000)])
    uplink = Uplink(straggling=0.0, late=0, latency_us=0)
    arrived = uplink.carry(left, 2)
    pauses = [after.at_us - before.at_us for before, after in pairwise(arrived)]
    assert 20 * SECOND_US <= max(pauses) <= 20 * SECOND_US + 200_000
    assert sum(pause > SECOND_US for pause in pauses) == 1
    kept = [delay for delay in delays(left, arrived) if delay]
    assert len(kept) == 200
    assert kept == sorted(kept, reverse=True)


def test_a_short_run_has_no_outage() -> None:
    """A link that failed most of the time would be no link."""
    left = leaving([number * SECOND_US for number in range(50)])
    assert max(delays(left, Uplink(straggling=0.0, late=0).carry(left, 3))) <= 60_000


def test_few_are_found_again_later_than_anybody_waits() -> None:
    """As many as was said, some minutes late."""
    left = leaving([number * SECOND_US for number in range(600)])
    took = delays(left, Uplink(late=4).carry(left, 4))
    late = [delay for delay in took if delay >= 120 * SECOND_US]
    assert len(late) == 4
    assert max(late) < 270 * SECOND_US


def test_each_site_has_a_link_of_its_own() -> None:
    """Another seed draws other lots."""
    left = leaving([number * SECOND_US for number in range(100)])
    assert Uplink().carry(left, "1/north") != Uplink().carry(left, "1/south")
