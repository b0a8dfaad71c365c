"""A refit: sensors are replaced one after the other, without a restart of other programs."""

from docs.pictures.pen import Pen

SITES = (("north", 250), ("east", 330), ("south", 410), ("west", 490))
_END = 720


def refit() -> Pen:
    """Four sites change from Loop to ConfidentLoop; a subscription goes on, and then a second one begins."""
    pen = Pen(
        760,
        300,
        "Four sites are refitted one by one; one subscription spans it all, a second begins when the last is done",
    )
    for number, (name, changed) in enumerate(SITES):
        y = 30 + number * 34
        pen.words(20, y + 17, f"site {name}", "small")
        pen.box(110, y, changed - 112, 24, "blue")
        pen.box(changed, y, _END - changed, 24, "purple")
        pen.words(118, y + 17, "Loop", "code tiny blue")
        pen.words(changed + 8, y + 17, "ConfidentLoop", "code tiny purple")
    pen.words(20, 192, "collector", "small strong")
    pen.box(110, 176, _END - 110, 26, "green")
    pen.words(118, 194, "Loop has time, place, category", "code tiny")
    pen.words(_END - 8, 194, "old and new, without a gap", "tiny", at="end")
    pen.words(20, 230, "and then", "small strong")
    pen.box(514, 214, _END - 514, 26, "green")
    pen.words(522, 232, "… has confidence too", "code tiny")
    pen.path("M490 168V246", style="dashed")
    pen.words(484, 260, "the last sensor is new", "tiny faint", at="end")
    pen.words(
        20,
        284,
        "No restart, no new filter: the event tag of ConfidentLoop lies in the block of Loop.",
        "tiny faint",
    )
    return pen
