"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.targets._arrow_values import constant
    from genus.targets._decompose import (
        Parameter,
        Parts,
        Profile,
        Spans,
        keys_in,
        take_apart,
        take_constants,
        without_class,
    )
    from genus.targets._intervals import Choices, Codes, Domain, Floats, domain_of, intervals, key_float
    from genus.targets._presence import registered_types
    from genus.targets.c._compiler import MAX_LENGTH, Constants, Member
    from genus.targets.c._condition import (
        ALWAYS,
        NEVER,
        Condition,
        Intervals,
        Key,
        any_of_these,
        exact_intervals,
        flash_of,
        float_intervals,
        key_within,
        merge,
        present,
        runtime_flash,
        test,
        within,
    )
    from genus.targets.c._layout import (
        EventLayout,
        Named,
        constant_name,
        identifier,
        refuse_clashes,
        snake_case,
        tested_attributes,
    )
    from genus.targets.can._compiler import condense
    from genus.targets.coap import has_path
    from genus.targets.index._buckets import Found
    from genus.targets.index._family_index import FamilyIndex, Location
    from genus.targets.index._segments import Handles
    from genus.targets.spark._compiler import micros

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
