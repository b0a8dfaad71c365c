"""The base class of compilers: a table of operators and one `visit_<Expression>` method per class of expression.

A compiler that leaves out an expression or an operator fails when its class is created, not when it is used. What a
target cannot test it lists as unsupported, with the reason; that part of a subscription is then a residual for the
receiver. `support_matrix` shows these tables in docs/subscriptions.md.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from genus.filters.internal import ARITHMETIC, COMPARISONS, EXPRESSIONS, FUNCTIONS, TEXT_TESTS
from genus.filters.types import Arithmetic, Compare, Expression, Function, TextTest

TYPE_COLUMN = "_type"
"""The column of batches and tables that holds the name of each event's type."""

OPERATORS: Mapping[type[Expression], tuple[str, ...]] = {
    Arithmetic: ARITHMETIC,
    Function: FUNCTIONS,
    Compare: COMPARISONS,
    TextTest: TEXT_TESTS,
}


class Compiler:
    """The base class of a target's compiler; checks when a subclass is created that it handles every expression."""

    target: ClassVar[str]
    operators: ClassVar[Mapping[str, Any]]
    """The translation of each operator of Arithmetic, Function, Compare and TextTest."""
    unsupported: ClassVar[Mapping[type[Expression] | str, str]] = {}
    """Expressions and operators this target leaves to the receiver, with the reason."""

    def __init_subclass__(cls, abstract: bool = False) -> None:
        """Register a compiler; TypeError if it neither handles nor declares unsupported an expression or operator.

        One that is abstract, without a target of its own, is neither checked nor registered.
        """
        if abstract:
            return
        missing = [node.__name__ for node in EXPRESSIONS if not hasattr(cls, f"visit_{node.__name__}")]
        missing = [name for name in missing if name not in {node_name(node) for node in cls.unsupported}]
        signs = [sign for group in OPERATORS.values() for sign in group]
        missing += [sign for sign in signs if sign not in cls.operators and sign not in cls.unsupported]
        if missing:
            raise TypeError(f"target {cls.target} neither handles nor declares unsupported: {', '.join(missing)}")
        TARGETS[cls.target] = cls

    def visit(self, node: Expression, *context: Any) -> Any:
        """Translate an expression by the method of its class."""
        return getattr(self, f"visit_{type(node).__name__}")(node, *context)


TARGETS: dict[str, type[Compiler]] = {}
"""The compilers imported so far, by target."""


def node_name(node: type[Expression] | str) -> str:
    """Return the name of a class of expression, or an operator's sign."""
    return node if isinstance(node, str) else node.__name__


def support_matrix() -> str:
    """Return a Markdown table of what each target leaves to the receiver as a residual, with the reasons.

    It has the targets that are imported; those that need an extra may be missing. What is not named is tested.
    """
    rows: dict[str, list[str]] = {}
    for target, compiler in sorted(TARGETS.items()):
        rows.setdefault(_describe(compiler.unsupported), []).append(target)
    lines = [f"| {', '.join(targets)} | {left or 'nothing'} |" for left, targets in rows.items()]
    return "\n".join(["| target | leaves to the receiver |", "|---|---|", *lines])


def _describe(unsupported: Mapping[type[Expression] | str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in unsupported.items():
        by_reason.setdefault(reason, []).append(f"`{node_name(name)}`")
    return "; ".join(f"{' '.join(names)} ({reason})" for reason, names in by_reason.items())
