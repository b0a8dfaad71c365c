/* SPDX-License-Identifier: Apache-2.0 */
#include "genus_code.h"

#include <string.h>

uint16_t genus_code_size(const uint8_t *wire, uint16_t size)
{
    uint16_t taken = 0U;

    if ((size >= 2U) && (wire[0] != 0U) && (size > wire[0]) && (wire[1] != 0U)) {
        taken = (uint16_t)(wire[0] + 1U);
    }
    return taken;
}

bool genus_code_equal_bytes(const uint8_t *known, const uint8_t *wire, uint16_t size)
{
    return (size > known[0]) && (memcmp(known, wire, (size_t)known[0] + 1U) == 0);
}

uint16_t genus_code_write(uint64_t code, uint8_t *wire, uint16_t capacity)
{
    uint64_t rest = code;
    uint8_t length = 0U;
    uint8_t place;

    while (rest != 0U) {
        rest >>= 8U;
        length++;
    }
    if ((length == 0U) || (capacity <= length)) {
        return 0U;
    }
    rest = code;
    for (place = length; place > 0U; place--) {
        wire[place] = (uint8_t)rest;
        rest >>= 8U;
    }
    wire[0] = length;
    return (uint16_t)(length + 1U);
}

/* Shifts one bit into the remainder; true if one came out at the top. */
static bool shift_in(uint8_t *remainder, uint8_t length, bool bit)
{
    bool carry = bit;
    uint8_t place;

    for (place = length; place > 0U; place--) {
        const uint8_t byte = remainder[place - 1U];
        remainder[place - 1U] = (uint8_t)(((unsigned)byte << 1U) | (carry ? 1U : 0U));
        carry = (byte & 0x80U) != 0U;
    }
    return carry;
}

/* Takes the divisor from a remainder that is not less than it. */
static void subtract(uint8_t *remainder, const uint8_t *divisor, uint8_t length)
{
    unsigned borrow = 0U;
    uint8_t place;

    for (place = length; place > 0U; place--) {
        const unsigned taken = divisor[place - 1U] + borrow;
        borrow = (remainder[place - 1U] < taken) ? 1U : 0U;
        remainder[place - 1U] = (uint8_t)(remainder[place - 1U] - taken);
    }
}

/* Whether the `length` bytes of a divisor divide the `size` bytes of a code; no leading zeros.
 * Long division by bits: the remainder is always less than the divisor, so that after a shift it
 * has at most one bit more, which `shift_in` gives back. */
static bool divides(const uint8_t *divisor, uint8_t length, const uint8_t *code, uint8_t size)
{
    uint8_t remainder[GENUS_CODE_BYTES];
    uint8_t byte;
    uint8_t left = 0U;

    if (size < length) {
        return false; /* a code is not zero */
    }
    /* All but the last byte of as many as the divisor has are less than it. */
    remainder[0] = 0U;
    (void)memcpy(&remainder[1], code, (size_t)length - 1U);
    for (byte = (uint8_t)(length - 1U); byte < size; byte++) {
        uint8_t bit;
        for (bit = 0x80U; bit != 0U; bit >>= 1U) {
            const bool top = shift_in(remainder, length, (code[byte] & bit) != 0U);
            if (top || (memcmp(remainder, divisor, length) >= 0)) {
                subtract(remainder, divisor, length);
            }
        }
    }
    for (byte = 0U; byte < length; byte++) {
        left |= remainder[byte];
    }
    return left == 0U;
}

bool genus_code_below(const uint8_t *wire, uint16_t size, const uint8_t *type, uint16_t type_size)
{
    bool below = false;

    if ((genus_code_size(wire, size) != 0U) && (genus_code_size(type, type_size) != 0U) &&
        (type[0] <= GENUS_CODE_BYTES)) {
        below = divides(&type[1], type[0], &wire[1], wire[0]);
    }
    return below;
}

/* Long division by bits again, with a remainder that fits a register: most programs need no other. */
bool genus_code_below_number(const uint8_t *wire, uint16_t size, uint32_t type)
{
    const uint16_t taken = genus_code_size(wire, size);
    uint32_t remainder = 0U;
    uint16_t place;

    for (place = 1U; place < taken; place++) {
        uint8_t bit;
        for (bit = 0x80U; bit != 0U; bit >>= 1U) {
            const bool top = (remainder & UINT32_C(0x80000000)) != 0U;
            remainder = (remainder << 1U) | (((wire[place] & bit) != 0U) ? 1U : 0U);
            if (top || (remainder >= type)) {
                remainder -= type;
            }
        }
    }
    return (taken != 0U) && (remainder == 0U);
}

bool genus_code_below8(const uint8_t *wire, uint16_t size, const genus_divisor8 *type)
{
    return genus_code_is8(wire, size, genus_rom_u8(&type->code), genus_rom_u8(&type->low_bits),
                          genus_rom_u8(&type->inverse), genus_rom_u8(&type->limit));
}

/* The bytes of a code of at most `limit` of them as a number; 0 if it is longer or malformed. */
static uint64_t read_code(const uint8_t *wire, uint16_t size, uint8_t limit)
{
    uint64_t code = 0U;
    uint8_t place;

    if ((genus_code_size(wire, size) != 0U) && (wire[0] <= limit)) {
        for (place = 1U; place <= wire[0]; place++) {
            code = (code << 8U) | wire[place];
        }
    }
    return code;
}

bool genus_code_below32(const uint8_t *wire, uint16_t size, const genus_divisor32 *type)
{
    const uint32_t code = (uint32_t)read_code(wire, size, 4U);
    bool below = false;

    if (code != 0U) {
        below = genus_divides32(code, genus_rom_u32(&type->low_bits),
                                genus_rom_u32(&type->inverse), genus_rom_u32(&type->limit));
    } else {
        below = genus_code_below_number(wire, size, genus_rom_u32(&type->code));
    }
    return below;
}

bool genus_code_below64(const uint8_t *wire, uint16_t size, const genus_divisor64 *type)
{
    const uint64_t code = read_code(wire, size, 8U);
    genus_divisor64 constants;
    uint8_t divisor[9];
    uint16_t taken;

    genus_rom_copy(&constants, type, (uint16_t)sizeof constants);
    if (code != 0U) {
        return genus_divides64(code, constants.low_bits, constants.inverse, constants.limit);
    }
    taken = genus_code_write(constants.code, divisor, (uint16_t)sizeof divisor);
    return genus_code_below(wire, size, divisor, taken);
}
