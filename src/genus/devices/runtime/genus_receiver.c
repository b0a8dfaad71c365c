/* The receiving side of a node: from a frame to an event, what was lost, and questions for late
 * classes. */
#include "genus_node_parts.h"

#include <string.h>

#define ECHO_NS (20 * GENUS_MS)
#define REASSEMBLY_NS (2000 * GENUS_MS)
#define REPORT_RANGE ((uint32_t)1U << 24)

#define QUESTION_FREE 0U
#define QUESTION_ASKED 1U
#define QUESTION_RESTING 2U /* answered, or given up: not asked again for a while */
#define ANSWER_RETRY_NS (500 * GENUS_MS)
#define ANSWER_TIMEOUT_NS (10000 * GENUS_MS)
#define ANSWER_ATTEMPTS 4U
#define QUESTION_PAUSE_NS (10000 * GENUS_MS)

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
    oldest->seen_at = node->now - ECHO_NS;
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
        ((node->now - from->seen_at) < ECHO_NS)) {
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

static void ask_class(genus_node *node, uint16_t etag);

void genus_receiver_deliver(genus_node *node, const genus_received *event)
{
    if (!node->config->calls.on_event(node->config->context, event)) {
        node->drops.unknown_class++;
        ask_class(node, event->etag);
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
    if (from->segmented < 0) {
        node->drops.unknown_format++;
        return;
    }
    if (from->segmented == 1) {
        genus_transfer *const transfer = &reassembly_of(node, event.node, etag)->transfer;
        if (genus_transfer_receive(transfer, frame->data, frame->size, node->now, REASSEMBLY_NS,
                                   &node->segments) != GENUS_SEGMENT_COMPLETE) {
            return;
        }
        event.size = transfer->size;
        event.payload = transfer->buffer;
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

/* -- questions for late classes ---------------------------------------------------------------- */

static void withdraw(genus_node *node, genus_question *question)
{
    if (question->message != 0U) {
        genus_queue_remove(node, question->message);
        question->message = 0U;
    }
}

static void rest(genus_node *node, genus_question *question)
{
    withdraw(node, question);
    question->state = QUESTION_RESTING;
    question->retry_at = node->now + QUESTION_PAUSE_NS;
}

static void send_question(genus_node *node, genus_question *question)
{
    genus_frame frame;
    withdraw(node, question);
    (void)memset(&frame, 0, sizeof frame);
    frame.id = genus_identifier(GENUS_PRIORITY_PROTOCOL, node->number, GENUS_ETAG_QUESTION);
    frame.size = GENUS_FRAME_BYTES;
    frame.data[0] = GENUS_QUESTION_CLASS;
    frame.data[1] = question->number;
    genus_put_u16(&frame.data[6], question->etag);
    question->attempts++;
    question->retry_at = node->now + ANSWER_RETRY_NS;
    question->timeout_at = node->now + ANSWER_TIMEOUT_NS;
    question->message = genus_queue_send(node, &frame);
}

/* Ask the broker what class an event tag is, unless that was done lately. */
static void ask_class(genus_node *node, uint16_t etag)
{
    genus_question *place = NULL;
    uint8_t index;
    if (node->config->calls.on_class == NULL) {
        return;
    }
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        genus_question *const each = &node->questions[index];
        if ((each->state != QUESTION_FREE) && (each->etag == etag)) {
            return;
        }
        if (each->state == QUESTION_FREE) {
            place = each;
        }
    }
    if (place != NULL) {
        place->state = QUESTION_ASKED;
        place->etag = etag;
        place->attempts = 0U;
        place->message = 0U;
        place->number = node->next_question;
        place->retry_at = GENUS_NEVER;
        node->next_question++;
        if (node->number != 0U) {
            send_question(node, place);
        }
    }
}

void genus_questions_leave(genus_node *node)
{
    uint8_t index;
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        genus_question *const each = &node->questions[index];
        withdraw(node, each);
        if (each->state == QUESTION_ASKED) {
            each->attempts = 0U;
            each->retry_at = GENUS_NEVER;
        }
    }
}

void genus_questions_join(genus_node *node)
{
    uint8_t index;
    genus_questions_leave(node);
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        if (node->questions[index].state == QUESTION_ASKED) {
            send_question(node, &node->questions[index]);
        }
    }
}

/* A broker started, or its catalog is another one: what it did not know it may know now. */
void genus_questions_refresh(genus_node *node)
{
    uint8_t index;
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        if (node->questions[index].state == QUESTION_RESTING) {
            node->questions[index].state = QUESTION_FREE;
        }
    }
}

static void hand_over(genus_node *node, const uint8_t *answer, uint16_t size)
{
    uint8_t index;
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        genus_question *const each = &node->questions[index];
        if ((each->state == QUESTION_ASKED) && (each->number == answer[1])) {
            const uint16_t etag = each->etag;
            rest(node, each);
            if (size == GENUS_ANSWER_HEADER) {
                genus_tell_about(node, GENUS_NOTICE_CLASS_UNKNOWN, 0U, etag, 0U, node->now);
            } else {
                node->config->calls.on_class(node->config->context, &answer[GENUS_ANSWER_HEADER],
                                             (uint16_t)(size - GENUS_ANSWER_HEADER));
            }
            return;
        }
    }
}

void genus_questions_answer(genus_node *node, const genus_frame *frame)
{
    const genus_transfer *const answer = &node->answer;
    bool is_waiting = false;
    uint8_t index;
    if (frame->id != genus_identifier(GENUS_PRIORITY_NONE, GENUS_BROKER_NODE, GENUS_ETAG_ANSWER)) {
        return; /* a layout, for nodes that compare them */
    }
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        genus_question *const each = &node->questions[index];
        if ((each->state == QUESTION_ASKED) && (each->retry_at != GENUS_NEVER)) {
            is_waiting = true; /* the broker is busy with answers: ours may be next */
            each->retry_at = genus_earlier(node->now + ANSWER_RETRY_NS, each->timeout_at);
        }
    }
    if (!is_waiting ||
        (genus_transfer_receive(&node->answer, frame->data, frame->size, node->now, ANSWER_RETRY_NS,
                                &node->answer_segments) != GENUS_SEGMENT_COMPLETE)) {
        return;
    }
    if ((answer->size >= GENUS_ANSWER_HEADER) && (answer->buffer[0] == node->number) &&
        (answer->buffer[2] == GENUS_QUESTION_CLASS)) {
        hand_over(node, answer->buffer, answer->size);
    }
}

genus_time genus_questions_wake_at(const genus_node *node)
{
    genus_time found = GENUS_NEVER;
    uint8_t index;
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        if (node->questions[index].state != QUESTION_FREE) {
            found = genus_earlier(found, node->questions[index].retry_at);
        }
    }
    return found;
}

void genus_questions_wake(genus_node *node)
{
    uint8_t index;
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        genus_question *const each = &node->questions[index];
        if ((each->state == QUESTION_FREE) || (each->retry_at > node->now)) {
            continue;
        }
        if (each->state == QUESTION_RESTING) {
            each->state = QUESTION_FREE;
        } else if (each->attempts < ANSWER_ATTEMPTS) {
            send_question(node, each);
        } else {
            const uint16_t etag = each->etag;
            rest(node, each);
            genus_tell_about(node, GENUS_NOTICE_CLASS_UNKNOWN, 0U, etag, 0U, node->now);
        }
    }
}
