/* What takes the place of the calendar in a node without hard channels (GENUS_WITH_CALENDAR 0). */
#include "genus_node_parts.h"

#if !GENUS_WITH_CALENDAR

uint8_t genus_calendar_slot_of(const genus_node *node, uint8_t channel)
{
    (void)node;
    (void)channel;
    return GENUS_NO_CHANNEL;
}

void genus_calendar_join(genus_node *node, uint8_t slot)
{
    (void)node;
    (void)slot;
}

void genus_calendar_leave(genus_node *node, uint8_t slot)
{
    (void)node;
    (void)slot;
}

void genus_calendar_receive_in(genus_node *node)
{
    (void)node;
}

void genus_calendar_watch(genus_node *node)
{
    (void)node;
}

genus_time genus_calendar_wake_at(const genus_node *node)
{
    (void)node;
    return GENUS_NEVER;
}

void genus_calendar_wake(genus_node *node)
{
    (void)node;
}

void genus_calendar_write(genus_node *node, uint8_t slot, uint16_t etag, const uint8_t *payload,
                          uint16_t size, uint16_t reference)
{
    (void)node;
    (void)slot;
    (void)etag;
    (void)payload;
    (void)size;
    (void)reference;
}

void genus_calendar_sent(genus_node *node, const genus_frame *frame)
{
    (void)node;
    (void)frame;
}

void genus_calendar_failed(genus_node *node, const genus_frame *frame)
{
    (void)node;
    (void)frame;
}

bool genus_calendar_has_receivers(const genus_node *node, uint16_t etag, bool *is_periodic)
{
    (void)node;
    (void)etag;
    *is_periodic = false;
    return false; /* hard events of others are delivered when they come */
}

void genus_calendar_keep(genus_node *node, const genus_received *event, uint16_t base)
{
    (void)node;
    (void)event;
    (void)base;
}

bool genus_calendar_promises(const genus_node *node)
{
    (void)node;
    return true;
}

bool genus_calendar_has_senders(const genus_node *node)
{
    (void)node;
    return false;
}

#endif
