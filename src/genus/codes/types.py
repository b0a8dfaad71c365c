"""What calls of `genus.codes` return: lines of records and of comparisons, blocks of event tags."""

from genus.codes._etags import Block, Grant
from genus.codes._prime_schemes import CodeCost, NotApplicable
from genus.codes._scheme import CodeEntry

__all__ = ["Block", "CodeCost", "CodeEntry", "Grant", "NotApplicable"]
