/* SPDX-License-Identifier: Apache-2.0 */
/* The channels that a node publishes: announcing, publishing, and the counters, reports and
 * signatures of them. */
#include "genus_node_parts.h"

#include <string.h>

#define REPORT_NS (1000 * GENUS_MS)
#define SOON_NS (5 * GENUS_MS)
#define REPORT_PAUSE_NS (200 * GENUS_MS)
#define ANSWER_INTERVAL_NS (GENUS_MS / 2)

/* -- opening and closing ----------------------------------------------------------------------- */

/* The channel is bound: it is ready once its signature and first report were sent. */
void genus_channel_open(genus_node *node, uint8_t channel)
{
    genus_channel_sign(node, channel, GENUS_THEN_READY);
}

static void leave_calendar(genus_node *node, uint8_t channel)
{
    genus_tx_channel *const state = &node->channels[channel];
    if (state->slot != GENUS_NO_CHANNEL) {
        genus_calendar_leave(node, state->slot);
        state->slot = GENUS_NO_CHANNEL;
    }
}

static void make_ready(genus_node *node, uint8_t channel)
{
    genus_tx_channel *const state = &node->channels[channel];
    if (state->state != GENUS_STATE_BINDING) {
        return;
    }
    state->state = GENUS_STATE_READY;
    state->refusal = 0U;
    state->opened_at = node->now;
    if (node->config->channels[channel].qos == GENUS_QOS_HARD) {
        state->slot = genus_calendar_slot_of(node, channel);
        genus_calendar_join(node, state->slot);
        if (node->is_passive) {
            genus_tell(node, GENUS_NOTICE_ERROR_PASSIVE, channel, 0U,
                       genus_calendar_promises(node) ? 1U : 0U, node->now);
            genus_recovery_start(node);
        }
    }
    genus_tell(node, GENUS_NOTICE_READY, channel, 0U, 0U, node->now);
}

void genus_channel_refuse(genus_node *node, uint8_t channel, genus_refusal reason)
{
    leave_calendar(node, channel);
    node->channels[channel].state = GENUS_STATE_REFUSED;
    node->channels[channel].refusal = (uint8_t)reason;
    genus_tell(node, GENUS_NOTICE_NOT_BOUND, channel, 0U, (uint16_t)reason, node->now);
}

/* Send nothing until the channels are bound again: the node has no number. */
void genus_channels_suspend(genus_node *node)
{
    uint8_t channel;
    node->recovery_message = 0U;
    node->recovery_at = GENUS_NEVER;
    for (channel = 0U; channel < node->config->channel_count; channel++) {
        genus_tx_channel *const state = &node->channels[channel];
        leave_calendar(node, channel);
        state->is_reporting = false;
        state->is_signing = false;
        if (state->state == GENUS_STATE_READY) {
            state->state = GENUS_STATE_BINDING;
        }
    }
}

/* Send the last report of a channel that was withdrawn, when none of its events wait any more. */
static void report_last(genus_node *node, uint8_t channel)
{
    const genus_tx_channel *const state = &node->channels[channel];
    if ((state->refusal == (uint8_t)GENUS_REFUSED_WITHDRAWN) && (state->waiting == 0U)) {
        genus_channel_report(node, channel, false);
    }
}

void genus_node_withdraw(genus_node *node, uint8_t channel, genus_time now)
{
    genus_tx_channel *const state = &node->channels[channel];
    const bool was_ready = state->state == GENUS_STATE_READY;
    node->now = now;
    leave_calendar(node, channel);
    state->state = GENUS_STATE_REFUSED;
    state->refusal = (uint8_t)GENUS_REFUSED_WITHDRAWN;
    state->announced = 0U;
    if (was_ready) {
        report_last(node, channel);
    }
    genus_queue_update(node);
}

/* -- publishing -------------------------------------------------------------------------------- */

static void set_deadline(genus_node *node, genus_outgoing *event,
                         const genus_publish_options *options)
{
    const genus_channel *const spec = &node->config->channels[event->channel];
    event->deadline = (options->deadline != 0) ? options->deadline : (node->now + spec->span_ns);
    if (options->expires != 0) {
        event->expires = options->expires;
    } else {
        event->expires = (spec->expires_ns != 0) ? (node->now + spec->expires_ns) : 0;
    }
}

static genus_publish_result publish_queued(genus_node *node, uint8_t channel, uint16_t etag,
                                           const uint8_t *payload, uint16_t size,
                                           const genus_publish_options *options)
{
    const genus_channel *const spec = &node->config->channels[channel];
    genus_outgoing *const event = genus_queue_reserve(node);
    if (size > GENUS_EVENT_BYTES) {
        return GENUS_PUBLISH_TOO_LONG;
    }
    if (event == NULL) {
        return GENUS_PUBLISH_QUEUE_FULL;
    }
    event->channel = channel;
    event->etag = etag;
    event->size = size;
    event->reference = options->reference;
    event->priority = spec->is_bulk ? GENUS_PRIORITY_BULK : GENUS_PRIORITY_NONE;
    event->deadline = 0;
    event->expires = 0;
    (void)memcpy(event->payload, payload, size);
    node->channels[channel].counts.published++;
    node->channels[channel].waiting++;
    if (spec->qos == GENUS_QOS_SOFT) {
        set_deadline(node, event, options);
    }
    if ((event->expires != 0) && (event->expires <= node->now)) {
        genus_event_expired(node, event, false);
    } else {
        genus_queue_add_event(node, event);
    }
    return GENUS_PUBLISHED;
}

genus_publish_result genus_node_publish(genus_node *node, uint8_t channel, uint16_t etag,
                                        const uint8_t *payload, uint16_t size,
                                        const genus_publish_options *options, genus_time now)
{
    static const genus_publish_options defaults = {0, 0, 0U};
    const genus_publish_options *const given = (options == NULL) ? &defaults : options;
    genus_publish_result result;
    const genus_tx_channel *state;
    uint16_t full;
    if ((channel >= node->config->channel_count) ||
        (node->channels[channel].state != GENUS_STATE_READY)) {
        return GENUS_PUBLISH_NOT_READY;
    }
    state = &node->channels[channel];
    if ((size == 0U) || (!genus_is_segmented(state) && (size > GENUS_DATA_BYTES))) {
        return GENUS_PUBLISH_TOO_LONG;
    }
    full = (uint16_t)(state->etag | (etag & ((1U << node->config->channels[channel].width) - 1U)));
    node->now = now;
    if (state->slot != GENUS_NO_CHANNEL) {
        result = genus_calendar_publish(node, channel, full, payload, size, given->reference);
    } else {
        result = publish_queued(node, channel, full, payload, size, given);
    }
    if (!node->is_inside) {
        genus_queue_update(node);
    }
    return result;
}

void genus_event_data(const genus_tx_channel *channel, const uint8_t *payload, uint16_t size,
                      uint16_t position, genus_frame *frame)
{
    genus_set_fd(frame, GENUS_FD);
    if (genus_is_segmented(channel)) {
        frame->size = genus_segment(payload, size, channel->transfer, position, frame->data);
    } else {
        frame->size = genus_padded_size((uint8_t)size);
        (void)memcpy(frame->data, payload, size);
        (void)memset(&frame->data[size], 0, (size_t)frame->size - size);
    }
}

void genus_channel_commit(genus_node *node, uint8_t channel)
{
    genus_tx_channel *const state = &node->channels[channel];
    state->sequence = (uint8_t)((state->sequence + 1U) & 7U);
    state->transfer = (uint8_t)((state->transfer + 1U) & 31U);
}

/* -- what became of events --------------------------------------------------------------------- */

void genus_event_sent(genus_node *node, const genus_outgoing *event)
{
    const uint8_t channel = event->channel;
    node->channels[channel].counts.sent++;
    node->channels[channel].waiting--;
    report_last(node, channel);
    genus_tell(node, GENUS_NOTICE_SENT, channel, event->reference, 0U, node->now);
}

void genus_event_missed(genus_node *node, const genus_outgoing *event)
{
    node->channels[event->channel].counts.missed++;
    genus_tell(node, GENUS_NOTICE_DEADLINE_MISSED, event->channel, event->reference, 0U,
               event->deadline);
}

void genus_event_expired(genus_node *node, const genus_outgoing *event, bool is_sent)
{
    const uint8_t channel = event->channel;
    if (is_sent) {
        node->channels[channel].counts.sent++;
    } else {
        node->channels[channel].counts.expired++;
    }
    node->channels[channel].waiting--;
    report_last(node, channel);
    genus_tell(node, GENUS_NOTICE_EXPIRED, channel, event->reference, is_sent ? 1U : 0U,
               event->expires);
}

void genus_event_dropped(genus_node *node, const genus_outgoing *event)
{
    const uint8_t channel = event->channel;
    node->channels[channel].counts.failed++;
    node->channels[channel].waiting--;
    genus_tell(node, GENUS_NOTICE_NOT_SENT, channel, event->reference, 0U, node->now);
}

/* -- signatures and reports -------------------------------------------------------------------- */

void genus_channel_sign(genus_node *node, uint8_t channel, uint8_t follow)
{
    const genus_channel *const spec = &node->config->channels[channel];
    genus_tx_channel *const state = &node->channels[channel];
    genus_frame frame;
    if (!state->is_signing) {
        frame.id = genus_identifier(GENUS_PRIORITY_SYSTEM, node->number, GENUS_ETAG_SIGNATURE);
        frame.size = GENUS_FRAME_BYTES;
        genus_put_u16(frame.data, state->etag);
        (void)memcpy(&frame.data[2], spec->subject, 3U);
        genus_put_u24(&frame.data[5], spec->digest);
        state->is_signing =
            genus_queue_add(node, &frame, GENUS_MESSAGE_SIGNATURE, channel, follow) != 0U;
    }
}

void genus_report_frame(const genus_node *node, uint8_t channel, genus_frame *frame)
{
    const genus_tx_channel *const state = &node->channels[channel];
    const genus_tx_counts *const counts = &state->counts;
    const uint8_t slot = genus_calendar_slot_of(node, channel);
    const bool is_sporadic = (node->config->channels[channel].qos == GENUS_QOS_HARD) &&
                             (slot != GENUS_NO_CHANNEL) && node->config->slots[slot].is_sporadic;
    /* all that used a sequence number, so that receivers find what is missing */
    const uint32_t sent = counts->sent + counts->unknown + (is_sporadic ? counts->failed : 0U);
    const uint16_t missed = (uint16_t)((counts->missed + counts->failed) & 0xFFFU);
    const uint16_t expired = (uint16_t)(counts->expired & 0xFFFU);
    frame->id = genus_identifier(GENUS_PRIORITY_SYSTEM, node->number, GENUS_ETAG_REPORT);
    frame->size = GENUS_FRAME_BYTES;
    genus_put_u16(frame->data, (uint16_t)(state->etag | (state->is_segmented ? 0x8000U : 0U)));
    genus_put_u24(&frame->data[2], sent);
    genus_put_u24(&frame->data[5], ((uint32_t)missed << 12) | expired);
}

/* Queue a report of a channel, one at a time. */
void genus_channel_report(genus_node *node, uint8_t channel, bool then_ready)
{
    genus_frame frame;
    if (node->channels[channel].is_reporting && !then_ready) {
        return;
    }
    genus_report_frame(node, channel, &frame);
    node->channels[channel].is_reporting =
        genus_queue_add(node, &frame, GENUS_MESSAGE_REPORT, channel,
                        then_ready ? GENUS_THEN_READY : GENUS_THEN_NOTHING) != 0U;
    if (node->report_at == GENUS_NEVER) {
        node->report_at = node->now + REPORT_NS;
    }
}

void genus_report_soon(genus_node *node)
{
    const bool is_rested =
        !node->has_reported || ((node->now - node->reported_at) >= REPORT_PAUSE_NS);
    if ((node->report_at != GENUS_NEVER) && is_rested) {
        node->signs_next = true;
        node->report_at = genus_earlier(node->report_at, node->now + SOON_NS);
    }
}

void genus_reports_wake(genus_node *node)
{
    const bool is_signing = node->signs_next;
    uint8_t channel;
    if (node->report_at > node->now) {
        return;
    }
    node->report_at = GENUS_NEVER;
    node->reported_at = node->now;
    node->has_reported = true;
    node->signs_next = false;
    for (channel = 0U; channel < node->config->channel_count; channel++) {
        if (node->channels[channel].state == GENUS_STATE_READY) {
            node->report_at = node->now + REPORT_NS;
            if (is_signing) {
                genus_channel_sign(node, channel, GENUS_THEN_REPORT);
            } else {
                genus_channel_report(node, channel, false);
            }
        }
    }
}

static void signature_sent(genus_node *node, const genus_message *message)
{
    node->channels[message->index].is_signing = false;
    if (message->follow != GENUS_THEN_NOTHING) {
        genus_channel_report(node, message->index, message->follow == GENUS_THEN_READY);
    }
}

static void report_sent(genus_node *node, const genus_message *message)
{
    node->channels[message->index].is_reporting = false;
    if (message->follow == GENUS_THEN_READY) {
        make_ready(node, message->index);
    }
}

void genus_message_sent(genus_node *node, const genus_message *message)
{
    switch (message->kind) {
    case GENUS_MESSAGE_SIGNATURE:
        signature_sent(node, message);
        break;
    case GENUS_MESSAGE_REPORT:
        report_sent(node, message);
        break;
    case GENUS_MESSAGE_ANSWER:
        genus_layout_sent(node);
        break;
    case GENUS_MESSAGE_RECOVERY:
        genus_recovery_sent(node);
        break;
    default:
        break;
    }
}

/* -- the layout of a channel, for nodes with another catalog ----------------------------------- */

/* The channel that is bound to an event tag, and not refused. */
uint8_t genus_channel_of(const genus_node *node, uint16_t etag)
{
    uint8_t found = GENUS_NO_CHANNEL;
    uint8_t channel;
    for (channel = 0U; channel < node->config->channel_count; channel++) {
        const genus_tx_channel *const state = &node->channels[channel];
        if ((state->etag == etag) &&
            ((state->state == GENUS_STATE_READY) || (state->state == GENUS_STATE_BINDING))) {
            found = channel;
        }
    }
    return found;
}

static uint8_t answer_byte(const void *source, uint16_t index)
{
    const genus_node *const node = (const genus_node *)source;
    uint8_t byte = 0U; /* the answer is for all nodes, and has no number */
    if (index == (GENUS_ANSWER_HEADER - 1U)) {
        byte = GENUS_QUESTION_LAYOUT;
    } else if (index >= GENUS_ANSWER_HEADER) {
        byte = node->config->calls.layout_byte(node->config->context, node->layout_channel,
                                               (uint16_t)(index - GENUS_ANSWER_HEADER));
    } else {
        /* receiver and number are 0 */
    }
    return byte;
}

static uint16_t answer_size(const genus_node *node)
{
    return (uint16_t)(node->config->channels[node->layout_channel].layout_size +
                      GENUS_ANSWER_HEADER);
}

/* Begin with the next layout that was asked for; returns whether there is one. */
static bool begin_layout(genus_node *node)
{
    if (node->layouts_waiting == 0U) {
        node->layout_channel = GENUS_NO_CHANNEL;
        return false;
    }
    node->layout_channel = node->layouts[0];
    node->layouts_waiting--;
    (void)memmove(&node->layouts[0], &node->layouts[1], node->layouts_waiting);
    node->layout_position = 0U;
    node->layout_transfer = (uint8_t)((node->layout_transfer + 1U) & 31U);
    return true;
}

static void send_layout(genus_node *node)
{
    genus_frame frame;
    const bool is_done = (node->layout_channel == GENUS_NO_CHANNEL) ||
                         (node->layout_position >= genus_classic_count(answer_size(node)));
    if (is_done && !begin_layout(node)) {
        return;
    }
    frame.id = genus_identifier(GENUS_PRIORITY_NONE, node->number, GENUS_ETAG_ANSWER);
    frame.size = genus_segment_from(answer_byte, node, answer_size(node), node->layout_transfer,
                                    node->layout_position, frame.data);
    node->layout_position++;
    node->layout_message =
        genus_queue_add(node, &frame, GENUS_MESSAGE_ANSWER, 0U, GENUS_THEN_NOTHING);
}

void genus_layout_ask(genus_node *node, uint8_t channel)
{
    if ((node->config->channels[channel].layout_size == 0U) ||
        (node->config->calls.layout_byte == NULL)) {
        return;
    }
    if (memchr(node->layouts, channel, node->layouts_waiting) == NULL) {
        if (node->layouts_waiting >= GENUS_LAYOUTS) {
            return;
        }
        node->layouts[node->layouts_waiting] = channel;
        node->layouts_waiting++;
    }
    if ((node->layout_message == 0U) && (node->layout_at == GENUS_NEVER)) {
        send_layout(node);
    }
}

void genus_layout_sent(genus_node *node)
{
    node->layout_message = 0U;
    node->layout_at = node->now + ANSWER_INTERVAL_NS;
}

void genus_layout_wake(genus_node *node)
{
    if (node->layout_at <= node->now) {
        node->layout_at = GENUS_NEVER;
        send_layout(node);
    }
}

void genus_layout_clear(genus_node *node)
{
    node->layouts_waiting = 0U;
    node->layout_channel = GENUS_NO_CHANNEL;
    node->layout_message = 0U;
    node->layout_at = GENUS_NEVER;
}
