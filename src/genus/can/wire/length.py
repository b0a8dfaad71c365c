"""How many bit times a frame takes: worst case by formula (Davis et al. 2007), exact by stuffing its bits."""

WORST_ERROR_BITS = 31
"""Error flag 6, its echo 6, delimiter 8, intermission 3, and 8 of suspension where the sender is error passive."""


def worst_case_bits(size: int, *, extended: bool = True) -> int:
    """The longest a classic frame of `size` data bytes can be, with its intermission.

    >>> worst_case_bits(8), worst_case_bits(0, extended=False)
    (160, 55)
    """
    if not 0 <= size <= 8:
        raise ValueError(f"a classic frame carries 0 to 8 bytes, not {size}")
    return (80 if extended else 55) + 10 * size
