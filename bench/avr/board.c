/* Functions that the firmware of docs/devices-node.md needs of its board; enough to link it and to see its size. */
#include "genus_node.h"

typedef struct {
    int what;
    genus_frame frame;
    genus_time at;
} can_happening;

void can_start(uint32_t bitrate);
void can_set_filter(uint8_t bank, uint32_t value, uint32_t mask);
void can_load(uint8_t mailbox, const genus_frame *frame);
bool can_next(can_happening *happening);
genus_time clock_ns(void);
void sleep_until(genus_time at);
void chip_uid(uint8_t uid[8]);
uint8_t read_level(void);
void set_valve(uint8_t position);

volatile uint8_t port;

void can_start(uint32_t bitrate)
{
    port = (uint8_t)bitrate;
}

void can_set_filter(uint8_t bank, uint32_t value, uint32_t mask)
{
    port = (uint8_t)(bank + value + mask);
}

void can_load(uint8_t mailbox, const genus_frame *frame)
{
    port = (uint8_t)(frame == NULL ? mailbox : frame->data[0]);
}

bool can_next(can_happening *happening)
{
    happening->what = port;
    happening->frame.id = port;
    happening->frame.size = port;
    happening->frame.data[0] = port;
    happening->at = port;
    return port != 0;
}

genus_time clock_ns(void)
{
    return port;
}

void sleep_until(genus_time at)
{
    port = (uint8_t)at;
}

void chip_uid(uint8_t uid[8])
{
    uid[0] = port;
}

uint8_t read_level(void)
{
    return port;
}

void set_valve(uint8_t position)
{
    port = position;
}
