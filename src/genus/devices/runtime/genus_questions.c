/* SPDX-License-Identifier: Apache-2.0 */
/* Questions for late classes: types that were registered after the firmware was built.
 *
 * The broker is asked what class an event tag is, four times, and not again for a while after that,
 * unless another broker or catalog is heard of. Answers come in segments, one at a time. The first
 * event of such a class is kept meanwhile, if there is room for it. */
#include "genus_node_parts.h"

#include <string.h>

#if GENUS_WITH_LATE

#define QUESTION_FREE 0U
#define QUESTION_ASKED 1U
#define QUESTION_RESTING 2U /* answered, or given up: not asked again for a while */
#define ANSWER_RETRY_NS (500 * GENUS_MS)
#define ANSWER_TIMEOUT_NS (10000 * GENUS_MS)
#define ANSWER_ATTEMPTS 4U
#define QUESTION_PAUSE_NS (10000 * GENUS_MS)

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

/* Ask the broker what class an event tag is, unless that was done lately; whether an answer may
 * come. */
static bool ask(genus_node *node, uint16_t etag)
{
    genus_question *place = NULL;
    uint8_t index;
    if (node->config->calls.on_class == NULL) {
        return false;
    }
    for (index = 0U; index < GENUS_QUESTIONS; index++) {
        genus_question *const each = &node->questions[index];
        if ((each->state != QUESTION_FREE) && (each->etag == etag)) {
            return (each->state == QUESTION_ASKED) && (node->number != 0U);
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
    return (place != NULL) && (node->number != 0U);
}

/* -- the event that waits ---------------------------------------------------------------------- */

#if GENUS_LATE_BYTES > 0

/* Offer the event that waits to the program again. So that none of its class overtakes it, this is
 * done before every other event. */
void genus_questions_offer(genus_node *node)
{
    genus_kept *const kept = &node->kept;
    genus_received event;
    if (kept->size == 0U) {
        return;
    }
    event.etag = kept->etag;
    event.node = kept->node;
    event.size = kept->size;
    event.payload = kept->payload;
    if ((node->now - kept->at) > ANSWER_TIMEOUT_NS) {
        kept->size = 0U;
        node->drops.unknown_class++;
    } else if (node->config->calls.on_event(node->config->context, &event)) {
        kept->size = 0U;
    } else {
        /* it waits on */
    }
}

/* A question has ended: what still waits for its answer is dropped. */
static void settle(genus_node *node, uint16_t etag)
{
    genus_questions_offer(node);
    if ((node->kept.size != 0U) && (node->kept.etag == etag)) {
        node->kept.size = 0U;
        node->drops.unknown_class++;
    }
}

/* A publisher signed another type than this firmware knows: none of its events is delivered. */
void genus_questions_distrust(genus_node *node, uint8_t sender, uint16_t etag, uint8_t width)
{
    genus_kept *const kept = &node->kept;
    if ((kept->size != 0U) && (kept->node == sender) &&
        ((kept->etag >> width) == (etag >> width))) {
        kept->size = 0U;
        node->drops.wrong_catalog++;
    }
}

/* Ask for the class of an event; returns whether the event is kept until the answer comes. */
bool genus_questions_keep(genus_node *node, const genus_received *event)
{
    genus_kept *const kept = &node->kept;
    if (!ask(node, event->etag) || (kept->size != 0U) || (event->size > GENUS_LATE_BYTES)) {
        return false;
    }
    kept->at = node->now;
    kept->etag = event->etag;
    kept->node = event->node;
    kept->size = event->size;
    (void)memcpy(kept->payload, event->payload, event->size);
    return true;
}

#else

static void settle(genus_node *node, uint16_t etag)
{
    (void)node;
    (void)etag;
}

bool genus_questions_keep(genus_node *node, const genus_received *event)
{
    (void)ask(node, event->etag);
    return false;
}

#endif

/* -- questions --------------------------------------------------------------------------------- */

void genus_questions_begin(genus_node *node)
{
    genus_transfer_init(&node->answer, node->answer_buffer, (uint16_t)sizeof node->answer_buffer);
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
            settle(node, each->etag);
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
            settle(node, etag);
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
            settle(node, etag);
            genus_tell_about(node, GENUS_NOTICE_CLASS_UNKNOWN, 0U, etag, 0U, node->now);
        }
    }
}

#endif
