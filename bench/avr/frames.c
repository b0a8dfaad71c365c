/* Frames to handlers: decoded, tested by all subscriptions, and the handlers called. What is received is in
 * frames.h, which bench/device_frames.py makes; each handler sets a bit. */
#include "frames.h"
#include "measure.h"

static uint8_t buffer[64]; /* as a driver leaves it */

static void measure_frame(uint8_t number)
{
    const uint16_t etag = genus_rom_u16(&frames[number].etag);
    const uint16_t size = genus_rom_u8(&frames[number].size);

    genus_rom_copy(buffer, frames[number].payload, sizeof buffer);
    called = 0U;
    measure_case(number);
#ifdef ROAD_LATE
    if (etag == 0U) { /* an answer of the broker about a later type */
        measure_start();
        called = road_learn(buffer, size);
        measure_stop(called);
        return;
    }
#endif
    measure_start();
    (void)road_receive(etag, buffer, size);
    measure_stop(called);
}

int main(void)
{
    uint8_t number;

    for (number = 0U; number < FRAMES; number++) {
        measure_frame(number);
    }
    measure_end();
    return 0;
}
