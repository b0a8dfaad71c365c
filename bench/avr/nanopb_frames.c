/* The same message as a protocol buffer: decoded by nanopb into a struct. There are no types and no filters. */
#include <pb_decode.h>

#include "measure.h"
#include "messages.h"
#include "road.pb.h"

static uint8_t buffer[64];

static bool decode(uint8_t size, ConfidentLoop *message)
{
    pb_istream_t stream = pb_istream_from_buffer(buffer, size);

    return pb_decode(&stream, ConfidentLoop_fields, message);
}

int main(void)
{
    static ConfidentLoop message;
    uint8_t number;

    for (number = 0U; number < MESSAGES; number++) {
        const uint8_t size = messages[number][0];
        uint8_t place;
        bool good;
        for (place = 0U; place < size; place++) {
            buffer[place] = messages[number][place + 1U];
        }
        measure_case(number);
        measure_start();
        good = decode(size, &message);
        measure_stop(good);
        GPIOR2 = (uint8_t)message.lane;
    }
    measure_end();
    return 0;
}
