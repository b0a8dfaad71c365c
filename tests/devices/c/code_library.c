/* The functions of genus_code.h that are in line, and sweeps over all codes, for ctypes. */
#include "genus_code.h"

void sweep8(uint8_t low_bits, uint8_t inverse, uint8_t limit, uint8_t *answers)
{
    uint32_t code;

    for (code = 0U; code <= UINT8_MAX; code++) {
        answers[code] = genus_divides8((uint8_t)code, low_bits, inverse, limit);
    }
}

void sweep16(uint16_t low_bits, uint16_t inverse, uint16_t limit, uint8_t *answers)
{
    uint32_t code;

    for (code = 0U; code <= UINT16_MAX; code++) {
        answers[code] = genus_divides16((uint16_t)code, low_bits, inverse, limit);
    }
}

/* The same from the wire. */
void sweep_wire16(uint16_t type, uint16_t low_bits, uint16_t inverse, uint16_t limit,
                  uint8_t *answers)
{
    uint8_t wire[3];
    uint32_t code;

    for (code = 0U; code <= UINT16_MAX; code++) {
        const uint16_t size = genus_code_write(code, wire, (uint16_t)sizeof wire);
        answers[code] = genus_code_is16(wire, size, type, low_bits, inverse, limit);
    }
}

bool divides32(uint32_t code, uint32_t low_bits, uint32_t inverse, uint32_t limit)
{
    return genus_divides32(code, low_bits, inverse, limit);
}

bool divides64(uint64_t code, uint64_t low_bits, uint64_t inverse, uint64_t limit)
{
    return genus_divides64(code, low_bits, inverse, limit);
}

bool equal16(const uint8_t *wire, uint16_t size, uint16_t code)
{
    return genus_code_equal16(wire, size, code);
}

bool equal_wire(const uint8_t *known, const uint8_t *wire, uint16_t size)
{
    return genus_code_equal(known, wire, size);
}
