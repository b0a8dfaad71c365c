"""What each subscription became in every place, and whether all of them gave the same answer."""

from collections.abc import Iterator

from genus_traffic.report.bits import MEANINGS, strip
from genus_traffic.report.checks import answers_agree
from genus_traffic.report.figures import count, some
from genus_traffic.report.markup import Markup, element
from genus_traffic.report.section import empty, folded, legend, section, verdict
from genus_traffic.results import Compiled, Results

_SAYS = (
    "A subscription is written once. Genus compiles it to acceptance filters for a CAN controller, to Python code for "
    "the bus, and to columns for Spark; what a place cannot test is left to the receiver. All must give the "
    "same answer."
)
_SHORT = 24
"""Lines that are shown at once; more are folded."""
_FIELDS = (("priority", 8), ("node", 7), ("event tag", 14))


def draw(results: Results) -> Markup:
    """A card per subscription."""
    if not results.subscriptions:
        return section("subscriptions", "What subscriptions become", _SAYS, empty("There was no subscription."))
    return section(
        "subscriptions", "What subscriptions become", _SAYS, legend(MEANINGS), *map(_card, results.subscriptions)
    )


def _card(compiled: Compiled) -> Markup:
    return element(
        "article",
        element("h3", compiled.subscriber),
        _code(compiled.text, "subscription"),
        element("div", element("div", *_became(compiled)), element("div", *_answers(compiled)), class_="two"),
        class_="card",
    )


def _became(compiled: Compiled) -> Iterator[Markup]:
    yield from _filters(compiled)
    code, words = compiled.python or "none", compiled.spark or "nothing"
    yield folded("The code it became on the bus", _code(code, "generated code"), unfolded=_is_short(code))
    yield folded("What Spark does with it", _code(words, "explanation"), unfolded=_is_short(words))


def _is_short(text: str) -> bool:
    return text.count("\n") < _SHORT


def _filters(compiled: Compiled) -> Iterator[Markup]:
    heading = some(len(compiled.filters), "acceptance filter") if compiled.filters else "No acceptance filter"
    yield element("h4", f"{heading} in the CAN controller")
    for value, mask in compiled.filters:
        bits = strip(value, mask, _FIELDS)
        yield element("div", bits, class_="scrolling", tabindex=0, role="region", aria_label="acceptance filter")
        yield element("small", f"value {value:#x}, mask {mask:#x}")
    left = (
        f"Left to the receiver: {compiled.left_to_receiver}" if compiled.left_to_receiver else "Nothing is left to do."
    )
    yield element("p", left, class_="note")


def _answers(compiled: Compiled) -> Iterator[Markup]:
    yield element("h4", "Events of the run that it matches, by place")
    if not compiled.answers:
        yield empty("It was asked nowhere.")
        return
    usual = _usual(compiled)
    rows = (_answer(place, got, got == usual) for place, got in compiled.answers.items())
    yield element(
        "table", element("caption", "Events by place", class_="spoken"), element("tbody", *rows), class_="answers"
    )
    if answers_agree(compiled):
        yield verdict(True, f"The same in {some(len(compiled.answers), 'place')}.")
    else:
        yield verdict(False, "The places do not agree.")


def _usual(compiled: Compiled) -> int:
    """The answer that most places gave."""
    answers = list(compiled.answers.values())
    return max(answers, key=answers.count)


def _answer(place: str, got: int, usual: bool) -> Markup:
    sign = element("span", "=" if usual else "≠", class_="same" if usual else "differs")
    return element("tr", element("th", place, scope="row"), element("td", count(got)), element("td", sign))


def _code(text: str, what: str) -> Markup:
    button = element("button", "copy", type="button", class_="copy", hidden=True, aria_label=f"copy the {what}")
    return element("div", button, element("pre", element("code", text), tabindex=0), class_="codeblock")
