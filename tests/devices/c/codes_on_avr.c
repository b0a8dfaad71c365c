/* Answers the questions of questions.h, which test_on_avr.py makes, on the simulated processor. */
#include "genus_code.h"
#include "measure.h"
#include "questions.h"

static uint8_t by_constants(const question *asked, uint16_t place)
{
    const uint16_t size = asked->size;
    uint8_t answer = 2U;

    if (asked->width == 8U) {
        answer = genus_code_below8(asked->wire, size, &divisors8[place]);
    } else if (asked->width == 16U) {
        answer = genus_code_below16(asked->wire, size, &divisors16[place]);
    } else if (asked->width == 32U) {
        answer = genus_code_below32(asked->wire, size, &divisors32[place]);
    } else {
        answer = genus_code_below64(asked->wire, size, &divisors64[place]);
    }
    return answer;
}

int main(void)
{
    uint16_t place;

    for (place = 0U; place < QUESTIONS; place++) {
        question asked;
        uint8_t answer;
        genus_rom_copy(&asked, &questions[place], sizeof asked);
        answer = (uint8_t)genus_code_size(asked.wire, asked.size);
        answer = (uint8_t)(answer << 1U);
        answer = (uint8_t)(answer | genus_code_below(asked.wire, asked.size, asked.type, sizeof asked.type));
        answer = (uint8_t)((answer << 1U) | by_constants(&asked, place));
        GPIOR2 = answer;
    }
    measure_end();
    return 0;
}
