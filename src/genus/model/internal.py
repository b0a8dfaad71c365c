"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from genus.model._declared import declared_types, hide_declared
from genus.model._event import (
    MAX_TAGGED,
    RESERVED_WORDS,
    EventMeta,
    KindMeta,
    create_event,
    decoder_annotation,
    is_attribute_name,
)
from genus.model._plain import PLAIN_CLASSES, UNCHANGED, encodable_value, explain_unplain, is_same, plain_value
from genus.model._signature import (
    GENERATED,
    FindInvalid,
    describe_invalid,
    family_of,
    hidden_attributes,
    invalid_decoded_finders,
    invalid_decoded_finders_in,
    invalid_finders,
    invalid_finders_in,
    retyped_attributes,
)
from genus.model._types import (
    INT64_MAX,
    INT64_MIN,
    MICROSECOND,
    int_range,
    is_encodable,
    metas,
    parse_type,
    read_annotation,
    time_of_micros,
    type_text,
)
from genus.model._units import describe_units, format_nanoseconds, unit_conversion
from genus.model._values import MAX_LENGTH, SHORTEST, keep_unread, own_bounds, unread_types, unread_values, with_unread
from genus.model._vector import RETYPABLE, hidden_names
