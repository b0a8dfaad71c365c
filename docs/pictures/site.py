"""One site of the traffic application, from the road to the lake."""

from docs.pictures.pen import Pen

NODES = (
    ("upper", "SensorLoop_1", 62),
    ("lower", "SensorLoop_2", 190),
    ("monitor", "VelocityMonitor", 326),
    ("gateway", "adds the source", 460),
)


def site() -> Pen:
    """Loops in the road, nodes on a CAN segment, and the city behind the gateway."""
    pen = Pen(
        760,
        370,
        "Pairs of loops in the lanes of a road, their sensors on a CAN segment, a gateway, the city's bus and the lake",
    )
    _road(pen)
    pen.path("M40 250H560", "red", style="thick")
    pen.words(40, 270, "the site's CAN segment: heartbeats hard, vehicles soft, settings none", "tiny red")
    for name, role, x in NODES:
        pen.box(x - 8, 176, 116, 44, "red" if name in ("upper", "lower") else "blue")
        pen.words(x + 50, 195, name, "small strong", at="middle")
        pen.words(x + 50, 211, role, "tiny faint", at="middle")
        pen.path(f"M{x + 50} 220V249", "red")
    pen.path("M112 124V174", "red", arrow=True)
    pen.words(120, 142, "lane, time, place, category", "tiny")
    pen.path("M372 124C372 158 250 142 242 174", "red", arrow=True)
    pen.words(384, 142, "lane, time", "tiny")
    pen.words(312, 168, "Edge has lane, time", "code tiny blue")
    _city(pen)
    return pen


def _road(pen: Pen) -> None:
    pen.box(20, 34, 540, 90, "grey")
    pen.path("M30 79H550", style="dashed")
    for y in (45, 88):
        pen.box(92, y, 40, 26, "orange")
        pen.box(352, y, 40, 26, "orange")
    pen.box(150, 48, 58, 20, "blue", style="solid")
    pen.box(452, 91, 42, 20, "blue", style="solid")
    pen.path("M92 32V24H352V32", "orange")
    pen.words(222, 19, "5 m", "tiny orange", at="middle")
    pen.path("M500 58H540", arrow=True)


def _city(pen: Pen) -> None:
    pen.path("M568 198H606", "green", arrow=True)
    pen.box(610, 40, 130, 240, "green")
    pen.words(675, 64, "the city's bus", "small strong green", at="middle")
    pen.words(675, 96, "StatisticsCollector", "tiny strong", at="middle")
    for number, line in enumerate(("Loop has time,", "place, category")):
        pen.words(675, 112 + 14 * number, line, "code tiny blue", at="middle")
    pen.words(675, 142, "upper loops → counts", "tiny faint", at="middle")
    pen.path("M622 160H728", style="dashed")
    pen.words(675, 186, "recorders", "tiny strong", at="middle")
    pen.words(675, 202, "everything", "tiny faint", at="middle")
    pen.path("M675 280V306", "green", arrow=True)
    pen.box(250, 310, 490, 44, "purple")
    pen.words(495, 330, "the lake: counts and speeds again, in batch and as a stream", "small strong", at="middle")
    pen.words(
        495, 346, "with the code that the VelocityMonitor runs, checked against the truth", "tiny faint", at="middle"
    )
