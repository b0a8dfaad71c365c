"""Accuracy: what is right, wrong, unmeasured and invented, against a truth made by hand."""

from genus_traffic.accuracy import CLOSE_US, accuracy_of, true_speed
from genus_traffic.passages.finder import MeasuredPassage, SitePassage
from genus_traffic.road.truth import Passage
from genus_traffic.types import Category

SECOND = 1_000_000


def passage(at: float, speed: float | None = 10.0, site: str = "mill", **change: object) -> Passage:
    """A car of 4 m at 10 m/s."""
    start = round(at * SECOND)
    instants = {
        "upper_on_us": start,
        "upper_off_us": start + 400_000,
        "lower_on_us": start + 500_000,
        "lower_off_us": start + 900_000,
    }
    given = {"site": site, "lane": 1, "vehicle": f"v{at}", "category": Category.CAR, "length_m": 4.0, **instants}
    return Passage(**{**given, "speed": speed, **change})  # type: ignore[arg-type]


def found(at: float, speed: float | None = 10.0, site: str = "mill", shift_us: int = 0, lane: int = 1) -> SitePassage:
    """What was found of such a car, by clocks that are off by something."""
    start = round(at * SECOND) + shift_us
    instants = start, start + 400_000, start + 500_000, start + 900_000
    return SitePassage(site, lane, MeasuredPassage(*instants, speed, speed, 4.0, "car"))


def test_speeds_are_right_wrong_or_unmeasured() -> None:
    truth = [passage(0), passage(10), passage(20), passage(30)]
    given = [found(0, 10.9), found(10, 11.1), found(20, None), found(30, 9.5, shift_us=CLOSE_US)]
    accuracy = accuracy_of(given, truth, counted=7)
    assert (accuracy.complete, accuracy.right, accuracy.wrong, accuracy.unmeasured) == (4, 2, 1, 1)
    assert (accuracy.one_sided, accuracy.invented, accuracy.counted, accuracy.to_count) == (0, 0, 7, 4)
    assert accuracy.share == 0.5


def test_a_speed_that_belongs_to_no_passage_is_invented() -> None:
    """Of other instants, of another lane or site, or of two vehicles."""
    truth = [passage(0), passage(1, lower_on_us=None, lower_off_us=None), passage(5)]
    mixed = found(1)._replace(passage=found(1).passage._replace(lower_on_us=5_500_000, lower_off_us=5_900_000))
    given = [found(0), found(0, lane=2), found(0, site="harbour"), found(60), found(0, shift_us=CLOSE_US + 1), mixed]
    accuracy = accuracy_of(given, truth, 0)
    assert (accuracy.right, accuracy.invented) == (1, 5)


def test_a_speed_of_a_passage_that_is_not_complete_is_invented_unless_it_is_right() -> None:
    truth = [passage(0, lower_off_us=None), passage(10, lower_off_us=None)]
    accuracy = accuracy_of([found(0, 10.5), found(10, 20.0)], truth, 0)
    assert (accuracy.complete, accuracy.one_sided, accuracy.invented) == (0, 2, 1)
    assert accuracy.share == 1.0


def test_who_came_from_the_side_is_judged_by_its_rear() -> None:
    """Unless it came onto both loops at once, which is no speed at all."""
    beside = passage(0, speed=None, upper_on_us=300_000)
    assert true_speed(beside) == 10.0
    at_once = passage(0, speed=None, upper_on_us=500_000)
    assert true_speed(at_once) is None
    seen = found(0, 10.0)._replace(passage=found(0).passage._replace(upper_on_us=300_000))
    accuracy = accuracy_of([seen], [beside, passage(20, speed=None, upper_on_us=20_500_000)], 0)
    assert (accuracy.complete, accuracy.right, accuracy.one_sided, accuracy.invented) == (1, 1, 1, 0)


def test_a_histogram_of_small_errors_has_several_bars() -> None:
    """Bars are narrowed until the largest error is some bars from zero; none is needed if there are no errors."""
    errors = [0.0, 0.01, -0.02, 0.05]
    given = [found(10 * number, 10.0 + error) for number, error in enumerate(errors)]
    accuracy = accuracy_of(given, [passage(10 * number) for number in range(len(errors))], 0)
    filled = [(start, end, count) for start, end, count in accuracy.errors if count]
    assert len(filled) == len(errors)
    assert filled[-1][0] <= 0.05 <= filled[-1][1]
    exact = accuracy_of([found(0, 10.0)], [passage(0)], 0)
    assert [round(end - start, 3) for start, end, count in exact.errors if count] == [0.222]


def test_the_histogram_has_all_errors_and_bars_that_end_at_the_tolerance() -> None:
    errors = [0.0, 0.3, -0.3, 0.99, 1.01, -5.0, 80.0]
    truth = [passage(10 * number) for number in range(len(errors))]
    given = [found(10 * number, 10.0 + error) for number, error in enumerate(errors)]
    accuracy = accuracy_of(given, truth, 0)
    assert sum(count for _, _, count in accuracy.errors) == len(errors)
    assert {-1.0, 1.0} <= {round(start, 9) for start, _, _ in accuracy.errors}
    tolerated = [(start, end, count) for start, end, count in accuracy.errors if abs(start + end) < 2]
    assert sum(count for _, _, count in tolerated) == accuracy.right == 4
    ends, starts = [round(end, 9) for _, end, _ in accuracy.errors], [round(at, 9) for at, _, _ in accuracy.errors]
    assert ends[:-1] == starts[1:]


def test_sites_and_traps_have_their_own_counts() -> None:
    """A trap that a one-sided hit is goes well if no speed is invented for it."""
    truth = [
        passage(0, traps=("standing",)),
        passage(10, traps=("standing", "missed")),
        passage(20, site="harbour", lower_on_us=None, lower_off_us=None, traps=("lane change",)),
        passage(30, site="harbour", lower_off_us=None, speed=None, traps=("missed",)),
    ]
    accuracy = accuracy_of([found(0), found(10, 20.0), found(30, 3.0, site="harbour")], truth, 0)
    assert accuracy.by_site == {"mill": (2, 1), "harbour": (0, 0)}
    assert {trap.name: (trap.met, trap.right) for trap in accuracy.traps} == {
        "standing": (2, 1),
        "missed": (2, 0),
        "lane change": (1, 1),
    }
    assert accuracy.invented == 1
