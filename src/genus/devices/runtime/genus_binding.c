/* SPDX-License-Identifier: Apache-2.0 */
/* The binding protocol (COSMIC, FAMOUSO): event tags for the subjects of a node, and its
 * announcements.
 *
 * A request is one frame, the reply two, which must both fit a request of this node. At most four
 * requests are pending. A node that has just got its number waits until other nodes have theirs. */
#include "genus_node_parts.h"

#include <string.h>

#define NOT_ASKED 0U
#define WAITING 1U
#define ASKED 2U
#define UNANSWERED 3U
#define REFUSED 4U
#define BOUND 5U
#define SHARED 6U /* another request has the same subject */

#define WINDOW 4U
#define ATTEMPTS 4U
#define QUIET_NS (5 * GENUS_MS)
#define MAX_DELAY_NS (1000 * GENUS_MS)
#define RETRY_NS (50 * GENUS_MS)
#define ANNOUNCE_PAUSE_NS (100 * GENUS_MS)
#define UNANNOUNCED 3U

/* Requests of subscriptions come first, then those of channels. */
static const uint8_t *subject_of(const genus_node *node, uint8_t request)
{
    return (request < GENUS_SUBJECTS) ? node->config->subjects[request]
                                      : node->config->channels[request - GENUS_SUBJECTS].subject;
}

static bool is_pending(const genus_request *request)
{
    return (request->state != NOT_ASKED) && (request->state != BOUND);
}

static void withdraw(genus_node *node, genus_request *request)
{
    if (request->message != 0U) {
        genus_queue_remove(node, request->message);
        request->message = 0U;
    }
}

static void wait(genus_request *request)
{
    request->state = WAITING;
    request->attempts = 0U;
    request->retry_at = GENUS_NEVER;
}

/* -- requests ---------------------------------------------------------------------------------- */

static void send(genus_node *node, uint8_t index)
{
    genus_request *const request = &node->requests[index];
    genus_frame frame;
    withdraw(node, request);
    frame.id = genus_identifier(GENUS_PRIORITY_PROTOCOL, node->number, GENUS_ETAG_GET_ETAG);
    frame.size = GENUS_FRAME_BYTES;
    (void)memcpy(frame.data, subject_of(node, index), GENUS_FRAME_BYTES);
    request->retry_at = node->now + (RETRY_NS << request->attempts);
    request->attempts++;
    request->message = genus_queue_send(node, &frame);
}

/* The first request in this state whose order is above one; GENUS_REQUESTS if there is none. */
static uint8_t next_request(const genus_node *node, uint8_t state, uint32_t after)
{
    uint8_t found = GENUS_REQUESTS;
    uint8_t index;
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        const genus_request *const request = &node->requests[index];
        if ((request->state == state) && (request->order > after) &&
            ((found == GENUS_REQUESTS) || (request->order < node->requests[found].order))) {
            found = index;
        }
    }
    return found;
}

static void ask_more(genus_node *node)
{
    uint8_t asked = 0U;
    uint8_t index;
    if ((node->number == 0U) || (node->now < node->quiet_at)) {
        return;
    }
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        if (node->requests[index].state == ASKED) {
            asked++;
        }
    }
    index = next_request(node, WAITING, 0U);
    while ((index < GENUS_REQUESTS) && (asked < WINDOW)) {
        node->requests[index].state = ASKED;
        send(node, index);
        asked++;
        index = next_request(node, WAITING, 0U);
    }
}

static bool has_twin(const genus_node *node, uint8_t index)
{
    bool found = false;
    uint8_t other;
    for (other = 0U; other < GENUS_REQUESTS; other++) {
        const uint8_t state = node->requests[other].state;
        if ((other != index) && ((state == WAITING) || (state == ASKED)) &&
            (memcmp(subject_of(node, other), subject_of(node, index), 8U) == 0)) {
            found = true;
        }
    }
    return found;
}

/* Ask for the event tag of a subject, unless that is under way. */
void genus_binding_ask(genus_node *node, uint8_t index)
{
    genus_request *const request = &node->requests[index];
    if (!node->needs_broker) {
        request->state =
            BOUND; /* by the tables; the broker is asked if the planned number is lost */
    } else if ((request->state != WAITING) && (request->state != ASKED)) {
        if (!is_pending(request)) {
            node->queue.last_order++;
            request->order = node->queue.last_order;
        }
        wait(request);
        if (has_twin(node, index)) {
            request->state = SHARED;
        }
    } else {
        /* it is under way */
    }
    ask_more(node);
}

/* Stop a request until a broker is heard; the same outcome is told only once. */
static void give_up(genus_node *node, uint8_t index, uint8_t state, genus_refusal reason)
{
    genus_request *const request = &node->requests[index];
    const bool is_new = request->told != (uint8_t)reason;
    withdraw(node, request);
    request->state = state;
    request->retry_at = GENUS_NEVER;
    request->told = (uint8_t)reason;
    if (!is_new) {
        return;
    }
    if (index < GENUS_SUBJECTS) {
        genus_tell_about(node, GENUS_NOTICE_NOT_BOUND, 0U, index, (uint16_t)reason, node->now);
    } else if (node->channels[index - GENUS_SUBJECTS].state == GENUS_STATE_BINDING) {
        /* it stays in this state: a broker that starts later, or a catalog that grows, may bind it
         */
        genus_tell(node, GENUS_NOTICE_NOT_BOUND, (uint8_t)(index - GENUS_SUBJECTS), 0U,
                   (uint16_t)reason, node->now);
    } else {
        /* the channel is not affected */
    }
}

genus_time genus_binding_wake_at(const genus_node *node)
{
    genus_time found = GENUS_NEVER;
    uint8_t timers = 0U;
    bool is_waiting = false;
    uint8_t index;
    if (node->number == 0U) {
        return GENUS_NEVER;
    }
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        const genus_request *const request = &node->requests[index];
        if (request->state == ASKED) {
            timers++;
            found = genus_earlier(found, request->retry_at);
        } else if (request->state == WAITING) {
            is_waiting = true;
        } else {
            /* nothing is due */
        }
    }
    return (is_waiting && (timers < WINDOW)) ? genus_earlier(found, node->quiet_at) : found;
}

void genus_binding_wake(genus_node *node)
{
    uint8_t index = next_request(node, ASKED, 0U);
    while (index < GENUS_REQUESTS) {
        const genus_request *const request = &node->requests[index];
        if (request->retry_at <= node->now) {
            if (request->attempts < ATTEMPTS) {
                send(node, index);
            } else {
                give_up(node, index, UNANSWERED, GENUS_REFUSED_UNANSWERED);
            }
        }
        index = next_request(node, ASKED, request->order);
    }
    ask_more(node);
}

/* -- announcements ----------------------------------------------------------------------------- */

static void announce(genus_node *node, uint8_t channel)
{
    const genus_channel *const spec = &node->config->channels[channel];
    const genus_tx_channel *const state = &node->channels[channel];
    const bool is_large = (spec->largest == 0U) || (spec->largest > 255U);
    const genus_time span = (spec->qos == GENUS_QOS_NONE) ? 0 : (spec->span_ns / 1000);
    const uint32_t span_us = (span > (genus_time)UINT32_MAX) ? UINT32_MAX : (uint32_t)span;
    genus_frame frame;
    frame.id = genus_identifier(GENUS_PRIORITY_PROTOCOL, node->number, GENUS_ETAG_ANNOUNCE);
    frame.size = GENUS_FRAME_BYTES;
    genus_put_u16(frame.data, state->etag);
    frame.data[2] = (uint8_t)((uint8_t)(spec->qos << 6) | (state->is_segmented ? 0x20U : 0U));
    frame.data[3] = is_large ? 255U : (uint8_t)spec->largest;
    genus_put_u16(&frame.data[4], (uint16_t)(span_us >> 16));
    genus_put_u16(&frame.data[6], (uint16_t)(span_us & 0xFFFFU));
    if (!genus_queue_has(node, &frame)) { /* it may wait for long on a full bus */
        (void)genus_queue_send(node, &frame);
    }
}

void genus_binding_announce(genus_node *node, uint8_t channel)
{
    uint8_t last = 0U;
    uint8_t index;
    for (index = 0U; index < node->config->channel_count; index++) {
        last = (node->channels[index].announced > last) ? node->channels[index].announced : last;
    }
    if (node->channels[channel].announced == 0U) {
        node->channels[channel].announced = (uint8_t)(last + 1U);
    }
    announce(node, channel);
    genus_channel_open(node, channel);
}

/* The channel that was announced next after one in the order; GENUS_NO_CHANNEL if there is none. */
static uint8_t next_announced(const genus_node *node, uint8_t after)
{
    uint8_t found = GENUS_NO_CHANNEL;
    uint8_t index;
    for (index = 0U; index < node->config->channel_count; index++) {
        const uint8_t order = node->channels[index].announced;
        if ((order > after) &&
            ((found == GENUS_NO_CHANNEL) || (order < node->channels[found].announced))) {
            found = index;
        }
    }
    return found;
}

static void announce_all(genus_node *node)
{
    uint8_t channel = next_announced(node, 0U);
    while (channel != GENUS_NO_CHANNEL) {
        announce(node, channel);
        channel = next_announced(node, node->channels[channel].announced);
    }
}

/* -- membership -------------------------------------------------------------------------------- */

void genus_binding_leave(genus_node *node)
{
    uint8_t index;
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        genus_request *const request = &node->requests[index];
        withdraw(node, request);
        if (request->state == ASKED) {
            wait(request);
        }
    }
}

/* The node has a number: repeat all announcements, and soon send the waiting requests. */
void genus_binding_join(genus_node *node)
{
    genus_binding_leave(node);
    node->delay_until = node->now + MAX_DELAY_NS;
    node->quiet_at = node->now + QUIET_NS;
    announce_all(node);
}

/* Bind a channel: at the broker, or by the tables alone. */
void genus_binding_bind_channel(genus_node *node, uint8_t channel)
{
    node->channels[channel].is_segmented = genus_needs_segments(&node->config->channels[channel]);
    if (node->needs_broker) {
        genus_binding_ask(node, (uint8_t)(GENUS_SUBJECTS + channel));
    } else {
        genus_binding_announce(node, channel);
    }
}

/* The node has a number: bind what it subscribes to, then its channels. */
void genus_binding_use(genus_node *node)
{
    uint8_t index;
    for (index = 0U; index < node->config->subject_count; index++) {
        if ((node->requests[index].state != NOT_ASKED) && node->needs_broker) {
            genus_binding_ask(node, index);
        }
    }
    for (index = 0U; index < node->config->channel_count; index++) {
        if (node->channels[index].state == GENUS_STATE_BINDING) {
            genus_binding_bind_channel(node, index);
        }
    }
}

void genus_binding_quiet(genus_node *node)
{
    node->quiet_at = genus_earlier(node->now + QUIET_NS, node->delay_until);
}

/* A broker is present: repeat unanswered requests, and refused ones if its catalog is new. */
void genus_binding_heartbeat(genus_node *node, bool is_roll_call, bool is_other,
                             bool is_other_epoch)
{
    const bool is_rested =
        !node->has_announced_all || ((node->now - node->announced_at) >= ANNOUNCE_PAUSE_NS);
    uint8_t index;
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        genus_request *const request = &node->requests[index];
        if ((request->state == UNANSWERED) || ((request->state == REFUSED) && is_other)) {
            wait(request);
        }
    }
    if ((is_roll_call || is_other_epoch) && is_rested) {
        node->has_announced_all = true;
        node->announced_at = node->now;
        if (node->number != 0U) {
            announce_all(node);
        }
    }
    ask_more(node);
}

/* -- replies ----------------------------------------------------------------------------------- */

/* Why a channel cannot be used as it is bound; 0 if it can. */
static uint8_t why_not(const genus_node *node, uint8_t channel, uint16_t etag, uint8_t qos,
                       bool is_segmented)
{
    const genus_channel *const spec = &node->config->channels[channel];
    uint8_t reason = 0U;
    if ((spec->etag != 0U) && (spec->etag != etag)) {
        reason = (uint8_t)GENUS_REFUSED_ETAG;
    } else if ((qos != UNANNOUNCED) &&
               ((qos != spec->qos) || (!GENUS_WITH_SEGMENTS && is_segmented) ||
                (node->channels[channel].is_segmented && !is_segmented))) {
        reason = (uint8_t)GENUS_REFUSED_CLASS;
    } else {
        /* it can */
    }
    return reason;
}

static void channel_bound(genus_node *node, uint8_t channel, uint16_t etag, uint8_t qos,
                          bool is_segmented)
{
    genus_tx_channel *const state = &node->channels[channel];
    const uint8_t reason = why_not(node, channel, etag, qos, is_segmented);
    if (state->state != GENUS_STATE_BINDING) {
        return;
    }
    if (reason != 0U) {
        genus_channel_refuse(node, channel, (genus_refusal)reason);
        return;
    }
    state->etag = etag;
    if (qos != UNANNOUNCED) {
        state->is_segmented = is_segmented;
    }
    genus_binding_announce(node, channel);
}

/* The two halves of a reply about the subject of a request are there. */
static void complete(genus_node *node, uint8_t index, uint16_t etag, uint8_t flags)
{
    genus_request *const request = &node->requests[index];
    const uint8_t qos = (uint8_t)(flags >> 5);
    const bool is_segmented = ((flags >> 4) & 1U) != 0U;
    if (etag == 0U) {
        const bool is_known = (flags >= (uint8_t)GENUS_REFUSED_UNKNOWN) &&
                              (flags <= (uint8_t)GENUS_REFUSED_EXHAUSTED);
        give_up(node, index, REFUSED, is_known ? (genus_refusal)flags : GENUS_REFUSED_UNKNOWN);
        return;
    }
    withdraw(node, request);
    request->state = BOUND;
    request->told = 0U;
    request->retry_at = GENUS_NEVER;
    if (index >= GENUS_SUBJECTS) {
        channel_bound(node, (uint8_t)(index - GENUS_SUBJECTS), etag, qos, is_segmented);
    }
    if (qos != UNANNOUNCED) {
        request->etag = etag;
        request->is_segmented = is_segmented;
        genus_receiver_set_format(node, etag, is_segmented);
    }
}

/* A reply about a channel that is announced: its first publisher may have announced it differently.
 */
static void check_class(genus_node *node, uint8_t channel, uint16_t etag, uint8_t flags)
{
    const genus_tx_channel *const state = &node->channels[channel];
    const uint8_t qos = (uint8_t)(flags >> 5);
    const bool is_segmented = ((flags >> 4) & 1U) != 0U;
    if ((state->announced != 0U) && (etag != 0U) && (qos != UNANNOUNCED) &&
        ((qos != node->config->channels[channel].qos) || (is_segmented != state->is_segmented)) &&
        (state->state != GENUS_STATE_REFUSED)) {
        genus_channel_refuse(node, channel, GENUS_REFUSED_CLASS);
    }
}

static void second_half(genus_node *node, uint8_t index, uint16_t etag)
{
    genus_request *const request = &node->requests[index];
    if (!request->has_half) {
        return;
    }
    request->has_half = false;
    if (request->half_etag == etag) {
        if (index >= GENUS_SUBJECTS) {
            check_class(node, (uint8_t)(index - GENUS_SUBJECTS), etag, request->half_flags);
        }
        if (is_pending(request)) {
            complete(node, index, etag, request->half_flags);
        }
    }
}

void genus_binding_supply(genus_node *node, const genus_frame *frame)
{
    const uint16_t etag = genus_u16(&frame->data[2]);
    const uint8_t part = (uint8_t)(frame->data[1] & 1U);
    uint8_t index;
    if ((frame->size != GENUS_FRAME_BYTES) || (genus_node_of(frame->id) != GENUS_BROKER_NODE) ||
        (genus_priority_of(frame->id) != GENUS_PRIORITY_REPLY) || (etag > GENUS_ETAG_MASK)) {
        node->drops.malformed++;
        return;
    }
    if ((frame->data[0] != node->number) || (node->number == 0U)) {
        return;
    }
    for (index = 0U; index < GENUS_REQUESTS; index++) {
        genus_request *const request = &node->requests[index];
        if ((request->state != NOT_ASKED) &&
            (memcmp(&frame->data[4], &subject_of(node, index)[4U * part], 4U) == 0)) {
            if (part == 0U) {
                request->has_half = true;
                request->half_etag = etag;
                request->half_flags = (uint8_t)(frame->data[1] >> 1);
            } else {
                second_half(node, index, etag);
            }
        }
    }
    ask_more(node);
}
