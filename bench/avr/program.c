/* A whole program, for its size: what a receive interrupt puts into a mailbox is decoded and tested, and its handlers
 * are called. With LEARNING, answers of the broker about later types are learnt. The handlers are in handlers.h. */
#include "handlers.h"

#include <avr/io.h>

typedef struct {
    volatile uint8_t full;
    uint8_t is_answer;
    uint16_t etag;
    uint8_t size;
    uint8_t payload[32];
} mailbox;

mailbox received;
uint8_t counts[5];

int main(void)
{
    for (;;) {
        if (received.full == 0U) {
            continue;
        }
#if defined(LEARNING) && defined(ROAD_LATE)
        if (received.is_answer != 0U) {
            counts[4] = (uint8_t)(counts[4] + road_learn(received.payload, received.size));
        } else
#endif
        {
            counts[road_receive(received.etag, received.payload, received.size)]++;
        }
        received.full = 0U;
    }
}
