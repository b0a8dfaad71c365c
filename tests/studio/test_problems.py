"""What is wrong now: states, and counters while they grow."""

import msgspec
import pytest

from genus.studio._health import RECENT_S, Problems
from genus.studio.types import ChannelRow, GatewayRow, NodeRow, ProblemRow, Row, SourceRow, SubscriptionRow


def found(problems: Problems, now: float, **tables: Row) -> dict[str, ProblemRow]:
    rows = problems.find({table: {"made|x": row} for table, row in tables.items()}, now, 1000.0 + now)
    assert all(isinstance(row, ProblemRow) for row in rows.values())
    return {row.view: row for row in rows.values() if isinstance(row, ProblemRow)}


def channel(**cells: int) -> ChannelRow:
    return ChannelRow(source="made", type="Loop", publisher="gate", qos="hard:10ms", **cells)  # type: ignore[arg-type]


def test_what_was_lost_before_studio_looked_is_not_wrong_now() -> None:
    problems = Problems()
    assert not found(problems, 0.0, channels=channel(lost=7))
    assert not found(problems, 1.0, channels=channel(lost=7))


def test_a_counter_that_grows_is_wrong_until_it_has_not_grown_for_a_while() -> None:
    problems = Problems()
    found(problems, 0.0, channels=channel(lost=7))
    row = found(problems, 1.0, channels=channel(lost=9))["channels"]
    assert (row.severity, row.count, row.since_ms, row.of) == ("bad", 2, 1_001_000, "made|x")
    row = found(problems, 5.0, channels=channel(lost=10))["channels"]
    assert (row.count, row.since_ms) == (3, 1_001_000)
    assert found(problems, 4.9 + RECENT_S, channels=channel(lost=10))
    assert not found(problems, 5.0 + RECENT_S, channels=channel(lost=10))


def test_a_counter_that_starts_again_is_no_problem() -> None:
    problems = Problems()
    found(problems, 0.0, channels=channel(missed=7))
    assert not found(problems, 1.0, channels=channel(missed=0))
    assert found(problems, 2.0, channels=channel(missed=1))["channels"].count == 1


@pytest.mark.parametrize(("cells", "is_named"), [({"lost": 2}, False), ({"missed": 2}, True)])
def test_only_losses_of_its_channels_explain_those_of_a_source(cells: dict[str, int], is_named: bool) -> None:
    """Frames that are corrupted are named beside both."""
    problems = Problems()
    for number in (0, 1):
        source = SourceRow(kind="can", address="can:", events=9, lost=2 * number, corrupted=46 * number)
        part = channel(**cells) if number else channel(lost=0, missed=0)
        tables: dict[str, dict[str, Row]] = {"sources": {"made": source}, "channels": {"x": part}}
        rows = problems.find(tables, float(number), 0.0)
    assert {key.split("|")[1] for key in rows} == {"corrupted", *cells} | ({"lost"} if is_named else set())


def test_states_are_wrong_as_long_as_they_last() -> None:
    problems = Problems()
    down = NodeRow(source="made", name="gate", state="down", is_well=False)
    assert found(problems, 0.0, nodes=down)["nodes"].severity == "bad"
    assert found(problems, 9.0, nodes=down)["nodes"].since_ms == 1_000_000
    assert not found(problems, 10.0, nodes=NodeRow(source="made", name="gate"))
    assert found(problems, 11.0, nodes=down)["nodes"].since_ms == 1_011_000


def test_every_view_has_its_problems() -> None:
    problems = Problems()
    bad: dict[str, Row] = {
        "sources": SourceRow(kind="can", address="can:", state="failed", note="no such device", load=0.95),
        "subscriptions": SubscriptionRow(source="made", text="Loop", waiting=90, capacity=100, dropped=0, failed=0),
        "gateways": GatewayRow(source="made", side="east", is_connected=False),
    }
    assert {"overview", "can", "subscriptions", "gateways"} <= found(problems, 0.0, **bad).keys()


def test_the_worst_come_first() -> None:
    problems = Problems()
    rows = problems.find(
        {
            "nodes": {
                "a": NodeRow(source="made", name="a", state="not synchronised", is_well=False),
                "b": NodeRow(source="made", name="b", state="bus off", is_well=False),
            }
        },
        0.0,
        0.0,
    )
    assert [row.severity for row in rows.values() if isinstance(row, ProblemRow)] == ["bad", "warn"]


def test_a_source_of_which_hardly_anything_can_be_read_is_wrong_at_once() -> None:
    """As a recording whose types were not named: its counter does not grow."""
    row = SourceRow(kind="recording", address="x", events=2, lost=158, note="unknown type Lamp: 158")
    assert "unknown type Lamp" in found(Problems(), 0.0, sources=row)["overview"].what


def test_a_handler_that_raises_is_named_with_its_error() -> None:
    problems = Problems()
    row = SubscriptionRow(source="made", owner="on_truck", text="Loop", failed=0)
    found(problems, 0.0, subscriptions=row)
    later = msgspec.structs.replace(row, failed=3, error="KeyError: 'lane'")
    assert (
        found(problems, 1.0, subscriptions=later)["subscriptions"].what
        == "Loop: handler on_truck raises KeyError: 'lane'"
    )
