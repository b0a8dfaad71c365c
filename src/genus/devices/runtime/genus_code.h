/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of types on the wire, and the test whether a type is another one or below it.
 *
 * A code on the wire is one length byte and the code in as few big-endian bytes as hold it. The
 * form is canonical: no leading zero byte, no code zero. So equal codes are equal bytes.
 *
 * "Is b the type a, or below a?" is "does the code of a divide that of b?". Write a = 2^k * d with
 * d odd. Multiplication by the inverse of d modulo 2^w maps exactly the multiples of d onto
 * 0 .. (2^w - 1) / d, so one multiplication and two comparisons decide, without division
 * (Granlund and Montgomery 1994, section 9). The constants come from genus.codes.Divisor.
 *
 * A divisor has the narrowest width that holds the codes of the catalog. A code from the wire may
 * be wider, as types are added to a running system: then the remainder is computed byte by byte,
 * which is slower and as exact. */
#ifndef GENUS_CODE_H
#define GENUS_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "genus_port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The longest divisor in bytes, without its length byte; the generator refuses longer ones.
 * Codes that are tested against a divisor may have all 255 bytes. */
#ifndef GENUS_CODE_BYTES
#define GENUS_CODE_BYTES 32U
#endif

/* Functions whose arguments are constants: they must be in line where a compiler prefers small code,
 * or the constants become arguments. */
#ifdef __GNUC__
#define GENUS_IN_LINE static inline __attribute__((always_inline))
#else
#define GENUS_IN_LINE static inline
#endif

/* The constants of one code as a divisor; `low_bits` is 2^k - 1. */
typedef struct {
    uint8_t code;
    uint8_t low_bits;
    uint8_t inverse;
    uint8_t limit;
} genus_divisor8;

typedef struct {
    uint8_t low_bits; /* a code with more of them has a wider divisor */
    uint16_t inverse;
    uint16_t limit;
    uint16_t code;
} genus_divisor16;

typedef struct {
    uint32_t inverse;
    uint32_t limit;
    uint32_t code;
    uint32_t low_bits;
} genus_divisor32;

typedef struct {
    uint64_t inverse;
    uint64_t limit;
    uint64_t code;
    uint64_t low_bits;
} genus_divisor64;

/* Whether the code that the constants are of divides this one, which fits the width. With
 * constants known to the compiler this is the fastest test: no table is read. */
static inline bool genus_divides8(uint8_t code, uint8_t low_bits, uint8_t inverse, uint8_t limit)
{
    return ((code & low_bits) == 0U) && ((uint8_t)((unsigned)code * inverse) <= limit);
}

static inline bool genus_divides16(uint16_t code, uint16_t low_bits, uint16_t inverse,
                                   uint16_t limit)
{
    return ((code & low_bits) == 0U) && ((uint16_t)((unsigned)code * inverse) <= limit);
}

static inline bool genus_divides32(uint32_t code, uint32_t low_bits, uint32_t inverse,
                                   uint32_t limit)
{
    return ((code & low_bits) == 0U) && ((uint32_t)(code * inverse) <= limit);
}

static inline bool genus_divides64(uint64_t code, uint64_t low_bits, uint64_t inverse,
                                   uint64_t limit)
{
    return ((code & low_bits) == 0U) && ((uint64_t)(code * inverse) <= limit);
}

/* Two bytes as one number. gcc for AVR makes ten cycles of the shift, and none of the union. */
static inline uint16_t genus_code_join(uint8_t high, uint8_t low)
{
#ifdef __AVR__
    const union {
        uint8_t bytes[2];
        uint16_t number;
    } joined = {{low, high}};

    return joined.number;
#else
    return (uint16_t)(((unsigned)high << 8U) | low);
#endif
}

/* How many bytes the code at `wire` takes, its length byte included; 0 if it is malformed or if
 * not all of it is within `size` bytes. */
uint16_t genus_code_size(const uint8_t *wire, uint16_t size);

/* Writes a code and gives the number of bytes; 0 if the code is zero or does not fit. */
uint16_t genus_code_write(uint64_t code, uint8_t *wire, uint16_t capacity);

/* `genus_code_equal` for codes of any length. */
bool genus_code_equal_bytes(const uint8_t *known, const uint8_t *wire, uint16_t size);

/* Whether the codes at both places are equal, of which the first is well-formed. */
static inline bool genus_code_equal(const uint8_t *known, const uint8_t *wire, uint16_t size)
{
    bool equal = false;

    if ((size > 2U) && (known[0] == 2U)) {
        equal = (wire[2] == known[2]) && (wire[1] == known[1]) && (wire[0] == 2U);
    } else if ((size > 1U) && (known[0] == 1U)) {
        equal = (wire[1] == known[1]) && (wire[0] == 1U);
    } else {
        equal = genus_code_equal_bytes(known, wire, size);
    }
    return equal;
}

/* Whether the code at `wire` is this one, of at most 16 bits. */
GENUS_IN_LINE bool genus_code_equal16(const uint8_t *wire, uint16_t size, uint16_t code)
{
    const uint8_t high = (uint8_t)(code >> 8U);
    const uint8_t low = (uint8_t)code;
    uint8_t differs = 1U;

    /* Bytes are compared by bits, or they would be widened to int first. */
    if (high != 0U) {
        if ((size > 2U) && (wire[0] == 2U)) {
            differs = (uint8_t)((wire[1] ^ high) | (wire[2] ^ low));
        }
    } else if ((size > 1U) && (wire[0] == 1U)) {
        differs = (uint8_t)(wire[1] ^ low);
    } else {
        differs = 1U;
    }
    return differs == 0U;
}

/* Whether the code at `wire` is well-formed and that of the divisor's type or of one below it. The
 * divisor lies in ROM. */
bool genus_code_below8(const uint8_t *wire, uint16_t size, const genus_divisor8 *type);
bool genus_code_below32(const uint8_t *wire, uint16_t size, const genus_divisor32 *type);
bool genus_code_below64(const uint8_t *wire, uint16_t size, const genus_divisor64 *type);

/* The same for a type with this code, of any length from the wire: by bytes, slowly. */
bool genus_code_below_number(const uint8_t *wire, uint16_t size, uint32_t type);

/* In line, and the form of a code is tested with its length: a call would take a quarter of the
 * time. The order of statements is the quickest that gcc for AVR makes of them. */
GENUS_IN_LINE bool genus_code_below16(const uint8_t *wire, uint16_t size,
                                      const genus_divisor16 *type)
{
    const void *at = type;
    uint8_t high = 0U;
    uint8_t low = 0U;
    bool below = false;

    if ((size > 2U) && (wire[0] == 2U) && (wire[1] != 0U)) {
        high = wire[1];
        low = wire[2];
    } else if ((size > 1U) && (wire[0] == 1U) && (wire[1] != 0U)) {
        low = wire[1];
    } else {
        return genus_code_below_number(wire, size, genus_rom_u16(&type->code));
    }
    if ((low & genus_rom_next_u8(&at, &type->low_bits)) == 0U) {
        const uint16_t inverse = genus_rom_next_u16(&at, &type->inverse);
        const uint16_t limit = genus_rom_next_u16(&at, &type->limit);
        below = (uint16_t)((unsigned)genus_code_join(high, low) * inverse) <= limit;
    }
    return below;
}

/* The same with constants that the compiler knows: the fastest test, as no table is read. */
GENUS_IN_LINE bool genus_code_is8(const uint8_t *wire, uint16_t size, uint8_t type,
                                  uint8_t low_bits, uint8_t inverse, uint8_t limit)
{
    bool below = false;

    if ((size > 1U) && (wire[0] == 1U)) {
        below = genus_divides8(wire[1], low_bits, inverse, limit) && (wire[1] != 0U);
    } else {
        below = genus_code_below_number(wire, size, type);
    }
    return below;
}

GENUS_IN_LINE bool genus_code_is16(const uint8_t *wire, uint16_t size, uint16_t type,
                                   uint16_t low_bits, uint16_t inverse, uint16_t limit)
{
    bool below = false;

    if ((size > 2U) && (wire[0] == 2U)) {
        const uint8_t high = wire[1];
        const uint8_t low = wire[2];
        /* Most codes are not below, so their form is looked at last. */
        if (((low & (uint8_t)low_bits) == 0U) && ((high & (uint8_t)(low_bits >> 8U)) == 0U)) {
            below = ((uint16_t)((unsigned)genus_code_join(high, low) * inverse) <= limit) &&
                    (high != 0U);
        }
    } else if ((size > 1U) && (wire[0] == 1U)) {
        const uint8_t low = wire[1];
        below = (low != 0U) && ((low & low_bits) == 0U) &&
                ((uint16_t)((unsigned)low * inverse) <= limit);
    } else {
        below = genus_code_below_number(wire, size, type);
    }
    return below;
}

/* The same for types with codes of any width: `type` is the wire form, in RAM. False if it is
 * malformed or longer than GENUS_CODE_BYTES. */
bool genus_code_below(const uint8_t *wire, uint16_t size, const uint8_t *type, uint16_t type_size);

#ifdef __cplusplus
}
#endif

#endif
