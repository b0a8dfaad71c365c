/* SPDX-License-Identifier: Apache-2.0 */
/* A node's membership of a bus: the configuration protocol (COSMIC, FAMOUSO), which gives it a
 * number, the claims with which it defends the number, and messages of others about its channels.
 */
#include "genus_node_parts.h"

#include <string.h>

#define FIRST_STAGE 15U
#define RETRY_NS (100 * GENUS_MS)
#define MAX_RETRY_NS (1000 * GENUS_MS)
#define CLAIM_PERIOD_NS (1000 * GENUS_MS)
#define CLAIM_JITTER_NS 200000000UL
#define DEFENCE_NS (100 * GENUS_MS)
#define ROLL_CALL_SPREAD_NS 10000000UL
#define COLLISION_BACKOFF_NS 16000000UL
#define FAILURES_BEFORE_BACKOFF 3U
#define BROKER_TIMEOUT_NS (3000 * GENUS_MS)
#define PROBATION_NS (1000 * GENUS_MS)

static uint8_t nibble_of(const uint8_t uid[8], uint8_t stage)
{
    const uint8_t byte = uid[7U - (stage / 2U)];
    return (uint8_t)(((stage & 1U) != 0U) ? (byte >> 4) : (byte & 15U));
}

static bool is_zero(const uint8_t uid[8])
{
    uint8_t any = 0U;
    uint8_t index;
    for (index = 0U; index < 8U; index++) {
        any = (uint8_t)(any | uid[index]);
    }
    return any == 0U;
}

static bool is_request(const genus_frame *frame, uint8_t last)
{
    const uint8_t sender = genus_node_of(frame->id);
    return (frame->size == GENUS_FRAME_BYTES) &&
           (genus_priority_of(frame->id) == GENUS_PRIORITY_PROTOCOL) &&
           (sender >= GENUS_FIRST_NODE) && (sender <= last);
}

static bool is_system(const genus_frame *frame)
{
    return (frame->size == GENUS_FRAME_BYTES) &&
           (genus_priority_of(frame->id) == GENUS_PRIORITY_SYSTEM) &&
           (genus_node_of(frame->id) != 0U);
}

/* -- asking for a number ----------------------------------------------------------------------- */

static void withdraw_queued(genus_node *node)
{
    if (node->claim_message != 0U) {
        genus_queue_remove(node, node->claim_message);
        node->claim_message = 0U;
    }
}

static void send_own(genus_node *node, const genus_frame *frame)
{
    withdraw_queued(node);
    node->claim_failures = 0U;
    node->claim_message = genus_queue_send(node, frame);
}

static void forget_number(genus_node *node)
{
    withdraw_queued(node);
    node->claim_at = GENUS_NEVER;
    node->retry_at = GENUS_NEVER;
}

static bool is_asking(const genus_node *node)
{
    return node->retry_at != GENUS_NEVER;
}

static void ask(genus_node *node, uint8_t stage)
{
    const uint8_t nibble = nibble_of(node->config->uid, stage);
    genus_frame frame;
    (void)memset(&frame, 0, sizeof frame);
    frame.id = ((uint32_t)(GENUS_PRIORITY_PROTOCOL - 1U) << 21) | ((uint32_t)stage << 18) |
               ((uint32_t)nibble << 14) | GENUS_ETAG_RSI;
    node->stage = stage;
    node->is_resting = false;
    send_own(node, &frame);
    node->retry_at = node->now + node->retry_after;
}

static void start_asking(genus_node *node)
{
    forget_number(node);
    node->retry_after = RETRY_NS;
    ask(node, FIRST_STAGE);
}

/* Let other nodes continue; start again if they send nothing for too long. */
static void wait_for_others(genus_node *node)
{
    if (!node->is_resting) {
        withdraw_queued(node);
        node->retry_at = node->now + RETRY_NS;
    }
}

static void restart(genus_node *node)
{
    node->retry_after = RETRY_NS;
    if (!node->is_resting) {
        ask(node, FIRST_STAGE);
    }
}

/* -- with a number ----------------------------------------------------------------------------- */

static void claim_frame(const genus_node *node, uint8_t number, genus_frame *frame)
{
    frame->id = genus_identifier(GENUS_PRIORITY_SYSTEM, number, GENUS_ETAG_CLAIM);
    frame->size = GENUS_FRAME_BYTES;
    (void)memcpy(frame->data, node->config->uid, GENUS_FRAME_BYTES);
}

void genus_membership_claim(genus_node *node)
{
    genus_frame frame;
    if (node->number != 0U) {
        claim_frame(node, node->number, &frame);
        send_own(node, &frame);
        node->claim_at =
            node->now + CLAIM_PERIOD_NS - (genus_time)genus_random_below(node, CLAIM_JITTER_NS);
    }
}

/* Claim at once, but not so often that two nodes fill the bus with claims. */
static void defend(genus_node *node)
{
    if (!node->has_defended || ((node->now - node->defended_at) >= DEFENCE_NS)) {
        node->has_defended = true;
        node->defended_at = node->now;
        genus_membership_claim(node);
    }
}

/* Ask all publishers what their events are, which they answer with reports too; once under a
 * number. */
void genus_membership_ask_all(genus_node *node)
{
    genus_frame frame;
    bool is_reading = false;
    uint8_t subject;
    for (subject = 0U; subject < node->config->subject_count; subject++) {
        is_reading = is_reading || (node->requests[subject].state != 0U);
    }
    if ((node->number != 0U) && is_reading && !node->has_asked_all) {
        node->has_asked_all = true;
        (void)memset(&frame, 0, sizeof frame);
        frame.id = genus_identifier(GENUS_PRIORITY_PROTOCOL, node->number, GENUS_ETAG_QUESTION);
        frame.size = GENUS_FRAME_BYTES;
        frame.data[0] = GENUS_QUESTION_SIGNATURE;
        (void)genus_queue_send(node, &frame);
    }
}

static void become(genus_node *node, uint8_t number)
{
    withdraw_queued(node);
    node->number = number;
    node->retry_at = GENUS_NEVER;
    node->has_asked_all = false;
    genus_tell_about(node, GENUS_NOTICE_CONFIGURED, number, 0U, 0U, node->now);
    genus_binding_join(node);
    genus_questions_join(node);
    genus_membership_ask_all(node);
    genus_binding_use(node);
    genus_membership_claim(node);
}

/* The node lost its number to one with a lower uid: send nothing until it has another. */
static void leave(genus_node *node, uint8_t number)
{
    genus_tell_about(node, GENUS_NOTICE_NUMBER_LOST, number, 0U, 0U, node->now);
    node->number = 0U;
    node->needs_broker = true;
    genus_channels_suspend(node);
    genus_queue_clear(node);
    genus_layout_clear(node);
    genus_binding_leave(node);
    genus_questions_leave(node);
}

static void receive_claim(genus_node *node, const genus_frame *frame)
{
    const uint8_t number = genus_node_of(frame->id);
    const int order = memcmp(node->config->uid, frame->data, GENUS_FRAME_BYTES);
    genus_frame last;
    if (!is_system(frame) || is_zero(frame->data)) {
        node->drops.malformed++;
    } else if ((order == 0) || ((number == node->number) && (order < 0))) {
        genus_tell_about(node, GENUS_NOTICE_NUMBER_CONFLICT, number, 0U, (order == 0) ? 1U : 0U,
                         node->now);
        defend(node);
    } else if ((number == node->number) && (number != 0U)) {
        forget_number(node);
        leave(node, number);
        claim_frame(node, number,
                    &last); /* a last time, so that the other node detects the conflict */
        (void)genus_queue_send(node, &last);
        start_asking(node);
    } else {
        /* another node has another number */
    }
}

/* -- messages of the broker -------------------------------------------------------------------- */

static void receive_grant(genus_node *node, const genus_frame *frame)
{
    const uint8_t number = genus_node_of(frame->id);
    const bool is_own = memcmp(node->config->uid, frame->data, GENUS_FRAME_BYTES) == 0;
    if (!is_asking(node)) {
        if ((number == node->number) && (number != 0U) && !is_own) {
            defend(node);
        }
    } else if (!is_own) {
        restart(node);
    } else if (number == 0U) {
        withdraw_queued(node);
        node->is_resting = true;
        node->retry_at = node->now + MAX_RETRY_NS;
        genus_tell_about(node, GENUS_NOTICE_NO_NUMBER_FREE, 0U, 0U, 0U, node->now);
    } else {
        become(node, number);
    }
}

/* Whether the nibbles below a stage are 0, but for the stage itself in the last one. */
static bool is_prefix(const uint8_t data[8], uint8_t stage)
{
    bool found = true;
    uint8_t below;
    for (below = 1U; below < stage; below++) {
        found = found && (nibble_of(data, below) == 0U);
    }
    return found;
}

static bool fits(const uint8_t uid[8], const uint8_t prefix[8], uint8_t stage)
{
    bool found = true;
    uint8_t each;
    for (each = stage; each <= FIRST_STAGE; each++) {
        found = found && (nibble_of(uid, each) == nibble_of(prefix, each));
    }
    return found;
}

static void receive_prefix(genus_node *node, const genus_frame *frame, uint8_t stage)
{
    if (node->needs_broker) {
        genus_binding_quiet(node);
    }
    if (!is_asking(node)) {
        return;
    }
    node->retry_after = RETRY_NS;
    if (node->is_resting) {
        return;
    }
    if (fits(node->config->uid, frame->data, stage)) {
        ask(node, (uint8_t)(stage - 1U));
    } else {
        node->stage = FIRST_STAGE;
        wait_for_others(node);
    }
}

static void receive_ssi(genus_node *node, const genus_frame *frame)
{
    const uint8_t stage = nibble_of(frame->data, 0U);
    const bool is_nothing = is_zero(frame->data);
    if ((frame->size != GENUS_FRAME_BYTES) ||
        (genus_priority_of(frame->id) != GENUS_PRIORITY_REPLY)) {
        node->drops.malformed++;
    } else if (genus_node_of(frame->id) != GENUS_BROKER_NODE) {
        if (is_nothing) {
            node->drops.malformed++;
        } else {
            receive_grant(node, frame);
        }
    } else if (is_nothing) {
        if (is_asking(node)) {
            restart(node);
        }
    } else if ((stage == 0U) || !is_prefix(frame->data, stage)) {
        node->drops.malformed++;
    } else {
        receive_prefix(node, frame, stage);
    }
}

static void receive_nibble(genus_node *node, const genus_frame *frame)
{
    const uint8_t stage = (uint8_t)((frame->id >> 18) & 15U);
    if ((frame->size != 0U) || ((frame->id >> 22) != (GENUS_PRIORITY_PROTOCOL >> 1))) {
        node->drops.malformed++;
        return;
    }
    if (is_asking(node) && (stage <= node->stage)) {
        wait_for_others(node);
    }
    if (node->needs_broker) {
        genus_binding_quiet(node);
    }
}

static void receive_heartbeat(genus_node *node, const genus_frame *frame)
{
    const bool is_roll_call = (frame->data[0] & 1U) != 0U;
    const bool is_other = !node->has_broker || (memcmp(node->broker, &frame->data[1], 7U) != 0);
    const bool is_other_epoch =
        node->has_broker && (memcmp(node->broker, &frame->data[1], 3U) != 0);
    if (!is_system(frame) || (genus_node_of(frame->id) != GENUS_BROKER_NODE)) {
        node->drops.malformed++;
        return;
    }
    node->has_broker = true;
    node->broker_at = node->now;
    (void)memcpy(node->broker, &frame->data[1], 7U);
    if (is_other) {
        genus_questions_refresh(node);
    }
    if (is_roll_call && (node->claim_at != GENUS_NEVER)) {
        node->claim_at = genus_earlier(
            node->claim_at, node->now + (genus_time)genus_random_below(node, ROLL_CALL_SPREAD_NS));
    }
    if (is_roll_call) {
        genus_report_soon(node);
    }
    if (node->needs_broker) {
        genus_binding_heartbeat(node, is_roll_call, is_other || !node->has_asked_broker,
                                is_other_epoch && node->has_asked_broker);
        node->has_asked_broker = true;
    }
}

/* -- messages about the channels of this node -------------------------------------------------- */

static void receive_question(genus_node *node, const genus_frame *frame)
{
    const uint8_t kind = frame->data[0];
    const uint8_t to = frame->data[1];
    uint8_t channel;
    if (!is_request(frame, GENUS_BROKER_NODE)) {
        node->drops.malformed++;
        return;
    }
    if ((kind == GENUS_QUESTION_SIGNATURE) && (to == 0U)) {
        genus_report_soon(node);
    } else if ((to == node->number) && (to != 0U) &&
               (memcmp(&frame->data[2], "\0\0\0\0", 4U) == 0)) {
        channel = genus_channel_of(node, genus_u16(&frame->data[6]));
        if (channel == GENUS_NO_CHANNEL) {
            return;
        }
        if (kind == GENUS_QUESTION_SIGNATURE) {
            genus_channel_sign(node, channel, GENUS_THEN_NOTHING);
        } else if (kind == GENUS_QUESTION_LAYOUT) {
            genus_layout_ask(node, channel);
        } else {
            /* a question to the broker */
        }
    } else {
        /* for another node */
    }
}

/* The broker decides if catalogs differ; without one, a channel that is new gives way. */
static void receive_objection(genus_node *node, const genus_frame *frame)
{
    const uint16_t etag = genus_u16(&frame->data[2]);
    const uint8_t sender = genus_node_of(frame->id);
    const bool is_broker_there =
        node->has_broker && ((node->now - node->broker_at) < BROKER_TIMEOUT_NS);
    genus_tx_channel *state;
    uint8_t channel;
    if (!is_system(frame) || (etag > GENUS_ETAG_MASK) || (frame->data[1] < 1U) ||
        (frame->data[1] > 3U)) {
        node->drops.malformed++;
        return;
    }
    channel = genus_channel_of(node, etag);
    if ((frame->data[0] != node->number) || (node->number == 0U) || (channel == GENUS_NO_CHANNEL)) {
        return;
    }
    state = &node->channels[channel];
    if ((sender == GENUS_BROKER_NODE) ||
        (!is_broker_there && ((state->state != GENUS_STATE_READY) ||
                              ((node->now - state->opened_at) < PROBATION_NS)))) {
        genus_channel_refuse(node, channel, GENUS_REFUSED_OBJECTION);
    } else if (!state->has_objection) {
        state->has_objection = true;
        genus_tell(node, GENUS_NOTICE_WRONG_CATALOG, channel, 0U, sender, node->now);
    } else {
        /* it was told */
    }
}

/* -- inputs ------------------------------------------------------------------------------------ */

static void note_claim(genus_node *node, const genus_frame *frame)
{
    const uint8_t number = genus_node_of(frame->id);
    const uint8_t bit = (uint8_t)(1U << (number & 7U));
    if ((node->claimed[number >> 3] & bit) == 0U) {
        node->claimed[number >> 3] = (uint8_t)(node->claimed[number >> 3] | bit);
        genus_report_soon(node);
    }
}

void genus_membership_receive(genus_node *node, const genus_frame *frame)
{
    switch (genus_etag_of(frame->id)) {
    case GENUS_ETAG_SSI:
        receive_ssi(node, frame);
        break;
    case GENUS_ETAG_RSI:
        receive_nibble(node, frame);
        break;
    case GENUS_ETAG_SUPPLY:
        if (node->needs_broker) {
            genus_binding_supply(node, frame);
        }
        break;
    case GENUS_ETAG_CLAIM:
        note_claim(node, frame);
        receive_claim(node, frame);
        break;
    case GENUS_ETAG_BROKER:
        receive_heartbeat(node, frame);
        break;
    case GENUS_ETAG_QUESTION:
        receive_question(node, frame);
        break;
    case GENUS_ETAG_ANSWER:
        genus_questions_answer(node, frame);
        break;
    case GENUS_ETAG_SIGNATURE:
        genus_receiver_signature(node, frame);
        break;
    case GENUS_ETAG_OBJECTION:
        receive_objection(node, frame);
        break;
    default: /* requests of other nodes */
        break;
    }
}

void genus_membership_start(genus_node *node)
{
    if (node->config->number != 0U) {
        forget_number(node);
        become(node, node->config->number);
    } else {
        start_asking(node);
    }
}

/* A claim that failed several times is delayed, as it may collide with that of another node. */
void genus_membership_failed(genus_node *node, const genus_frame *frame)
{
    if ((node->claim_message != 0U) && (node->claim_message == node->queue.loaded.serial) &&
        (genus_etag_of(frame->id) == GENUS_ETAG_CLAIM)) {
        node->claim_failures++;
        if (node->claim_failures >= FAILURES_BEFORE_BACKOFF) {
            withdraw_queued(node);
            node->claim_at =
                node->now + 1 + (genus_time)genus_random_below(node, COLLISION_BACKOFF_NS);
        }
    }
}

genus_time genus_membership_wake_at(const genus_node *node)
{
    return is_asking(node) ? node->retry_at : node->claim_at;
}

void genus_membership_wake(genus_node *node)
{
    if (is_asking(node)) {
        if (node->now >= node->retry_at) {
            node->retry_after = genus_earlier(2 * node->retry_after, MAX_RETRY_NS);
            ask(node, FIRST_STAGE);
        }
    } else if (node->now >= node->claim_at) {
        genus_membership_claim(node);
    } else {
        /* it is not time */
    }
}
