/* Every pair of codes of a hierarchy: is one the other, or below it; are they equal. The tables are
 * made by bench/device_codes.py. */
#include <stdbool.h>

#include "code_tables.h"

enum { EMPTY, IN_LINE, CALLED, BY_TABLE, BY_DIVISION, EQUAL_CODE, EQUAL_WIRE };

static uint8_t frame[4]; /* as a driver leaves it */

/* Deserialised and divided, as the paper does. */
static __attribute__((noinline)) bool divide(const uint8_t *wire, uint8_t size, uint16_t type)
{
    uint16_t code = 0U;
    uint8_t place;

    for (place = 1U; (place <= wire[0]) && (place < size); place++) {
        code = (uint16_t)((code << 8U) | wire[place]);
    }
    return (code % type) == 0U;
}

static __attribute__((noinline)) void measure_equal_code(const uint8_t *wire, uint16_t size,
                                                         uint16_t code)
{
    bool same;

    measure_start();
    same = genus_code_equal16(wire, size, code);
    measure_stop(same);
}

static __attribute__((noinline)) void measure_equal_wire(const uint8_t *wire, uint16_t size,
                                                         const uint8_t *known)
{
    bool same;

    measure_start();
    same = genus_code_equal(known, wire, size);
    measure_stop(same);
}

static __attribute__((noinline)) void measure_by_table(const uint8_t *wire, uint16_t size,
                                                       const genus_divisor16 *type)
{
    bool answer;

    measure_start();
    answer = genus_code_below16(wire, size, type);
    measure_stop(answer);
}

static void measure_pair(uint8_t type, uint8_t below)
{
    const is_type is = (is_type)pgm_read_word(&tests[type]);
    const uint16_t code = genus_rom_u16(&divisors[type].code);
    const uint16_t size = (uint16_t)(genus_rom_u8(&wires[below][0]) + 1U);
    uint8_t known[3];
    bool answer = false;

    genus_rom_copy(frame, wires[below], 3U);
    genus_rom_copy(known, wires[type], 3U);
    measure_case(EMPTY);
    measure_start();
    measure_stop(type);
    measure_case(IN_LINE);
    (void)((is_type)pgm_read_word(&measured_tests[type]))(frame, size);
    measure_case(CALLED);
    measure_start();
    answer = is(frame, size);
    measure_stop(answer);
    measure_case(BY_TABLE);
    measure_by_table(frame, size, &divisors[type]);
    measure_case(BY_DIVISION);
    measure_start();
    answer = divide(frame, (uint8_t)size, code);
    measure_stop(answer);
    measure_case(EQUAL_CODE);
    measure_equal_code(frame, size, code);
    measure_case(EQUAL_WIRE);
    measure_equal_wire(frame, size, known);
}

int main(void)
{
    uint8_t type;
    uint8_t below;

    for (type = 0U; type < TYPES; type++) {
        for (below = 0U; below < TYPES; below++) {
            measure_pair(type, below);
        }
    }
    measure_end();
    return 0;
}
