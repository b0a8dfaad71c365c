/* The whole program of program.c with nanopb: a message is decoded, and its one handler is called. */
#include <avr/io.h>
#include <pb_decode.h>

#include "road.pb.h"

typedef struct {
    volatile uint8_t full;
    uint8_t size;
    uint8_t payload[32];
} mailbox;

mailbox received;
uint8_t counts[2];
volatile uint8_t called;

static __attribute__((noinline)) void on_loop(const ConfidentLoop *message)
{
    called = (uint8_t)(called | message->lane);
}

int main(void)
{
    for (;;) {
        if (received.full != 0U) {
            ConfidentLoop message;
            pb_istream_t stream = pb_istream_from_buffer(received.payload, received.size);
            const bool good = pb_decode(&stream, ConfidentLoop_fields, &message);
            if (good) {
                on_loop(&message);
            }
            counts[good]++;
            received.full = 0U;
        }
    }
}
