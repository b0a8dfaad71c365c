"""The number under which nodes ask for a type before they know its event tag."""

from hashlib import blake2b


def subject_uid(name: str) -> int:
    """The 64-bit number of the type of this name: the first 8 bytes of its BLAKE2b digest, and never 0.

    Every node can compute it without a catalog. Two names of one number are as likely as 2**-64 for each pair.

    >>> f"{subject_uid('Loop'):#018x}"
    '0x95623e3a87c20c39'
    """
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") or 1
