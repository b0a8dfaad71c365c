/* SPDX-License-Identifier: Apache-2.0 */
/* The receiving side of a node: from a frame to an event, and what was lost. */
#include "genus_node_parts.h"

#include <string.h>

/* As long as an equal event is a retransmission; shorter where filters keep events out. */
#define REPEATED_NS (1000 * GENUS_MS)
#define REPEATED_FILTERED_NS (20 * GENUS_MS)
#define REASSEMBLY_NS (2000 * GENUS_MS)
#define REPORT_RANGE ((uint32_t)1U << 24)

/* -- publishers -------------------------------------------------------------------------------- */

/* The block that an event tag is wanted by; NULL if it is not. One that passes all presence bits is
 * preferred. */
static const genus_block *block_of(const genus_node *node, uint16_t etag)
{
    const genus_block *found = NULL;
    uint8_t index;
    for (index = 0U; index < node->config->block_count; index++) {
        const genus_block *const block = &node->config->blocks[index];
        const uint16_t bits = (uint16_t)((1U << block->width) - 1U);
        if (((etag & block->mask) == block->value) &&
            ((found == NULL) || ((block->mask & bits) == 0U))) {
            found = block;
        }
    }
    return found;
}

bool genus_receiver_wants(const genus_node *node, uint16_t etag)
{
    return block_of(node, etag) != NULL;
}

static uint16_t base_of(const genus_block *block, uint16_t etag)
{
    return (uint16_t)(etag & (uint16_t)~((1U << block->width) - 1U));
}

/* Whether the filters pass all events of a class, so that one that did not come is lost. */
static bool counts_losses(const genus_block *block)
{
    return (block->mask & ((1U << block->width) - 1U)) == 0U;
}

static int8_t planned_format(const genus_node *node, uint8_t sender, uint16_t etag)
{
    int8_t found = -1;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        const genus_slot *const spec = &node->config->slots[slot];
        if ((spec->channel == GENUS_NO_CHANNEL) && (spec->number == sender) &&
            (spec->etag == etag) && (found != 1)) {
            found = (spec->frames > 1U) ? 1 : 0;
        }
    }
    return found;
}

/* Whether the events of a node come in segments, before it said so: as the broker or the calendar
 * knows it. */
static int8_t known_format(const genus_node *node, uint8_t sender, uint16_t etag)
{
    uint8_t index;
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        if ((node->requests[index].etag == etag) && (etag != 0U)) {
            return node->requests[index].is_segmented ? 1 : 0;
        }
    }
    return planned_format(node, sender, etag);
}

/* The broker says whether the events of a channel come in segments. */
void genus_receiver_set_format(genus_node *node, uint16_t etag, bool is_segmented)
{
    uint8_t index;
    for (index = 0U; index < GENUS_PUBLISHERS; index++) {
        if (node->publishers[index].etag == etag) {
            node->publishers[index].segmented = is_segmented ? 1 : 0;
        }
    }
}

/* What is known of a publisher; the one that was silent longest is forgotten for it. */
static genus_publisher *publisher_of(genus_node *node, uint8_t sender, uint16_t etag)
{
    genus_publisher *oldest = &node->publishers[0];
    uint8_t index;
    for (index = 0U; index < GENUS_PUBLISHERS; index++) {
        genus_publisher *const each = &node->publishers[index];
        if ((each->node == sender) && (each->etag == etag) && (sender != 0U)) {
            return each;
        }
        if ((oldest->node != 0U) && ((each->node == 0U) || (each->seen_at < oldest->seen_at))) {
            oldest = each;
        }
    }
    if (oldest->node != 0U) {
        node->drops.too_many++;
    }
    (void)memset(oldest, 0, sizeof *oldest);
    oldest->node = sender;
    oldest->etag = etag;
    oldest->last = -1;
    oldest->segmented = known_format(node, sender, etag);
    oldest->seen_at = node->now - REPEATED_NS;
    return oldest;
}

static uint16_t fold(const uint8_t *payload, uint16_t size)
{
    uint16_t sum = 0xFFFFU;
    uint16_t index;
    for (index = 0U; index < size; index++) {
        sum = (uint16_t)((uint16_t)(sum << 5) ^ (uint16_t)(sum >> 11) ^ payload[index]);
    }
    return sum;
}

/* How many events are missing before this one; -1 if it is a retransmission. */
static int8_t accept(genus_node *node, genus_publisher *from, const genus_received *event,
                     bool is_counting)
{
    const uint8_t sequence = (uint8_t)(event->payload[0] >> 5);
    const uint8_t head =
        (uint8_t)((event->size < GENUS_FRAME_BYTES) ? event->size : GENUS_FRAME_BYTES);
    const uint16_t crc = fold(event->payload, event->size);
    uint8_t gap = 0U;
    if (from->last >= 0) {
        gap = (uint8_t)(((uint8_t)(sequence + 7U) - (uint8_t)from->last) & 7);
    }
    if ((gap == 7U) && (event->size == from->last_size) && (crc == from->last_crc) &&
        (memcmp(event->payload, from->last_data, head) == 0) &&
        (from->explained == 0U) &&
        ((node->now - from->seen_at) < (is_counting ? REPEATED_NS : REPEATED_FILTERED_NS))) {
        return -1;
    }
    from->last = (int8_t)sequence;
    from->last_size = event->size;
    from->last_crc = crc;
    (void)memcpy(from->last_data, event->payload, head);
    from->seen_at = node->now;
    from->received++;
    gap = is_counting ? (uint8_t)((gap + 8U - (from->explained & 7U)) & 7U) : 0U;
    from->explained = 0U; /* losses that a report counted show in the numbers too */
    from->lost += gap;
    from->unreported += (int32_t)gap + 1;
    return (int8_t)gap;
}

/* Compare with the total that a publisher reports; returns how many more events are missing than
 * was known. */
static uint32_t compare(genus_publisher *from, uint32_t sent, bool is_counting)
{
    const bool is_first = !from->has_report;
    const uint32_t since = (sent - from->reported) & (REPORT_RANGE - 1U);
    const int32_t missing = (int32_t)since - from->unreported;
    const int32_t accounted = from->unreported;
    from->has_report = true;
    from->reported = sent;
    from->unreported = 0;
    if (is_first) {
        const int32_t more = (accounted > (int32_t)REPORT_RANGE) ? 0 : (accounted - (int32_t)sent);
        from->unreported = (more > 0) ? more : 0;
        return 0U;
    }
    if (((sent == 0U) && (missing < 0)) || (missing >= (int32_t)(REPORT_RANGE / 2U))) {
        from->last = -1; /* the publisher restarted */
        from->explained = 0U;
        return 0U;
    }
    if (missing < 0) { /* events were sent before a report that was written earlier */
        from->unreported = -missing;
        return 0U;
    }
    if (!is_counting) {
        return 0U;
    }
    from->lost += (uint32_t)missing;
    from->explained += (uint32_t)missing;
    return (uint32_t)missing;
}

static void tell_lost(genus_node *node, uint8_t sender, uint16_t etag, uint32_t count)
{
    const uint16_t told = (uint16_t)((count > 0xFFFFU) ? 0xFFFFU : count);
    genus_tell_about(node, GENUS_NOTICE_EVENTS_LOST, sender, etag, told, node->now);
}

/* -- events ------------------------------------------------------------------------------------ */

#if GENUS_WITH_SEGMENTS

static bool is_older(const genus_reassembly *one, const genus_reassembly *other)
{
    const bool is_idle = !one->transfer.is_open && other->transfer.is_open;
    const bool is_alike = one->transfer.is_open == other->transfer.is_open;
    return is_idle || (is_alike && (one->transfer.at < other->transfer.at));
}

/* The transfer of a publisher; if there is no room, the place of one that is not under way, or of
 * the oldest. */
static genus_reassembly *reassembly_of(genus_node *node, uint8_t sender, uint16_t etag)
{
    genus_reassembly *found = &node->reassemblies[0];
    uint8_t index;
    for (index = 0U; index < GENUS_TRANSFERS; index++) {
        genus_reassembly *const each = &node->reassemblies[index];
        if ((each->node == sender) && (each->etag == etag)) {
            return each;
        }
        if ((found->node != 0U) && ((each->node == 0U) || is_older(each, found))) {
            found = each;
        }
    }
    if ((found->node != 0U) && found->transfer.is_open) {
        node->drops.too_many++;
    }
    found->node = sender;
    found->etag = etag;
    genus_transfer_init(&found->transfer, found->buffer, (uint16_t)sizeof found->buffer);
    return found;
}

/* Receive a segment; true if it was the last one, and the event is whole. */
static bool assemble(genus_node *node, const genus_frame *frame, genus_received *event)
{
    genus_transfer *const transfer = &reassembly_of(node, event->node, event->etag)->transfer;
    const bool is_whole =
        genus_transfer_receive(transfer, frame->data, frame->size, node->now, REASSEMBLY_NS,
                               &node->segments) == GENUS_SEGMENT_COMPLETE;
    event->size = transfer->size;
    event->payload = transfer->buffer;
    return is_whole;
}

#else

/* An event in several frames is dropped, and counted by its first one. */
static bool assemble(genus_node *node, const genus_frame *frame, genus_received *event)
{
    (void)event;
    if (genus_is_first_segment(frame)) {
        node->drops.segmented++;
    }
    return false;
}

#endif

/* An event of a class that the program does not know is kept if there is room for it, until the
 * broker says what class it is; it is offered again before any other one. */
void genus_receiver_deliver(genus_node *node, const genus_received *event)
{
    genus_questions_offer(node);
    if (!node->config->calls.on_event(node->config->context, event) &&
        !genus_questions_keep(node, event)) {
        node->drops.unknown_class++;
    }
}

static void receive_whole(genus_node *node, genus_publisher *from, const genus_block *block,
                          const genus_received *event, bool is_hard)
{
    const uint16_t base = from->etag;
    const int8_t gap = accept(node, from, event, counts_losses(block));
    bool is_periodic;
    const bool has_slots = genus_calendar_has_receivers(node, base, &is_periodic);
    if (gap < 0) {
        node->drops.repeated++;
        return;
    }
    if ((gap > 0) && !(is_hard && is_periodic)) {
        tell_lost(node, event->node, base, (uint32_t)gap);
    }
    if (is_hard && has_slots) {
        genus_calendar_keep(node, event, base);
    } else {
        genus_receiver_deliver(node, event);
    }
}

void genus_receiver_event(genus_node *node, const genus_frame *frame)
{
    const uint16_t etag = genus_etag_of(frame->id);
    const genus_block *const block = block_of(node, etag);
    genus_publisher *from;
    genus_received event;
    event.etag = etag;
    event.node = genus_node_of(frame->id);
    event.size = frame->size;
    event.payload = frame->data;
    if ((block == NULL) || (event.node == 0U)) {
        node->drops.unknown_etag++;
        return;
    }
    from = publisher_of(node, event.node, base_of(block, etag));
    if (from->is_wrong) {
        node->drops.wrong_catalog++;
        return;
    }
    if (from->segmented < 0) {
        node->drops.unknown_format++;
        return;
    }
    if ((from->segmented == 1) && !assemble(node, frame, &event)) {
        return;
    }
    if (event.size == 0U) {
        node->drops.empty++;
        return;
    }
    receive_whole(node, from, block, &event, genus_priority_of(frame->id) == GENUS_PRIORITY_HARD);
}

void genus_receiver_report(genus_node *node, const genus_frame *frame)
{
    const uint16_t word = genus_u16(frame->data);
    const uint16_t etag = (uint16_t)(word & GENUS_ETAG_MASK);
    const uint8_t sender = genus_node_of(frame->id);
    const genus_block *const block = block_of(node, etag);
    genus_publisher *from;
    uint32_t sent;
    uint32_t missing;
    if (frame->size != GENUS_FRAME_BYTES) {
        if (frame->size != 0U) { /* an empty one lowers the error counter of its sender */
            node->drops.malformed++;
        }
        return;
    }
    if ((block == NULL) || (sender == 0U)) {
        return;
    }
    from = publisher_of(node, sender, base_of(block, etag));
    from->segmented = ((word & 0x8000U) != 0U) ? 1 : 0;
    sent = ((uint32_t)frame->data[2] << 16) | ((uint32_t)frame->data[3] << 8) | frame->data[4];
    missing = compare(from, sent, counts_losses(block));
    if (missing > 0U) {
        tell_lost(node, sender, from->etag, missing);
    }
}

/* Whether an event tag and a subject belong together, as far as this firmware knows. */
static bool is_contradiction(const genus_node *node, uint16_t etag, const uint8_t subject[3])
{
    bool found = false;
    uint8_t index;
    for (index = 0U; index < node->config->known_count; index++) {
        const genus_known *const known = &node->config->known[index];
        const bool is_subject = memcmp(known->subject, subject, 3U) == 0;
        if ((known->etag == etag) != is_subject) {
            found = true;
        }
    }
    return found;
}

/* A publisher says what its events are: those of another type are not delivered. Whether layouts
 * differ only because one catalog has grown cannot be seen from their digests, so they may. */
void genus_receiver_signature(genus_node *node, const genus_frame *frame)
{
    const uint16_t etag = genus_u16(frame->data);
    const uint8_t sender = genus_node_of(frame->id);
    const genus_block *block;
    genus_publisher *from;
    bool is_wrong;
    if ((frame->size != GENUS_FRAME_BYTES) ||
        (genus_priority_of(frame->id) != GENUS_PRIORITY_SYSTEM) || (sender < GENUS_FIRST_NODE) ||
        (sender > GENUS_LAST_NODE) || (etag > GENUS_ETAG_MASK)) {
        node->drops.malformed++;
        return;
    }
    block = block_of(node, etag);
    if ((block == NULL) || (node->config->known == NULL)) {
        return;
    }
    from = publisher_of(node, sender, base_of(block, etag));
    is_wrong = is_contradiction(node, from->etag, &frame->data[2]);
    if (is_wrong && !from->is_wrong) {
        genus_questions_distrust(node, sender, from->etag, block->width);
        genus_tell_about(node, GENUS_NOTICE_WRONG_CATALOG, sender, from->etag, 0U, node->now);
    }
    from->is_wrong = is_wrong;
}

void genus_receiver_announcement(genus_node *node, const genus_frame *frame)
{
    const uint16_t etag = genus_u16(frame->data);
    const uint8_t sender = genus_node_of(frame->id);
    const genus_block *block;
    if ((frame->size != GENUS_FRAME_BYTES) ||
        (genus_priority_of(frame->id) != GENUS_PRIORITY_PROTOCOL) || (sender < GENUS_FIRST_NODE) ||
        (sender > GENUS_LAST_NODE) || (etag > GENUS_ETAG_MASK) || ((frame->data[2] >> 6) == 3U)) {
        node->drops.malformed++;
        return;
    }
    block = block_of(node, etag);
    if (block != NULL) {
        publisher_of(node, sender, base_of(block, etag))->segmented =
            ((frame->data[2] & 0x20U) != 0U) ? 1 : 0;
    }
}
