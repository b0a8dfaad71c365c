/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a node need of each other; not for programs. One part for each of these files.
 */
#ifndef GENUS_NODE_PARTS_H
#define GENUS_NODE_PARTS_H

#include "genus_node.h"

/* Messages of the middleware in the queue. */
#define GENUS_MESSAGE_PLAIN 0U
#define GENUS_MESSAGE_REPORT 1U
#define GENUS_MESSAGE_SIGNATURE 2U
#define GENUS_MESSAGE_ANSWER 3U
#define GENUS_MESSAGE_RECOVERY 4U

/* What follows a signature or a report that was sent. */
#define GENUS_THEN_NOTHING 0U
#define GENUS_THEN_REPORT 1U
#define GENUS_THEN_READY 2U

#define GENUS_QUESTION_SIGNATURE 4U
#define GENUS_QUESTION_LAYOUT 5U
#define GENUS_QUESTION_CLASS 6U
#define GENUS_ANSWER_HEADER 3U

/* -- genus_node.c: small things ---------------------------------------------------------------- */

genus_time genus_earlier(genus_time one, genus_time other);

static inline uint16_t genus_u16(const uint8_t *data)
{
    return (uint16_t)(((uint16_t)data[0] << 8) | data[1]);
}

static inline void genus_put_u16(uint8_t *data, uint16_t value)
{
    data[0] = (uint8_t)(value >> 8);
    data[1] = (uint8_t)(value & 0xFFU);
}

static inline void genus_put_u24(uint8_t *data, uint32_t value)
{
    data[0] = (uint8_t)((value >> 16) & 0xFFU);
    data[1] = (uint8_t)((value >> 8) & 0xFFU);
    data[2] = (uint8_t)(value & 0xFFU);
}

bool genus_same_frame(const genus_frame *one, const genus_frame *other);
void genus_tell(genus_node *node, genus_notice_kind kind, uint8_t channel, uint16_t reference,
                uint16_t count, genus_time time);
void genus_tell_about(genus_node *node, genus_notice_kind kind, uint8_t sender, uint16_t etag,
                      uint16_t count, genus_time time);
uint32_t genus_random_below(genus_node *node, uint32_t range);
genus_time genus_frame_ns(const genus_node *node, uint8_t size);
/* The data of a frame of an event: the segment at `position`, or the whole payload. */
void genus_event_data(const genus_tx_channel *channel, const uint8_t *payload, uint16_t size,
                      uint16_t position, genus_frame *frame);
void genus_message_sent(genus_node *node, const genus_message *message);

/* Whether an event of a channel may be longer than a frame. */
static inline bool genus_needs_segments(const genus_channel *channel)
{
    return (channel->largest == 0U) || (channel->largest > GENUS_DATA_BYTES);
}

static inline bool genus_is_segmented(const genus_tx_channel *channel)
{
    return GENUS_WITH_SEGMENTS && channel->is_segmented;
}

static inline uint16_t genus_frame_count(const genus_tx_channel *channel, uint16_t size)
{
    return genus_is_segmented(channel) ? genus_segment_count(size) : 1U;
}

/* -- genus_queue.c ----------------------------------------------------------------------------- */

uint32_t genus_queue_add(genus_node *node, const genus_frame *frame, uint8_t kind, uint8_t index,
                         uint8_t follow);
uint32_t genus_queue_send(genus_node *node, const genus_frame *frame);
void genus_queue_remove(genus_node *node, uint32_t serial);
bool genus_queue_has(const genus_node *node, const genus_frame *frame);
genus_outgoing *genus_queue_reserve(genus_node *node);
void genus_queue_add_event(genus_node *node, genus_outgoing *event);
void genus_queue_frame_sent(genus_node *node, const genus_frame *frame);
void genus_queue_deferred(genus_node *node);
void genus_queue_emptied(genus_node *node);
void genus_queue_clear(genus_node *node);
genus_time genus_queue_wake_at(const genus_node *node);
void genus_queue_wake(genus_node *node);
void genus_queue_update(genus_node *node);

/* -- genus_channels.c -------------------------------------------------------------------------- */

void genus_channel_open(genus_node *node, uint8_t channel);
void genus_channel_refuse(genus_node *node, uint8_t channel, genus_refusal reason);
void genus_channels_suspend(genus_node *node);
void genus_channel_commit(genus_node *node, uint8_t channel);
void genus_channel_sign(genus_node *node, uint8_t channel, uint8_t follow);
void genus_channel_report(genus_node *node, uint8_t channel, bool then_ready);
void genus_report_frame(const genus_node *node, uint8_t channel, genus_frame *frame);
void genus_event_sent(genus_node *node, const genus_outgoing *event);
void genus_event_missed(genus_node *node, const genus_outgoing *event);
void genus_event_expired(genus_node *node, const genus_outgoing *event, bool is_sent);
void genus_event_dropped(genus_node *node, const genus_outgoing *event);
void genus_report_soon(genus_node *node);
void genus_reports_wake(genus_node *node);
uint8_t genus_channel_of(const genus_node *node, uint16_t etag);
void genus_layout_ask(genus_node *node, uint8_t channel);
void genus_layout_sent(genus_node *node);
void genus_layout_wake(genus_node *node);
void genus_layout_clear(genus_node *node);

/* -- genus_calendar.c, and what takes its place in a node without it ---------------------------- */

#if GENUS_WITH_CALENDAR

void genus_clock_begin(genus_node *node);
void genus_clock_check(genus_node *node);
genus_time genus_clock_next(const genus_node *node);
void genus_clock_frame(genus_node *node, const genus_frame *frame);
uint8_t genus_calendar_slot_of(const genus_node *node, uint8_t channel);
void genus_calendar_join(genus_node *node, uint8_t slot);
void genus_calendar_leave(genus_node *node, uint8_t slot);
void genus_calendar_receive_in(genus_node *node);
void genus_calendar_watch(genus_node *node);
genus_time genus_calendar_wake_at(const genus_node *node);
void genus_calendar_wake(genus_node *node);
genus_publish_result genus_calendar_publish(genus_node *node, uint8_t channel, uint16_t etag,
                                            const uint8_t *payload, uint16_t size,
                                            uint16_t reference);
void genus_calendar_sent(genus_node *node, const genus_frame *frame);
void genus_calendar_failed(genus_node *node, const genus_frame *frame);
bool genus_calendar_has_receivers(const genus_node *node, uint16_t etag, bool *is_periodic);
void genus_calendar_keep(genus_node *node, const genus_received *event, uint16_t base);
bool genus_calendar_promises(const genus_node *node);
bool genus_calendar_has_senders(const genus_node *node);

#else

/* Hard events of others are delivered when they come. */
static inline void genus_clock_begin(genus_node *node) { (void)node; }
static inline void genus_clock_check(genus_node *node) { (void)node; }
static inline genus_time genus_clock_next(const genus_node *node)
{
    (void)node; return GENUS_NEVER;
}
static inline void genus_clock_frame(genus_node *node, const genus_frame *frame)
{
    (void)node; (void)frame;
}
static inline uint8_t genus_calendar_slot_of(const genus_node *node, uint8_t channel)
{
    (void)node; (void)channel; return GENUS_NO_CHANNEL;
}
static inline void genus_calendar_join(genus_node *node, uint8_t slot) { (void)node; (void)slot; }
static inline void genus_calendar_leave(genus_node *node, uint8_t slot) { (void)node; (void)slot; }
static inline void genus_calendar_receive_in(genus_node *node) { (void)node; }
static inline genus_time genus_calendar_wake_at(const genus_node *node)
{
    (void)node; return GENUS_NEVER;
}
static inline void genus_calendar_wake(genus_node *node) { (void)node; }
static inline void genus_calendar_sent(genus_node *node, const genus_frame *frame)
{
    (void)node; (void)frame;
}
static inline void genus_calendar_failed(genus_node *node, const genus_frame *frame)
{
    (void)node; (void)frame;
}
static inline void genus_calendar_keep(genus_node *node, const genus_received *event, uint16_t base)
{
    (void)node; (void)event; (void)base;
}
static inline bool genus_calendar_promises(const genus_node *node) { (void)node; return true; }
static inline bool genus_calendar_has_senders(const genus_node *node) { (void)node; return false; }

static inline bool genus_calendar_has_receivers(const genus_node *node, uint16_t etag,
                                                bool *is_periodic)
{
    (void)node; (void)etag;
    *is_periodic = false;
    return false;
}

static inline genus_publish_result genus_calendar_publish(genus_node *node, uint8_t channel,
                                                          uint16_t etag, const uint8_t *payload,
                                                          uint16_t size, uint16_t reference)
{
    (void)node; (void)channel; (void)etag; (void)payload; (void)size; (void)reference;
    return GENUS_PUBLISH_NOT_READY;
}

#endif

/* -- genus_errors.c -----------------------------------------------------------------------------
 */

void genus_errors_check(genus_node *node);
void genus_recovery_start(genus_node *node);
void genus_recovery_failed(genus_node *node, const genus_frame *frame);
void genus_recovery_sent(genus_node *node);
void genus_recovery_wake(genus_node *node);

/* -- genus_membership.c ------------------------------------------------------------------------ */

void genus_membership_start(genus_node *node);
void genus_membership_receive(genus_node *node, const genus_frame *frame);
void genus_membership_claim(genus_node *node);
void genus_membership_failed(genus_node *node, const genus_frame *frame);
genus_time genus_membership_wake_at(const genus_node *node);
void genus_membership_wake(genus_node *node);
void genus_membership_ask_all(genus_node *node);

/* -- genus_binding.c --------------------------------------------------------------------------- */

void genus_binding_join(genus_node *node);
void genus_binding_leave(genus_node *node);
void genus_binding_ask(genus_node *node, uint8_t request);
void genus_binding_use(genus_node *node);
void genus_binding_bind_channel(genus_node *node, uint8_t channel);
void genus_binding_announce(genus_node *node, uint8_t channel);
void genus_binding_supply(genus_node *node, const genus_frame *frame);
void genus_binding_heartbeat(genus_node *node, bool is_roll_call, bool is_other,
                             bool is_other_epoch);
void genus_binding_quiet(genus_node *node);
genus_time genus_binding_wake_at(const genus_node *node);
void genus_binding_wake(genus_node *node);

/* -- genus_receiver.c -------------------------------------------------------------------------- */

void genus_receiver_event(genus_node *node, const genus_frame *frame);
void genus_receiver_report(genus_node *node, const genus_frame *frame);
void genus_receiver_signature(genus_node *node, const genus_frame *frame);
void genus_receiver_announcement(genus_node *node, const genus_frame *frame);
void genus_receiver_set_format(genus_node *node, uint16_t etag, bool is_segmented);
bool genus_receiver_wants(const genus_node *node, uint16_t etag);
void genus_receiver_deliver(genus_node *node, const genus_received *event);

/* -- genus_questions.c, and what takes its place in a node without it --------------------------- */

#if GENUS_WITH_LATE

void genus_questions_begin(genus_node *node);
bool genus_questions_keep(genus_node *node, const genus_received *event);
void genus_questions_join(genus_node *node);
void genus_questions_leave(genus_node *node);
void genus_questions_refresh(genus_node *node);
void genus_questions_answer(genus_node *node, const genus_frame *frame);
genus_time genus_questions_wake_at(const genus_node *node);
void genus_questions_wake(genus_node *node);

#else

static inline void genus_questions_begin(genus_node *node) { (void)node; }
static inline bool genus_questions_keep(genus_node *node, const genus_received *event)
{
    (void)node; (void)event; return false;
}
static inline void genus_questions_join(genus_node *node) { (void)node; }
static inline void genus_questions_leave(genus_node *node) { (void)node; }
static inline void genus_questions_refresh(genus_node *node) { (void)node; }
static inline void genus_questions_answer(genus_node *node, const genus_frame *frame)
{
    (void)node; (void)frame;
}
static inline genus_time genus_questions_wake_at(const genus_node *node)
{
    (void)node; return GENUS_NEVER;
}
static inline void genus_questions_wake(genus_node *node) { (void)node; }

#endif

#if GENUS_WITH_LATE && (GENUS_LATE_BYTES > 0)

void genus_questions_offer(genus_node *node);
void genus_questions_distrust(genus_node *node, uint8_t sender, uint16_t etag, uint8_t width);

#else

static inline void genus_questions_offer(genus_node *node) { (void)node; }
static inline void genus_questions_distrust(genus_node *node, uint8_t sender, uint16_t etag,
                                            uint8_t width)
{
    (void)node; (void)sender; (void)etag; (void)width;
}

#endif

#endif
