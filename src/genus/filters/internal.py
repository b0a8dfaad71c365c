"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from genus.filters._constants import type_of
from genus.filters._covering import OPPOSITE, as_test, conjuncts, needed_attributes
from genus.filters._evaluate import (
    COMPARE,
    COMPUTE,
    DIVISIONS,
    TEXT,
    WRONG_VALUE,
    compute,
    evaluate,
    evaluate_value,
    exactly,
    matcher,
    normalize,
    raise_event_error,
    read_attribute,
    read_pattern,
    round_to_float32,
)
from genus.filters._expression import (
    ARITHMETIC,
    COMPARISONS,
    DURATION_UNITS,
    EXPRESSIONS,
    FUNCTIONS,
    TEXT_TESTS,
    And,
    Arithmetic,
    AttributeRef,
    Coalesce,
    Compare,
    Conditional,
    Expression,
    Function,
    Literal,
    Micros,
    Negation,
    Not,
    OneOf,
    Or,
    Predicate,
    Present,
    Step,
    TextTest,
    ToFloat,
    Value,
    format_expression,
)
from genus.filters._satisfiability import report_never, why_never
from genus.filters._subscription import drop_implied, ensure_subscription, rebuild
