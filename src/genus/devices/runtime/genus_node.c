/* SPDX-License-Identifier: Apache-2.0 */
#include "genus_node.h"

#include "genus_node_parts.h"

#include <string.h>

/* -- small things ------------------------------------------------------------------------------ */

genus_time genus_earlier(genus_time one, genus_time other)
{
    return (one < other) ? one : other;
}

bool genus_same_frame(const genus_frame *one, const genus_frame *other)
{
    return (one->id == other->id) && (one->size == other->size) &&
           (memcmp(one->data, other->data, one->size) == 0);
}

genus_time genus_frame_ns(const genus_node *node, uint8_t size)
{
#if GENUS_FD
    /* 29 bits of identifier: 57 bits at the nominal rate, the others at that of the data */
    const uint8_t padded = genus_padded_size(size);
    const uint16_t bits = (uint16_t)(34U + ((padded > 16U) ? 5U : 0U) + (10U * (uint16_t)padded));
    return ((genus_time)57 * node->config->bit_ns) +
           ((genus_time)bits * node->config->data_bit_ns);
#else
    return (genus_time)genus_frame_bits(size) * node->config->bit_ns;
#endif
}

static void tell(genus_node *node, const genus_notice *notice)
{
    if (node->config->calls.on_notice != NULL) {
        node->config->calls.on_notice(node->config->context, notice);
    }
}

void genus_tell(genus_node *node, genus_notice_kind kind, uint8_t channel, uint16_t reference,
                uint16_t count, genus_time time)
{
    genus_notice notice;
    notice.kind = kind;
    notice.channel = channel;
    notice.node = node->number;
    notice.etag = (channel < node->config->channel_count) ? node->channels[channel].etag : 0U;
    notice.reference = reference;
    notice.count = count;
    notice.time = time;
    tell(node, &notice);
}

void genus_tell_about(genus_node *node, genus_notice_kind kind, uint8_t sender, uint16_t etag,
                      uint16_t count, genus_time time)
{
    genus_notice notice;
    notice.kind = kind;
    notice.channel = GENUS_NO_CHANNEL;
    notice.node = sender;
    notice.etag = etag;
    notice.reference = 0U;
    notice.count = count;
    notice.time = time;
    tell(node, &notice);
}

/* xorshift32: claims of two nodes only must not stay in step. */
uint32_t genus_random_below(genus_node *node, uint32_t range)
{
    if (node->config->calls.random != NULL) {
        return node->config->calls.random(node->config->context, range);
    }
    node->random_state ^= node->random_state << 13;
    node->random_state ^= node->random_state >> 17;
    node->random_state ^= node->random_state << 5;
    return node->random_state % range;
}

/* -- time -------------------------------------------------------------------------------------- */

#if GENUS_WITH_CALENDAR

genus_time genus_node_global_time(const genus_node *node, genus_time local)
{
    return node->config->is_synchronised ? genus_clock_at(&node->clock, local) : local;
}

genus_time genus_node_local_time(const genus_node *node, genus_time global)
{
    return node->config->is_synchronised ? genus_clock_when(&node->clock, global) : global;
}

genus_time genus_node_precision(const genus_node *node, genus_time now)
{
    return node->config->is_synchronised ? genus_clock_precision(&node->clock, now) : 0;
}

void genus_clock_begin(genus_node *node)
{
    genus_clock_init(&node->clock, &node->config->clock);
}

/* The state of the clock may have changed: slots may start, or must stop. */
void genus_clock_check(genus_node *node)
{
    if (node->config->is_synchronised && genus_clock_wake(&node->clock, node->now)) {
        genus_calendar_watch(node);
    }
}

genus_time genus_clock_next(const genus_node *node)
{
    return node->config->is_synchronised ? genus_clock_wake_at(&node->clock) : GENUS_NEVER;
}

void genus_clock_frame(genus_node *node, const genus_frame *frame)
{
    if (node->config->is_synchronised) {
        genus_clock_receive(&node->clock, frame, node->number, node->now);
        genus_clock_check(node);
        genus_calendar_watch(node);
    }
}

#endif

/* -- preparing --------------------------------------------------------------------------------- */

static uint32_t seed_of(const uint8_t uid[8])
{
    uint32_t seed = 0U;
    uint8_t index;
    for (index = 0U; index < 8U; index++) {
        seed = (seed * 31U) + uid[index];
    }
    return (seed == 0U) ? 1U : seed;
}

static bool is_slot_valid(const genus_config *config, uint8_t index)
{
    const genus_slot *const slot = &config->slots[index];
    const bool is_own = slot->channel != GENUS_NO_CHANNEL;
    return (slot->length_ns > 0) && (slot->length_ns <= slot->period_ns) && (slot->gap_ns >= 0) &&
           (slot->frames > 0U) && (!is_own || (slot->channel < config->channel_count));
}

/* A hard channel has a slot, and its largest event fits that and the buffers. */
static bool is_channel_valid(const genus_node *node, uint8_t index)
{
    const genus_channel *const channel = &node->config->channels[index];
    const uint8_t slot = genus_calendar_slot_of(node, index);
    uint16_t frames;
    if ((channel->qos > GENUS_QOS_HARD) || (channel->width > 14U)) {
        return false;
    }
    if (!GENUS_WITH_SEGMENTS && genus_needs_segments(channel)) {
        return false;
    }
    if (channel->qos != GENUS_QOS_HARD) {
        return slot == GENUS_NO_CHANNEL;
    }
    frames = genus_needs_segments(channel) ? genus_segment_count(channel->largest) : 1U;
    return (slot != GENUS_NO_CHANNEL) && (channel->largest > 0U) &&
           (channel->largest <= GENUS_HARD_BYTES) && (frames <= node->config->slots[slot].frames);
}

static bool is_uid_valid(const uint8_t uid[8])
{
    static const uint8_t none[8] = {0U};
    return memcmp(uid, none, sizeof none) != 0;
}

static bool are_blocks_valid(const genus_config *config)
{
    bool found = true;
    uint8_t index;
    for (index = 0U; index < config->block_count; index++) {
        found = found && (config->blocks[index].width <= 14U);
    }
    return found;
}

static bool do_tables_fit(const genus_config *config)
{
    const uint8_t slots = GENUS_WITH_CALENDAR ? GENUS_SLOTS : 0U;
    return (config->channel_count <= GENUS_CHANNELS) && (config->slot_count <= slots) &&
           (config->subject_count <= GENUS_SUBJECTS);
}

static bool is_valid(const genus_node *node)
{
    const genus_config *const config = node->config;
    bool found = do_tables_fit(config) && is_uid_valid(config->uid) && are_blocks_valid(config) &&
                 (config->number <= GENUS_LAST_NODE) && (config->bit_ns > 0U) &&
                 (!config->is_synchronised || (config->clock.period_ns > 0)) &&
                 (config->calls.load != NULL) && (config->calls.on_event != NULL);
    uint8_t index;
    for (index = 0U; found && (index < config->slot_count); index++) {
        found = is_slot_valid(config, index);
    }
    for (index = 0U; found && (index < config->channel_count); index++) {
        found = is_channel_valid(node, index);
    }
    return found;
}

static void init_channels(genus_node *node)
{
    uint8_t index;
    for (index = 0U; index < node->config->channel_count; index++) {
        const genus_channel *const spec = &node->config->channels[index];
        node->channels[index].slot = GENUS_NO_CHANNEL;
        node->channels[index].etag = spec->etag;
    }
}

bool genus_node_init(genus_node *node, const genus_config *config)
{
    (void)memset(node, 0, sizeof *node);
    node->config = config;
    if (!is_valid(node)) {
        return false;
    }
    node->needs_broker = config->number == 0U;
    node->random_state = seed_of(config->uid);
    node->retry_at = GENUS_NEVER;
    node->claim_at = GENUS_NEVER;
    node->report_at = GENUS_NEVER;
    node->recovery_at = GENUS_NEVER;
    node->recovery_frames = 4U;
    init_channels(node);
    genus_layout_clear(node);
    genus_clock_begin(node);
    genus_questions_begin(node);
    return true;
}

/* -- inputs ------------------------------------------------------------------------------------ */

static void enter(genus_node *node, genus_time now)
{
    node->now = now;
    node->is_inside = true;
}

static void leave(genus_node *node)
{
    genus_queue_update(node);
    node->is_inside = false;
}

void genus_node_start(genus_node *node, genus_time now)
{
    enter(node, now);
    node->is_up = true;
    genus_clock_check(node);
    genus_membership_start(node);
    leave(node);
}

void genus_node_announce(genus_node *node, uint8_t channel, genus_time now)
{
    enter(node, now);
    if ((channel < node->config->channel_count) &&
        (node->channels[channel].state == GENUS_STATE_IDLE)) {
        node->channels[channel].state = GENUS_STATE_BINDING;
        if (node->is_up && (node->number != 0U)) {
            genus_binding_bind_channel(node, channel);
        }
    }
    leave(node);
}

void genus_node_subscribe(genus_node *node, uint8_t subject, genus_time now)
{
    enter(node, now);
    if (subject < node->config->subject_count) {
        genus_calendar_receive_in(node);
        genus_binding_ask(node, subject);
        genus_membership_ask_all(node);
    }
    leave(node);
}

static void receive(genus_node *node, const genus_frame *frame)
{
    const uint16_t etag = genus_etag_of(frame->id);
    if (etag >= GENUS_RESERVED_ETAGS) {
        genus_receiver_event(node, frame);
    } else if ((etag == GENUS_ETAG_SYNC) || (etag == GENUS_ETAG_FOLLOW_UP)) {
        genus_clock_frame(node, frame);
    } else if (etag == GENUS_ETAG_REPORT) {
        genus_receiver_report(node, frame);
    } else if (etag == GENUS_ETAG_ANNOUNCE) {
        genus_receiver_announcement(node, frame);
    } else {
        genus_membership_receive(node, frame);
    }
}

void genus_node_receive(genus_node *node, const genus_frame *frame, genus_time now)
{
    genus_frame whole; /* with zeros after the data, so that a short frame is compared safely */
    enter(node, now);
    if ((frame->size > GENUS_DATA_BYTES) ||
        (genus_is_fd(frame) && (genus_etag_of(frame->id) < GENUS_RESERVED_ETAGS))) {
        node->drops.malformed++;
    } else if (node->is_up) {
        (void)memset(&whole, 0, sizeof whole);
        whole.id = frame->id;
        whole.size = frame->size;
        (void)memcpy(whole.data, frame->data, frame->size);
        receive(node, &whole);
    } else {
        /* it has not started */
    }
    leave(node);
}

void genus_node_sent(genus_node *node, const genus_frame *frame, genus_time now)
{
    enter(node, now);
    if (genus_priority_of(frame->id) == GENUS_PRIORITY_HARD) {
        genus_calendar_sent(node, frame);
        genus_queue_deferred(node);
    } else {
        genus_queue_frame_sent(node, frame);
    }
    leave(node);
}

void genus_node_failed(genus_node *node, const genus_frame *frame, genus_time now)
{
    enter(node, now);
    if (genus_priority_of(frame->id) == GENUS_PRIORITY_HARD) {
        genus_calendar_failed(node, frame);
        genus_queue_deferred(node);
    } else {
        genus_membership_failed(node, frame);
        genus_queue_deferred(node);
        genus_recovery_failed(node, frame);
    }
    leave(node);
}

void genus_node_lost(genus_node *node, genus_time now)
{
    enter(node, now);
    genus_queue_deferred(node);
    leave(node);
}

void genus_node_error_passive(genus_node *node, bool is_passive, genus_time now)
{
    enter(node, now);
    node->is_passive = is_passive;
    genus_errors_check(node);
    leave(node);
}

void genus_node_bus_off(genus_node *node, genus_time now)
{
    enter(node, now);
    genus_queue_emptied(node);
    genus_tell_about(node, GENUS_NOTICE_OFF_THE_BUS, node->number, 0U, 0U, now);
    node->is_off = true;
    genus_errors_check(node);
    leave(node);
}

void genus_node_bus_on(genus_node *node, genus_time now)
{
    enter(node, now);
    node->is_off = false;
    genus_errors_check(node);
    genus_clock_check(node);
    genus_membership_claim(node);
    node->queue.is_changed = true;
    leave(node);
}

/* -- timers ------------------------------------------------------------------------------------ */

genus_time genus_node_wake_at(const genus_node *node)
{
    genus_time at = genus_queue_wake_at(node);
    if (node->is_up) {
        at = genus_earlier(at, genus_membership_wake_at(node));
        at = genus_earlier(at, genus_binding_wake_at(node));
        at = genus_earlier(at, genus_questions_wake_at(node));
        at = genus_earlier(at, node->layout_at);
        at = genus_earlier(at, genus_clock_next(node));
        at = genus_earlier(at, genus_calendar_wake_at(node));
        at = genus_earlier(at, node->report_at);
        at = genus_earlier(at, node->recovery_at);
    }
    return at;
}

void genus_node_wake(genus_node *node, genus_time now)
{
    enter(node, now);
    genus_queue_wake(node);
    if (node->is_up) {
        genus_membership_wake(node);
        if (genus_binding_wake_at(node) <= now) {
            genus_binding_wake(node);
        }
        genus_questions_wake(node);
        genus_layout_wake(node);
        if (genus_clock_next(node) <= now) {
            genus_clock_check(node);
        }
        genus_calendar_wake(node);
        genus_reports_wake(node);
        genus_recovery_wake(node);
    }
    leave(node);
}
