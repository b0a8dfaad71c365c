"""The base of compilers: a target translates every expression, or declares which it leaves to the receiver."""

import pytest

import genus.filters.internal as x
from genus.model.types import IntType
from genus.targets import arrow, c, can, coap, python, topics
from genus.targets._compiler import OPERATORS, TARGETS, Compiler, node_name, support_matrix

NOTHING: dict[str, object] = {
    f"visit_{node.__name__}": lambda self, node: f"{node_name(type(node))} visited" for node in x.EXPRESSIONS
}
SIGNS = {sign: sign for signs in OPERATORS.values() for sign in signs}


def make(**members: object) -> type[Compiler]:
    """A compiler with all methods and operators, but for these."""
    made = {"target": "test", "operators": SIGNS} | NOTHING | members
    return type("Made", (Compiler,), {name: member for name, member in made.items() if member is not None})


@pytest.fixture(autouse=True)
def known_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers made here are not known to other tests."""
    monkeypatch.setattr("genus.targets._compiler.TARGETS", dict(TARGETS))


def test_a_compiler_that_leaves_out_an_expression_or_an_operator_fails_when_it_is_made() -> None:
    without = {sign: sign for sign in SIGNS if sign not in ("<=", "length")}
    with pytest.raises(TypeError, match=r"target test neither handles nor declares unsupported: OneOf, length, <=$"):
        make(visit_OneOf=None, operators=without)
    assert make().target == "test"


def test_what_a_target_declares_unsupported_it_need_not_translate() -> None:
    without = {sign: sign for sign in SIGNS if sign != "like"}
    made = make(visit_OneOf=None, operators=without, unsupported={x.OneOf: "it has no lists", "like": "no patterns"})
    assert made.target == "test"


def test_an_expression_is_translated_by_the_method_of_its_class() -> None:
    assert make()().visit(x.Literal(1, IntType())) == "Literal visited"


def test_a_compiler_without_a_target_of_its_own_is_not_checked() -> None:
    class Half(Compiler, abstract=True):
        pass

    assert not hasattr(Half, "target")


def test_the_support_matrix_has_each_target_with_what_it_leaves_to_the_receiver() -> None:
    """Targets that leave the same are in one line; reasons are given once."""
    assert all(target.__name__.startswith("genus.targets.") for target in (arrow, c, can, coap, python, topics))
    first, rule, *lines = support_matrix().splitlines()
    assert (first, rule) == ("| target | leaves to the receiver |", "|---|---|")
    left = {name: line.split(" | ", 1)[1] for line in lines for name in line[2:].split(" | ")[0].split(", ")}
    assert left["python"] == left["arrow"] == left["coap"] == "nothing |"
    assert left["c"] == (
        "`/` (it is a division of floats, and devices have no floating point); "
        "`Arithmetic` (of floats; integers, times and durations are computed) |"
    )
    assert left["can"].count("identifiers hold no values, but presence is tested") == 1
    assert "`Compare` `OneOf` `TextTest` (identifiers hold no values, but presence is tested)" in left["can"]
