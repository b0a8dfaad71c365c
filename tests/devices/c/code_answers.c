/* Answers questions about codes from standard input, one line each, for test_code_runtime.py:
 *
 *     WIRE TYPE WIDTH LOW_BITS INVERSE LIMIT
 *
 * WIRE and TYPE are wire forms in hexadecimal (`-` for none), the others the constants of TYPE.
 * Every WIRE lies in memory of its own size, so that a sanitizer sees reads beyond its end.
 * The answer is: size, below by bytes, below by constants, equal. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "genus_code.h"

static uint8_t *parse(const char *text, uint16_t *size)
{
    const size_t digits = (strcmp(text, "-") == 0) ? 0U : strlen(text);
    uint8_t *bytes = malloc(digits / 2U + (digits == 0U));
    size_t place;

    if (bytes == NULL) {
        exit(2);
    }
    for (place = 0U; place < digits / 2U; place++) {
        unsigned byte = 0U;
        if (sscanf(&text[2U * place], "%2x", &byte) != 1) {
            exit(2);
        }
        bytes[place] = (uint8_t)byte;
    }
    *size = (uint16_t)(digits / 2U);
    return bytes;
}

/* By the constants for a width; -1 for widths that have none. */
static int by_constants(const uint8_t *wire, uint16_t size, unsigned width, uint64_t code,
                        uint64_t low_bits, uint64_t inverse, uint64_t limit)
{
    const genus_divisor8 divisor8 = {(uint8_t)code, (uint8_t)low_bits, (uint8_t)inverse, (uint8_t)limit};
    const genus_divisor16 divisor16 = {(uint8_t)low_bits, (uint16_t)inverse, (uint16_t)limit, (uint16_t)code};
    const genus_divisor32 divisor32 = {(uint32_t)inverse, (uint32_t)limit, (uint32_t)code,
                                       (uint32_t)low_bits};
    const genus_divisor64 divisor64 = {inverse, limit, code, low_bits};
    int answer = -1;

    if (width == 8U) {
        answer = genus_code_below8(wire, size, &divisor8);
    } else if (width == 16U) {
        answer = genus_code_is16(wire, size, (uint16_t)code, (uint16_t)low_bits, (uint16_t)inverse, (uint16_t)limit);
        if ((low_bits <= 0xFFU) && (answer != genus_code_below16(wire, size, &divisor16))) {
            answer = 2; /* the generator gives types with more low bits wider divisors */
        }
    } else if (width == 32U) {
        answer = genus_code_below32(wire, size, &divisor32);
    } else if (width == 64U) {
        answer = genus_code_below64(wire, size, &divisor64);
    }
    return answer;
}

int main(void)
{
    char wire_text[1024];
    char type_text[1024];
    unsigned width;
    uint64_t low_bits;
    uint64_t inverse;
    uint64_t limit;

    while (scanf("%1023s %1023s %u %" SCNu64 " %" SCNu64 " %" SCNu64, wire_text, type_text, &width,
                 &low_bits, &inverse, &limit) == 6) {
        uint16_t size;
        uint16_t type_size;
        uint8_t *wire = parse(wire_text, &size);
        uint8_t *type = parse(type_text, &type_size);
        uint64_t code = 0U;
        uint16_t place;
        for (place = 1U; (place < type_size) && (width != 0U); place++) {
            code = (code << 8U) | type[place];
        }
        (void)printf("%u %d %d %d\n", genus_code_size(wire, size),
                     genus_code_below(wire, size, type, type_size),
                     by_constants(wire, size, width, code, low_bits, inverse, limit),
                     genus_code_equal(type, wire, size));
        free(wire);
        free(type);
    }
    return 0;
}
