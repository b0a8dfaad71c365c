"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from genus.records._mapping import SPARKPLUG, CsvFormat, DeclaredTypes, MappedField, TypeNaming, read_constant
from genus.records._payload import MAX_SIZE, Rejections, count_fields, count_names, decode_json, limit_problem
from genus.records._reader import MappedReader, RecordValues
from genus.records._topics import WrittenFields
from genus.records._values import BASE64, ERRORS, EXACT, ISO, NON_FINITE, TEXT, UNITS, ValueFormat, value_reader
from genus.records._writer import NO_SOURCE, FieldNode, FieldPlan, cloud_mapping, column_name, describe_version
