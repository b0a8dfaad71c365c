"""The whole of Genus: where events come from, the bus, and who subscribes."""

from docs.pictures.pen import Pen

PUBLISHERS = (
    ("micro-controllers", "generated C: codec, filters", "orange"),
    ("CAN buses", "event channels, or DBC frames", "red"),
    ("MQTT, CoAP, Sparkplug", "topics and resources of others", "orange"),
    ("files", "CAN logs, JSON, CSV, Parquet", "purple"),
)
SUBSCRIBERS = (
    ("programs", "handlers, inboxes, requests", "blue"),
    ("devices", "actuators, with deadlines on CAN", "red"),
    ("recordings", "replayed, plotted, exported", "purple"),
    ("the lake on Spark", "tables, inboxes, analyses", "purple"),
)


def whole() -> Pen:
    """Publishers on the left, one bus over all media in the middle, subscribers on the right, Studio below."""
    pen = Pen(
        760,
        392,
        "Devices, CAN buses, networks and files publish typed events; programs, devices, recordings and a lake take "
        "what they subscribed to; Studio shows all of it",
    )
    pen.words(112, 30, "publish", "strong", at="middle")
    pen.words(648, 30, "subscribe", "strong", at="middle")
    for number, (name, what, colour) in enumerate(PUBLISHERS):
        _box(pen, 12, 46 + 66 * number, name, what, colour)
        pen.path(f"M214 {72 + 66 * number}H264", colour, arrow=True)
    for number, (name, what, colour) in enumerate(SUBSCRIBERS):
        _box(pen, 548, 46 + 66 * number, name, what, colour)
        pen.path(f"M494 {72 + 66 * number}H544", colour, arrow=True)
    _bus(pen)
    pen.path("M380 314V334", "green", arrow=True)
    pen.box(12, 338, 736, 42, "green")
    pen.words(380, 364, "Studio: what flows, what is wrong, why an event does not match", "small strong", at="middle")
    return pen


def _box(pen: Pen, x: float, y: float, name: str, what: str, colour: str) -> None:
    pen.box(x, y, 200, 52, colour)
    pen.words(x + 100, y + 22, name, "small strong", at="middle")
    pen.words(x + 100, y + 40, what, "tiny faint", at="middle")


def _bus(pen: Pen) -> None:
    pen.box(268, 46, 224, 266, "blue")
    pen.words(380, 72, "typed events", "strong blue", at="middle")
    pen.words(380, 98, "Camera(lane=1, category='truck')", "code tiny", at="middle")
    pen.words(380, 114, "is a Loop, too", "tiny faint", at="middle")
    pen.path("M284 130H476", style="dashed")
    pen.words(380, 156, "one subscription for all", "strong green", at="middle")
    pen.words(380, 180, "it is: Loop", "code tiny blue", at="middle")
    pen.words(380, 196, "it has: place", "code tiny orange", at="middle")
    pen.words(380, 212, "it says: category == 'truck'", "code tiny green", at="middle")
    pen.path("M284 228H476", style="dashed")
    pen.words(380, 254, "one bus, any medium", "strong blue", at="middle")
    pen.words(380, 276, "in process · ipc · zenoh · MQTT", "tiny", at="middle")
    pen.words(380, 292, "CoAP · CAN · simulated CAN", "tiny", at="middle")
