"""The shape every target has: a table of operators and one `visit_<Expression>` method per node of the expression tree.

A target that forgets a node or an operator fails when its compiler class is created, not when a user meets it. What a
target cannot do it lists as unsupported, with the reason; the subscription's part is then left to the receiver as a
residual. `support_matrix` is made from these tables and stands in docs/targets.md.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from genus.filters._expression import (
    ARITHMETIC,
    COMPARISONS,
    EXPRESSIONS,
    TEXT_TESTS,
    Arithmetic,
    Compare,
    Expression,
    TextTest,
)

OPERATORS: Mapping[type[Expression], tuple[str, ...]] = {
    Arithmetic: ARITHMETIC,
    Compare: COMPARISONS,
    TextTest: TEXT_TESTS,
}


class Compiler:
    """Base of every target's compiler; checks at creation that nothing is left out."""

    target: ClassVar[str]
    operators: ClassVar[Mapping[str, Any]]
    """What each operator of Arithmetic, Compare and TextTest becomes."""
    unsupported: ClassVar[Mapping[type[Expression] | str, str]] = {}
    """Nodes and operators this target leaves to the receiver, with the reason."""

    def __init_subclass__(cls) -> None:
        """Refuse a compiler that handles a node or operator neither by method, table nor declaration."""
        missing = [node.__name__ for node in EXPRESSIONS if not hasattr(cls, f"visit_{node.__name__}")]
        missing = [name for name in missing if name not in {node_name(node) for node in cls.unsupported}]
        signs = [sign for group in OPERATORS.values() for sign in group]
        missing += [sign for sign in signs if sign not in cls.operators and sign not in cls.unsupported]
        if missing:
            raise TypeError(f"target {cls.target} neither handles nor declares unsupported: {', '.join(missing)}")
        TARGETS[cls.target] = cls

    def visit(self, node: Expression, *context: Any) -> Any:
        """Translate a node by the method of its name."""
        return getattr(self, f"visit_{type(node).__name__}")(node, *context)


TARGETS: dict[str, type[Compiler]] = {}
"""The compilers imported so far, by target."""


def node_name(node: type[Expression] | str) -> str:
    """The name of a node, or an operator's sign."""
    return node if isinstance(node, str) else node.__name__


def support_matrix() -> str:
    """A Markdown table of what each imported target handles itself and what it leaves as a residual."""
    targets = sorted(TARGETS)
    rows = [f"| | {' | '.join(targets)} |", "|---" * (len(targets) + 1) + "|"]
    for node in EXPRESSIONS:
        parts: tuple[type[Expression] | str, ...] = (node, *OPERATORS.get(node, ()))
        for name in parts:
            marks = [
                "residual: " + TARGETS[t].unsupported[name] if name in TARGETS[t].unsupported else "yes"
                for t in targets
            ]
            label = f"`{node_name(name)}`" if isinstance(name, str) else f"**{node_name(name)}**"
            rows.append(f"| {label} | {' | '.join(marks)} |")
    return "\n".join(rows)
