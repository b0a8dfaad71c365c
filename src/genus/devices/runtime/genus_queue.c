/* SPDX-License-Identifier: Apache-2.0 */
/* The event-triggered transmit queue of a node: everything that is not sent by the calendar.
 *
 * Soft events go earliest deadline first: the one with the least slack is in the mailbox, under a
 * priority that encodes its slack and is computed again whenever another frame had the bus.
 * Everything else goes by its fixed identifier, after all soft events. It chooses as the Python
 * node's TxQueue does. */
#include "genus_node_parts.h"

#include <string.h>

static uint16_t frame_count(const genus_node *node, const genus_outgoing *event)
{
    return genus_frame_count(&node->channels[event->channel], event->size);
}

/* The next serial number; 0 is that of nothing. */
static uint32_t next_serial(genus_queue *queue)
{
    queue->last_serial++;
    if (queue->last_serial == 0U) {
        queue->last_serial = 1U;
    }
    return queue->last_serial;
}

/* -- adding and removing ----------------------------------------------------------------------- */

uint32_t genus_queue_add(genus_node *node, const genus_frame *frame, uint8_t kind, uint8_t index,
                         uint8_t follow)
{
    genus_queue *const queue = &node->queue;
    uint8_t place;
    for (place = 0U; place < GENUS_MESSAGES; place++) {
        genus_message *const message = &queue->messages[place];
        if (message->serial == 0U) {
            message->serial = next_serial(queue);
            message->frame = *frame;
            genus_set_fd(&message->frame, false);
            message->kind = kind;
            message->index = index;
            message->follow = follow;
            queue->is_changed = true;
            return message->serial;
        }
    }
    node->drops.too_many++;
    return 0U;
}

uint32_t genus_queue_send(genus_node *node, const genus_frame *frame)
{
    return genus_queue_add(node, frame, GENUS_MESSAGE_PLAIN, 0U, GENUS_THEN_NOTHING);
}

static genus_message *find_message(genus_queue *queue, uint32_t serial)
{
    genus_message *found = NULL;
    uint8_t place;
    for (place = 0U; place < GENUS_MESSAGES; place++) {
        if ((serial != 0U) && (queue->messages[place].serial == serial)) {
            found = &queue->messages[place];
        }
    }
    return found;
}

static genus_outgoing *find_event(genus_queue *queue, uint32_t serial)
{
    genus_outgoing *found = NULL;
    uint8_t place;
    for (place = 0U; place < GENUS_EVENTS; place++) {
        if ((serial != 0U) && (queue->events[place].serial == serial)) {
            found = &queue->events[place];
        }
    }
    return found;
}

void genus_queue_remove(genus_node *node, uint32_t serial)
{
    genus_message *const message = find_message(&node->queue, serial);
    if (message != NULL) {
        message->serial = 0U;
    }
    node->queue.is_changed = true;
}

bool genus_queue_has(const genus_node *node, const genus_frame *frame)
{
    bool found = false;
    uint8_t place;
    for (place = 0U; place < GENUS_MESSAGES; place++) {
        const genus_message *const message = &node->queue.messages[place];
        if ((message->serial != 0U) && genus_same_frame(&message->frame, frame)) {
            found = true;
        }
    }
    return found;
}

genus_outgoing *genus_queue_reserve(genus_node *node)
{
    genus_outgoing *found = NULL;
    uint8_t place;
    for (place = 0U; (place < GENUS_EVENTS) && (found == NULL); place++) {
        if (node->queue.events[place].serial == 0U) {
            found = &node->queue.events[place];
        }
    }
    return found;
}

/* Rank a soft event by when the rest of it must start; after each frame less is left to send. */
static void rank(genus_node *node, genus_outgoing *event)
{
    const uint16_t left = (uint16_t)(frame_count(node, event) - event->position);
    uint8_t last = (uint8_t)event->size;
    if (genus_is_segmented(&node->channels[event->channel])) {
        last = genus_last_segment(event->size);
    }
    node->queue.last_order++;
    event->order = node->queue.last_order;
    event->start_by = event->deadline -
                      ((genus_time)(left - 1U) * genus_frame_ns(node, GENUS_DATA_BYTES)) -
                      genus_frame_ns(node, last);
}

void genus_queue_add_event(genus_node *node, genus_outgoing *event)
{
    genus_queue *const queue = &node->queue;
    queue->last_order++;
    event->serial = next_serial(queue);
    event->order = queue->last_order;
    event->position = 0U;
    event->is_missed = false;
    event->is_expired = false;
    if (event->deadline != 0) {
        rank(node, event);
    }
    queue->is_changed = true;
}

static void finish(genus_node *node, genus_outgoing *event)
{
    if (node->channels[event->channel].started == event->serial) {
        node->channels[event->channel].started = 0U;
    }
    event->serial = 0U;
}

/* Whether the last frame of an event is in the mailbox, or was lately. */
static bool may_be_on_wire(const genus_queue *queue, uint32_t serial)
{
    bool found = (queue->loaded.serial == serial) && queue->loaded.is_last;
    uint8_t index;
    for (index = 0U; index < queue->replaced_used; index++) {
        if ((queue->replaced[index].serial == serial) && queue->replaced[index].is_last) {
            found = true;
        }
    }
    return found;
}

/* Send no more of an event; it is told at once, unless its last frame may be on the wire. */
static void expire(genus_node *node, genus_outgoing *event)
{
    node->queue.is_changed = true;
    if (event->is_expired || !may_be_on_wire(&node->queue, event->serial)) {
        finish(node, event);
        genus_event_expired(node, event, false);
    } else {
        const genus_time frame_ns = genus_frame_ns(node, GENUS_DATA_BYTES);
        event->is_expired = true;
        event->start_by = node->now + frame_ns + (frame_ns / 16);
        if (node->channels[event->channel].started == event->serial) {
            node->channels[event->channel].started = 0U;
        }
    }
}

static void miss(genus_node *node, genus_outgoing *event)
{
    if (!event->is_missed) {
        event->is_missed = true;
        genus_event_missed(node, event);
    }
}

void genus_queue_emptied(genus_node *node)
{
    node->queue.loaded.serial = 0U;
    node->queue.replaced_used = 0U;
}

void genus_queue_clear(genus_node *node)
{
    uint8_t place;
    for (place = 0U; place < GENUS_MESSAGES; place++) {
        node->queue.messages[place].serial = 0U;
    }
    genus_queue_emptied(node);
    for (place = 0U; place < GENUS_EVENTS; place++) {
        genus_outgoing *const event = &node->queue.events[place];
        if (event->serial != 0U) {
            finish(node, event);
            genus_event_dropped(node, event);
        }
    }
    node->config->calls.load(node->config->context, GENUS_EVENT_TRIGGERED, NULL);
    node->config->calls.load(node->config->context, GENUS_TIME_TRIGGERED, NULL);
}

/* -- what the controller did ------------------------------------------------------------------- */

/* One more frame of an event was sent. */
static void advance(genus_node *node, genus_outgoing *event)
{
    event->position++;
    if (event->position < frame_count(node, event)) {
        node->channels[event->channel].started = event->serial;
        if (event->deadline != 0) {
            rank(node, event);
        }
        return;
    }
    genus_channel_commit(node, event->channel);
    if ((event->deadline != 0) && (node->now > event->deadline)) {
        miss(node, event);
    }
    finish(node, event);
    if (event->is_expired) {
        genus_event_expired(node, event, true);
    } else {
        genus_event_sent(node, event);
    }
}

void genus_queue_frame_sent(genus_node *node, const genus_frame *frame)
{
    genus_queue *const queue = &node->queue;
    genus_loaded owner;
    genus_outgoing *event;
    genus_message *message;
    uint8_t index;
    (void)memset(&owner, 0, sizeof owner);
    if ((queue->loaded.serial != 0U) && genus_same_frame(frame, &queue->loaded.frame)) {
        owner = queue->loaded;
        queue->loaded.serial = 0U;
    } else {
        for (index = 0U; index < queue->replaced_used; index++) {
            if (genus_same_frame(frame, &queue->replaced[index].frame)) {
                owner = queue->replaced[index];
            }
        }
    }
    queue->replaced_used = 0U;
    queue->is_changed = true;
    event = find_event(queue, owner.serial);
    message = find_message(queue, owner.serial);
    if (event != NULL) {
        advance(node, event);
    } else if (message != NULL) {
        const genus_message sent = *message;
        message->serial = 0U;
        genus_message_sent(node, &sent);
    } else if ((owner.serial != 0U) && (owner.channel != GENUS_NO_CHANNEL) && owner.is_last) {
        genus_channel_commit(node,
                             owner.channel); /* it expired on the wire, but receivers have it */
    } else {
        /* nothing waits for it */
    }
}

static bool has_soft(const genus_queue *queue)
{
    bool found = false;
    uint8_t place;
    for (place = 0U; place < GENUS_EVENTS; place++) {
        if ((queue->events[place].serial != 0U) && (queue->events[place].deadline != 0)) {
            found = true;
        }
    }
    return found;
}

void genus_queue_deferred(genus_node *node)
{
    node->queue.replaced_used = 0U;
    if (has_soft(&node->queue)) {
        node->queue.is_changed = true;
    }
}

/* -- time -------------------------------------------------------------------------------------- */

static genus_time end_of(const genus_outgoing *event)
{
    return event->is_expired ? event->start_by : event->expires;
}

static genus_time timer_of(const genus_outgoing *event)
{
    genus_time at = GENUS_NEVER;
    if ((event->serial != 0U) && (event->deadline != 0)) {
        if (!event->is_missed) {
            at = event->deadline;
        }
        if (event->expires != 0) {
            at = genus_earlier(at, end_of(event));
        }
    }
    return at;
}

genus_time genus_queue_wake_at(const genus_node *node)
{
    genus_time found = GENUS_NEVER;
    uint8_t place;
    for (place = 0U; place < GENUS_EVENTS; place++) {
        found = genus_earlier(found, timer_of(&node->queue.events[place]));
    }
    return found;
}

void genus_queue_wake(genus_node *node)
{
    genus_time at = genus_queue_wake_at(node);
    while (at <= node->now) {
        uint8_t place;
        for (place = 0U; place < GENUS_EVENTS; place++) {
            genus_outgoing *const event = &node->queue.events[place];
            if (timer_of(event) == at) {
                if (at >= event->deadline) {
                    miss(node, event);
                }
                if ((event->expires != 0) && (end_of(event) <= at)) {
                    expire(node, event);
                }
            }
        }
        at = genus_queue_wake_at(node);
    }
}

/* -- choosing the frame in the mailbox --------------------------------------------------------- */

static genus_outgoing *started_or(genus_node *node, genus_outgoing *event)
{
    genus_outgoing *const started =
        find_event(&node->queue, node->channels[event->channel].started);
    return (started == NULL) ? event : started;
}

static genus_outgoing *first_soft(genus_queue *queue)
{
    genus_outgoing *found = NULL;
    uint8_t place;
    for (place = 0U; place < GENUS_EVENTS; place++) {
        genus_outgoing *const event = &queue->events[place];
        if ((event->serial != 0U) && (event->deadline != 0) && !event->is_expired &&
            ((found == NULL) || (event->start_by < found->start_by) ||
             ((event->start_by == found->start_by) && (event->order < found->order)))) {
            found = event;
        }
    }
    return found;
}

/* The soft event that must start first; expired events are dropped. */
static genus_outgoing *most_urgent(genus_node *node)
{
    genus_outgoing *event = first_soft(&node->queue);
    while (event != NULL) {
        event = started_or(node, event);
        if ((event->expires == 0) || (event->expires > node->now)) {
            return event;
        }
        expire(node, event);
        event = first_soft(&node->queue);
    }
    return NULL;
}

static genus_message *first_message(genus_queue *queue)
{
    genus_message *found = NULL;
    uint8_t place;
    for (place = 0U; place < GENUS_MESSAGES; place++) {
        genus_message *const message = &queue->messages[place];
        if ((message->serial != 0U) &&
            ((found == NULL) || (message->frame.id < found->frame.id) ||
             ((message->frame.id == found->frame.id) && (message->serial < found->serial)))) {
            found = message;
        }
    }
    return found;
}

static uint32_t fixed_id(const genus_node *node, const genus_outgoing *event)
{
    return genus_identifier(event->priority, node->number, node->channels[event->channel].etag);
}

static genus_outgoing *first_fixed(genus_node *node)
{
    genus_outgoing *found = NULL;
    uint8_t place;
    for (place = 0U; place < GENUS_EVENTS; place++) {
        genus_outgoing *const event = &node->queue.events[place];
        if ((event->serial != 0U) && (event->deadline == 0) &&
            ((found == NULL) || (fixed_id(node, event) < fixed_id(node, found)) ||
             ((fixed_id(node, event) == fixed_id(node, found)) && (event->order < found->order)))) {
            found = event;
        }
    }
    return found;
}

static uint8_t soft_priority(const genus_node *node, genus_time slack)
{
    const genus_time levels =
        (genus_time)GENUS_PRIORITY_SOFT_LAST - (genus_time)GENUS_PRIORITY_SOFT_FIRST;
    const genus_time level_ns = genus_frame_ns(node, GENUS_DATA_BYTES);
    const genus_time level = (slack < 0) ? 0 : genus_earlier(slack / level_ns, levels);
    return (uint8_t)(GENUS_PRIORITY_SOFT_FIRST + (uint8_t)level);
}

/* The next frame of an event under its present priority. */
static void load_event(genus_node *node, genus_outgoing *event, genus_loaded *loaded)
{
    const genus_tx_channel *const channel = &node->channels[event->channel];
    uint8_t priority = event->priority;
    if (event->position == 0U) {
        event->payload[0] =
            (uint8_t)((event->payload[0] & 0x1FU) | (uint8_t)(channel->sequence << 5));
    }
    if (event->deadline != 0) {
        priority = soft_priority(node, event->start_by - node->now);
    }
    loaded->frame.id = genus_identifier(priority, node->number, event->etag);
    genus_event_data(channel, event->payload, event->size, event->position, &loaded->frame);
    loaded->serial = event->serial;
    loaded->channel = event->channel;
    loaded->is_last = (uint16_t)(event->position + 1U) == frame_count(node, event);
}

static void load_message(const genus_node *node, genus_message *message, genus_loaded *loaded)
{
    const genus_loaded *const now = &node->queue.loaded;
    if ((message->kind == GENUS_MESSAGE_REPORT) && (message->serial != now->serial)) {
        genus_report_frame(node, message->index,
                           &message->frame); /* its counters are read as late as possible */
    }
    loaded->frame = message->frame;
    loaded->serial = message->serial;
    loaded->channel = GENUS_NO_CHANNEL;
    loaded->is_last = true;
}

static void choose(genus_node *node, genus_loaded *chosen)
{
    genus_outgoing *event = most_urgent(node);
    chosen->serial = 0U;
    if (event == NULL) {
        genus_message *const message = first_message(&node->queue);
        event = first_fixed(node);
        if ((message != NULL) && ((event == NULL) || (message->frame.id < fixed_id(node, event)))) {
            load_message(node, message, chosen);
            return;
        }
    }
    if (event != NULL) {
        load_event(node, started_or(node, event), chosen);
    }
}

void genus_queue_update(genus_node *node)
{
    genus_queue *const queue = &node->queue;
    genus_loaded chosen;
    if (!queue->is_changed) {
        return;
    }
    (void)memset(&chosen, 0, sizeof chosen);
    while (queue->is_changed) { /* an event that expires meanwhile changes it again */
        queue->is_changed = false;
        choose(node, &chosen);
    }
    if (chosen.serial == queue->loaded.serial) {
        if ((chosen.serial == 0U) || genus_same_frame(&chosen.frame, &queue->loaded.frame)) {
            return;
        }
    }
    if ((queue->loaded.serial != 0U) && (queue->replaced_used < GENUS_REPLACED)) {
        queue->replaced[queue->replaced_used] = queue->loaded;
        queue->replaced_used++;
    }
    queue->loaded = chosen;
    node->config->calls.load(node->config->context, GENUS_EVENT_TRIGGERED,
                             (chosen.serial == 0U) ? NULL : &queue->loaded.frame);
}
