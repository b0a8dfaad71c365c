/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of the calendar.
 *
 * A slot of the node takes the latest event from a buffer at the latest ready time, and sends it
 * with the highest priority in at most `omissions + 1` attempts. A slot of another node keeps what
 * is received and delivers it exactly at the deadline; if nothing came, that is told, unless the
 * slot is sporadic. Nothing is sent or delivered while the precision of the clock is worse than
 * half the gap of the narrowest slot. */
#include "genus_node_parts.h"

#include <string.h>

#if GENUS_WITH_CALENDAR

#define PHASE_IDLE 0U
#define PHASE_BEGIN 1U
#define PHASE_OPEN 2U

/* What happens to a slot; at one instant in this order. */
#define STEP_END 0U
#define STEP_CLOSE 1U
#define STEP_SETTLE 2U
#define STEP_BEGIN 3U

typedef struct {
    genus_time at;
    uint8_t step;
    uint8_t slot;
} next_step;

static genus_time floor_mod(genus_time value, genus_time by)
{
    const genus_time rest = value % by;
    return (rest < 0) ? (rest + by) : rest;
}

static const genus_slot *slot_of(const genus_node *node, uint8_t slot)
{
    return &node->config->slots[slot];
}

static bool is_sender(const genus_node *node, uint8_t slot)
{
    return slot_of(node, slot)->channel != GENUS_NO_CHANNEL;
}

uint8_t genus_calendar_slot_of(const genus_node *node, uint8_t channel)
{
    uint8_t found = GENUS_NO_CHANNEL;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (slot_of(node, slot)->channel == channel) {
            found = slot;
        }
    }
    return found;
}

/* -- agenda ------------------------------------------------------------------------------------ */

/* The first occurrence of a slot that starts at or after a global time. */
static void schedule(genus_node *node, uint8_t slot, genus_time after)
{
    const genus_slot *const spec = slot_of(node, slot);
    genus_slot_use *const use = &node->slots[slot];
    use->start = after + floor_mod(spec->offset_ns - after, spec->period_ns);
    use->phase = PHASE_BEGIN;
    use->close_at = GENUS_NEVER;
    node->slot_order++;
    use->order = node->slot_order;
}

static void consider(next_step *first, genus_time at, uint8_t step, uint8_t slot,
                     const genus_node *node)
{
    const bool is_first =
        (first->slot == GENUS_NO_CHANNEL) || (at < first->at) ||
        ((at == first->at) &&
         ((step < first->step) ||
          ((step == first->step) && (node->slots[slot].order < node->slots[first->slot].order))));
    if (is_first) {
        first->at = at;
        first->step = step;
        first->slot = slot;
    }
}

static bool find_next(const genus_node *node, next_step *first)
{
    uint8_t slot;
    first->slot = GENUS_NO_CHANNEL;
    first->at = GENUS_NEVER;
    first->step = STEP_BEGIN;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        const genus_slot_use *const use = &node->slots[slot];
        if (use->is_joined && (use->phase == PHASE_BEGIN)) {
            consider(first, use->start, STEP_BEGIN, slot, node);
        } else if (use->is_joined && (use->phase == PHASE_OPEN)) {
            consider(first, use->start + slot_of(node, slot)->length_ns, STEP_END, slot, node);
            if (use->close_at != GENUS_NEVER) {
                consider(first, use->close_at, STEP_CLOSE, slot, node);
            }
        } else {
            /* it is not used */
        }
        if (use->is_joined && (use->settle_at != GENUS_NEVER)) {
            consider(first, use->settle_at, STEP_SETTLE, slot, node);
        }
    }
    return first->slot != GENUS_NO_CHANNEL;
}

genus_time genus_calendar_wake_at(const genus_node *node)
{
    next_step first;
    return find_next(node, &first) ? genus_node_local_time(node, first.at) : GENUS_NEVER;
}

/* -- a slot of this node ----------------------------------------------------------------------- */

static void load(genus_node *node, const genus_frame *frame)
{
    node->config->calls.load(node->config->context, GENUS_TIME_TRIGGERED, frame);
}

/* The frame of the event in a slot that is being sent. */
static void current_frame(const genus_node *node, uint8_t slot, genus_frame *frame)
{
    const genus_slot_use *const use = &node->slots[slot];
    const genus_tx_channel *const channel = &node->channels[slot_of(node, slot)->channel];
    frame->id = genus_identifier(GENUS_PRIORITY_HARD, node->number, use->etag);
    genus_event_data(channel, use->payload, use->size, use->position, frame);
}

static void load_current(genus_node *node, uint8_t slot)
{
    genus_frame frame;
    current_frame(node, slot, &frame);
    load(node, &frame);
}

static void tell_failed(genus_node *node, uint8_t slot, uint16_t reference, uint8_t attempts)
{
    const uint8_t channel = slot_of(node, slot)->channel;
    node->channels[channel].counts.failed++;
    if (slot_of(node, slot)->is_sporadic && (node->channels[channel].state == GENUS_STATE_READY)) {
        /* its subscribers expect nothing in this slot: the number and a report tell them */
        genus_channel_commit(node, channel);
        genus_channel_report(node, channel, false);
    }
    genus_tell(node, GENUS_NOTICE_NOT_SENT, channel, reference, attempts, node->now);
}

static void give_up(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    use->size = 0U;
    if (!use->is_closed) { /* else the mailbox may have the frame of another slot */
        load(node, NULL);
    }
    tell_failed(node, slot, use->reference, use->attempts);
}

/* An event whose slot is over, and that was not sent meanwhile, has failed. */
static void settle(genus_node *node, uint8_t slot)
{
    if ((node->slots[slot].size != 0U) && node->slots[slot].is_overdue) {
        give_up(node, slot);
    }
}

static void write(genus_node *node, uint8_t slot, uint16_t etag, const uint8_t *payload,
                  uint16_t size, uint16_t reference)
{
    const genus_slot *const spec = slot_of(node, slot);
    genus_slot_use *const use = &node->slots[slot];
    const bool is_replaced = use->next_size != 0U;
    const bool is_failed = spec->is_sporadic || use->is_stopped ||
                           ((node->now - use->written_at) > (spec->period_ns - spec->gap_ns));
    const uint16_t before = use->next_reference;
    use->next_size = size;
    use->next_etag = etag;
    use->next_reference = reference;
    use->written_at = node->now;
    (void)memcpy(use->next, payload, size);
    if (is_replaced && is_failed) { /* no slot came for it in a period */
        tell_failed(node, slot, before, 0U);
    } else if (is_replaced) {
        node->channels[spec->channel].counts.replaced++;
    } else {
        /* nothing waited */
    }
}

/* Whether a sporadic event comes too soon after the last; the gap allows for the errors of clocks.
 */
static bool is_too_soon(genus_node *node, uint8_t channel)
{
    genus_tx_channel *const state = &node->channels[channel];
    const genus_slot *const slot = slot_of(node, state->slot);
    const genus_time instant = genus_node_global_time(node, node->now);
    const genus_time since = instant - state->published_at;
    if (!slot->is_sporadic) {
        return false;
    }
    if (state->has_published_at && (since >= 0) && (since < (slot->period_ns - slot->gap_ns))) {
        return true;
    }
    state->has_published_at = true;
    state->published_at = instant;
    return false;
}

genus_publish_result genus_calendar_publish(genus_node *node, uint8_t channel, uint16_t etag,
                                            const uint8_t *payload, uint16_t size,
                                            uint16_t reference)
{
    const uint8_t slot = node->channels[channel].slot;
    if ((size > GENUS_HARD_BYTES) ||
        (genus_frame_count(&node->channels[channel], size) > slot_of(node, slot)->frames)) {
        return GENUS_PUBLISH_TOO_LONG;
    }
    if (is_too_soon(node, channel)) {
        return GENUS_PUBLISH_TOO_SOON;
    }
    write(node, slot, etag, payload, size, reference);
    node->channels[channel].counts.published++;
    return GENUS_PUBLISHED;
}

static bool allows(const genus_node *node, uint8_t slot)
{
    return !node->is_off && (!node->is_passive || slot_of(node, slot)->is_planned_passive);
}

/* Send the event in the buffer; it has failed if it was for an earlier slot, or the node is off the
 * bus. */
static void begin_sending(genus_node *node, uint8_t slot)
{
    const genus_slot *const spec = slot_of(node, slot);
    genus_slot_use *const use = &node->slots[slot];
    const uint16_t size = use->next_size;
    settle(node, slot);
    use->next_size = 0U;
    use->is_stopped = false;
    if (size == 0U) {
        return;
    }
    if (node->is_off || ((node->now - use->written_at) > spec->period_ns)) {
        tell_failed(node, slot, use->next_reference, 0U);
        return;
    }
    use->size = size;
    use->etag = use->next_etag;
    use->reference = use->next_reference;
    use->position = 0U;
    use->attempts = 0U;
    use->is_closed = false;
    use->is_overdue = false;
    use->occurrence = use->start;
    (void)memcpy(use->payload, use->next, size);
    use->payload[0] = (uint8_t)((use->payload[0] & 0x1FU) |
                                (uint8_t)(node->channels[spec->channel].sequence << 5));
    load_current(node, slot);
    if (!allows(node, slot)) {
        use->close_at = use->start + spec->closes_ns;
    }
}

/* Start no further attempt; one that is on the wire is in time. */
static void close_sending(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    use->close_at = GENUS_NEVER;
    if (use->size != 0U) {
        use->is_closed = true;
        load(node, NULL);
    }
}

/* The slot is over: start no further attempt. One that is on the wire ends before `settle_at`. */
static void end_sending(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    if (use->size != 0U) {
        use->is_overdue = true;
        close_sending(node, slot);
        use->settle_at =
            genus_node_global_time(node, node->now) + slot_of(node, slot)->length_ns;
    }
}

static void abandon(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    if (is_sender(node, slot)) {
        use->is_stopped = true;
        if (use->next_size != 0U) {
            use->next_size = 0U;
            tell_failed(node, slot, use->next_reference, 0U);
        }
        end_sending(node, slot);
    }
}

static bool is_current(const genus_node *node, uint8_t slot, const genus_frame *frame)
{
    genus_frame current;
    if (!is_sender(node, slot) || !node->slots[slot].is_joined || (node->slots[slot].size == 0U)) {
        return false;
    }
    current_frame(node, slot, &current);
    return genus_same_frame(frame, &current);
}

static void frame_sent(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    const uint8_t channel = slot_of(node, slot)->channel;
    use->position++;
    use->attempts = 0U;
    if (use->position <
        genus_frame_count(&node->channels[slot_of(node, slot)->channel], use->size)) {
        if (!use->is_closed) {
            load_current(node, slot);
        }
    } else {
        const genus_time deadline = use->occurrence + slot_of(node, slot)->length_ns;
        use->size = 0U;
        genus_channel_commit(node, channel);
        node->channels[channel].counts.sent++;
        if (genus_node_global_time(node, node->now) > deadline) { /* it was on the wire then */
            node->channels[channel].counts.missed++;
            genus_tell(node, GENUS_NOTICE_DEADLINE_MISSED, channel, use->reference, 0U, deadline);
        }
        genus_tell(node, GENUS_NOTICE_SENT, channel, use->reference, 0U, node->now);
    }
}

void genus_calendar_sent(genus_node *node, const genus_frame *frame)
{
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (is_current(node, slot, frame)) {
            frame_sent(node, slot);
            return;
        }
    }
}

void genus_calendar_failed(genus_node *node, const genus_frame *frame)
{
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (is_current(node, slot, frame)) {
            genus_slot_use *const use = &node->slots[slot];
            use->attempts++;
            if (use->is_closed || (use->attempts > slot_of(node, slot)->omissions)) {
                give_up(node, slot);
            }
            return;
        }
    }
}

/* -- a slot of another node -------------------------------------------------------------------- */

static bool is_receiver_of(const genus_node *node, uint8_t slot, uint16_t etag)
{
    return node->slots[slot].is_joined && !is_sender(node, slot) &&
           (slot_of(node, slot)->etag == etag);
}

bool genus_calendar_has_receivers(const genus_node *node, uint16_t etag, bool *is_periodic)
{
    bool found = false;
    uint8_t slot;
    *is_periodic = false;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (is_receiver_of(node, slot, etag)) {
            found = true;
            if (!slot_of(node, slot)->is_sporadic) {
                *is_periodic = true;
            }
        }
    }
    return found;
}

/* Whether an event class has a slot of this node; others then do not count, where numbers are
 * planned. */
static bool has_slot_of(const genus_node *node, uint16_t etag, uint8_t sender)
{
    bool found = false;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (is_receiver_of(node, slot, etag) && (slot_of(node, slot)->number == sender)) {
            found = true;
        }
    }
    return found;
}

/* Whether an instant lies in a slot, half the gap before it included; `start` is then that of the
 * occurrence. */
static bool is_within(const genus_slot *spec, genus_time instant, genus_time *start)
{
    const genus_time early = spec->gap_ns / 2;
    const genus_time passed = floor_mod((instant - spec->offset_ns) + early, spec->period_ns);
    *start = (instant + early) - passed;
    return passed <= (spec->length_ns + early);
}

static void keep(genus_node *node, uint8_t slot, const genus_received *event, genus_time start)
{
    genus_slot_use *const use = &node->slots[slot];
    if (use->has_occurrence && (use->occurrence == start)) {
        node->drops.repeated++;
    } else if (event->size > GENUS_HARD_BYTES) {
        node->drops.too_long++;
    } else {
        use->has_occurrence = true;
        use->occurrence = start;
        use->size = event->size;
        use->etag = event->etag;
        use->node = event->node;
        (void)memcpy(use->payload, event->payload, event->size);
    }
}

void genus_calendar_keep(genus_node *node, const genus_received *event, uint16_t base)
{
    const genus_time instant = genus_node_global_time(node, node->now);
    const bool is_planned = has_slot_of(node, base, event->node);
    genus_time start;
    uint8_t slot;
    if (!node->is_running) {
        node->drops.unsynchronised++;
        return;
    }
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        const genus_slot *const spec = slot_of(node, slot);
        if (is_receiver_of(node, slot, base) && (!is_planned || (spec->number == event->node)) &&
            is_within(spec, instant, &start)) {
            keep(node, slot, event, start);
            return;
        }
    }
    node->drops.outside_slot++;
}

static void end_receiving(genus_node *node, uint8_t slot, genus_time start)
{
    const genus_slot *const spec = slot_of(node, slot);
    genus_slot_use *const use = &node->slots[slot];
    genus_received event;
    const bool is_due = (use->size != 0U) && (use->occurrence == start);
    event.etag = use->etag;
    event.node = use->node;
    event.size = use->size;
    event.payload = use->payload;
    use->size = 0U;
    if (is_due) {
        genus_receiver_deliver(node, &event);
    } else if (!spec->is_sporadic) {
        genus_tell_about(node, GENUS_NOTICE_EVENT_MISSING, spec->number, spec->etag, 1U,
                         start + spec->length_ns);
    } else {
        /* a sporadic slot may stay empty */
    }
}

/* -- dispatching ------------------------------------------------------------------------------- */

static bool is_used(const genus_node *node)
{
    bool found = false;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        found = found || node->slots[slot].is_joined;
    }
    return found;
}

static genus_time allowed_ns(const genus_node *node)
{
    genus_time least = GENUS_NEVER;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (node->slots[slot].is_joined) {
            least = genus_earlier(least, slot_of(node, slot)->gap_ns);
        }
    }
    return least / 2;
}

static void start_all(genus_node *node, genus_time precision)
{
    uint8_t slot;
    node->is_running = true;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (node->slots[slot].is_joined) {
            schedule(node, slot, genus_node_global_time(node, node->now));
        }
    }
    if (node->has_told_stop) {
        node->has_told_stop = false;
        genus_tell(node, GENUS_NOTICE_HARD_RESUMED, GENUS_NO_CHANNEL, 0U, 0U, precision);
    }
}

static void stop_all(genus_node *node, genus_time precision)
{
    uint8_t slot;
    node->is_running = false;
    node->has_told_stop = true;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        node->slots[slot].phase = PHASE_IDLE;
        node->slots[slot].settle_at = GENUS_NEVER;
    }
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (node->slots[slot].is_joined) {
            abandon(node, slot);
        }
    }
    genus_tell(node, GENUS_NOTICE_HARD_STOPPED, GENUS_NO_CHANNEL, 0U, 0U, precision);
}

void genus_calendar_watch(genus_node *node)
{
    const genus_time precision = genus_node_precision(node, node->now);
    if (is_used(node)) {
        if (precision <= allowed_ns(node)) {
            if (!node->is_running) {
                start_all(node, precision);
            }
        } else if (node->is_running || !node->has_told_stop) {
            stop_all(node, precision);
        } else {
            /* it is stopped, and that was told */
        }
    }
}

void genus_calendar_join(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    (void)memset(use, 0, sizeof *use);
    use->is_joined = true;
    use->close_at = GENUS_NEVER;
    use->settle_at = GENUS_NEVER;
    if (node->is_running) {
        schedule(node, slot, genus_node_global_time(node, node->now));
    } else {
        node->has_told_stop = false;
        genus_calendar_watch(node);
    }
}

void genus_calendar_leave(genus_node *node, uint8_t slot)
{
    const uint8_t channel = slot_of(node, slot)->channel;
    genus_slot_use *const use = &node->slots[slot];
    abandon(node, slot);
    if (use->size != 0U) {
        if ((use->position + 1U) < genus_frame_count(&node->channels[channel], use->size)) {
            give_up(node, slot);
        } else { /* the last frame may be on the wire */
            use->size = 0U;
            genus_channel_commit(node, channel);
            node->channels[channel].counts.unknown++;
            genus_tell(node, GENUS_NOTICE_MAYBE_SENT, channel, use->reference, 0U, node->now);
        }
    }
    use->settle_at = GENUS_NEVER;
    use->is_joined = false;
    use->phase = PHASE_IDLE;
}

/* Receive in the slots of other nodes whose events are wanted. */
void genus_calendar_receive_in(genus_node *node)
{
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (!is_sender(node, slot) && !node->slots[slot].is_joined &&
            genus_receiver_wants(node, slot_of(node, slot)->etag)) {
            genus_calendar_join(node, slot);
        }
    }
}

static void begin(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    use->phase = PHASE_OPEN;
    if (genus_node_global_time(node, node->now) > (use->start + slot_of(node, slot)->wait_ns)) {
        abandon(node, slot); /* this node woke up too late to use it */
    } else if (is_sender(node, slot)) {
        begin_sending(node, slot);
    } else {
        /* an event may have come before this node woke up */
    }
}

static void end(genus_node *node, uint8_t slot)
{
    genus_slot_use *const use = &node->slots[slot];
    const genus_time start = use->start;
    const genus_time past =
        genus_node_global_time(node, node->now) - slot_of(node, slot)->period_ns;
    schedule(node, slot, (past > (start + 1)) ? past : (start + 1));
    if (is_sender(node, slot)) {
        end_sending(node, slot);
    } else {
        end_receiving(node, slot, start);
    }
}

void genus_calendar_wake(genus_node *node)
{
    next_step first;
    if (genus_calendar_wake_at(node) > node->now) {
        return;
    }
    genus_calendar_watch(node);
    while (find_next(node, &first) && (genus_node_local_time(node, first.at) <= node->now)) {
        if (first.step == STEP_BEGIN) {
            begin(node, first.slot);
        } else if (first.step == STEP_CLOSE) {
            close_sending(node, first.slot);
        } else if (first.step == STEP_SETTLE) {
            node->slots[first.slot].settle_at = GENUS_NEVER;
            settle(node, first.slot);
        } else {
            end(node, first.slot);
        }
    }
}

/* -- for the errors of the controller ------------------------------------------------------------
 */

bool genus_calendar_promises(const genus_node *node)
{
    bool found = true;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        if (node->slots[slot].is_joined && is_sender(node, slot) && !allows(node, slot)) {
            found = false;
        }
    }
    return found;
}

bool genus_calendar_has_senders(const genus_node *node)
{
    bool found = false;
    uint8_t slot;
    for (slot = 0U; slot < node->config->slot_count; slot++) {
        found = found || (node->slots[slot].is_joined && is_sender(node, slot));
    }
    return found;
}

#endif
