"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from genus.codes._etags import merge_blocks, power_of_two
from genus.codes._hierarchy import children_of, order_heaviest_first
