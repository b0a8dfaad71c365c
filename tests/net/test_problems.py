"""What networks could not keep is said in sentences, and logged once for each reason."""

import logging

import pytest

from genus.net import EventsLate, EventsLost, EventsUnread
from genus.net._link.losses import ProblemQueue
from genus.net._transport import OnceLogger, ReceiverFailures


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (EventsLost("Lamp", 1, reason="the queue is full"), "1 event of Lamp was lost: the queue is full"),
        (EventsLost("Lamp", 1200, "a"), "1,200 events of Lamp were lost on the way from a: the reason is not known"),
        (
            EventsLost("Lamp", 0, "a", "b", "r"),
            "events of Lamp may be lost on the way from a to b: r",
        ),
        (EventsUnread("Lamp", 2, "no level"), "2 events of Lamp were not read: no level"),
        (EventsUnread("Lamp", 0, "another type of level"), "Lamp may not be readable: another type of level"),
        (EventsLate("Lamp", 1, 2500), "1 event of Lamp was late, by up to 2.5 ms"),
        (
            EventsLate("Lamp", 3, 2500, expired=2),
            "3 events of Lamp were late, by up to 2.5 ms; 2 had expired and were not delivered",
        ),
    ],
)
def test_a_trouble_is_a_sentence(problem: EventsLost | EventsUnread | EventsLate, text: str) -> None:
    assert str(problem) == text


def test_the_log_has_each_reason_once_for_each_type(caplog: pytest.LogCaptureFixture) -> None:
    """Numbers, and what the other side says, make no other reason; what a handler gets is not logged."""
    problems = ProblemQueue()
    handled: list[object] = []
    for number in range(300):
        problems.add(EventsLost("Lamp", number, reason=f"the server refused it: x{number}"), [])
        problems.add(EventsLost("Loop", 1, reason=f"{number} wait"), [])
        problems.add(EventsLate("Lamp", 1, number), [])
        problems.add(EventsLost("Lamp", 1, reason="handled"), [handled.append])
        problems.tell()
    assert len(caplog.messages) == 3
    assert len(handled) == 300


def test_strangers_fill_the_log_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    problems = ProblemQueue()
    for number in range(1000):
        problems.add(EventsUnread(f"Type{chr(0x4E00 + number)}", 1, "it is unknown"), [])
    problems.tell()
    assert len(caplog.messages) == 201


def test_a_link_logs_a_warning_once_by_text_and_error(caplog: pytest.LogCaptureFixture) -> None:
    log = OnceLogger("genus.coap")
    with caplog.at_level(logging.INFO, "genus.coap"):
        for number in range(5):
            log.warning("from %s", number)
            log.getChild("part").warning("from %s", number)
            log.info("all of these")
            for problem in (ValueError(number), KeyError(number)):
                log.error("failed", exc_info=problem)
    assert caplog.messages.count("all of these") == 5
    assert [text for text in caplog.messages if text != "all of these"] == ["from 0", "failed", "failed"]


def test_failures_of_a_receiver_are_counted_by_class_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = ReceiverFailures()
    for number in range(5):
        failures.note("ipc", ValueError(number))
    assert failures == {"failed: an error of the receiver (ValueError)": 5}
    assert len(caplog.messages) == 1
