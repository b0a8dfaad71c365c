"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from genus.catalog._declare import annotation
from genus.catalog._file import lock_file, read_text, real_path, replace_text
from genus.catalog._records import presence_reader
from genus.catalog._statement import (
    StatedClasses,
    Statement,
    digest_of,
    is_stand_in,
    known_above,
    read_statement,
    state_type,
    statement_of,
)
