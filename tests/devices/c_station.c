/* A C node for ctypes: tables that grow while it runs, and flat functions. Only tests use it. */
#include "genus_node.h"

#include <stdlib.h>
#include <string.h>

typedef void (*load_call)(int mailbox, int is_frame, uint32_t id, int size, const uint8_t *data);
typedef int (*event_call)(int etag, int node, int size, const uint8_t *payload);
typedef void (*notice_call)(int kind, int channel, int node, int etag, int reference, int count, int64_t time);
typedef void (*class_call)(int size, const uint8_t *answer);
typedef uint32_t (*random_call)(uint32_t range);
typedef int (*layout_call)(int channel, int index);

#define FD 0x100 /* with the size of a frame: it is CAN FD */

typedef struct {
    genus_node node;
    genus_config config;
    genus_channel channels[GENUS_CHANNELS];
    genus_slot slots[GENUS_SLOTS];
    uint8_t subjects[GENUS_SUBJECTS][8];
    genus_block blocks[255];
    genus_known known[255];
    load_call load;
    event_call on_event;
    notice_call on_notice;
    class_call on_class;
    random_call random;
    layout_call layout;
} station;

static void load(void *context, uint8_t mailbox, const genus_frame *frame)
{
    const station *const self = context;
    if (frame == NULL) {
        self->load(mailbox, 0, 0, 0, NULL);
    } else {
        self->load(mailbox, 1, frame->id, frame->size | (genus_is_fd(frame) ? FD : 0), frame->data);
    }
}

static bool on_event(void *context, const genus_received *event)
{
    const station *const self = context;
    return self->on_event(event->etag, event->node, event->size, event->payload) != 0;
}

static void on_notice(void *context, const genus_notice *notice)
{
    const station *const self = context;
    self->on_notice((int)notice->kind, notice->channel, notice->node, notice->etag, notice->reference, notice->count,
                    notice->time);
}

#if GENUS_WITH_LATE
static void on_class(void *context, const uint8_t *answer, uint16_t size)
{
    const station *const self = context;
    self->on_class(size, answer);
}
#endif

static uint32_t random_below(void *context, uint32_t range)
{
    const station *const self = context;
    return self->random(range);
}

static uint8_t layout_byte(void *context, uint8_t channel, uint16_t index)
{
    const station *const self = context;
    return (uint8_t)self->layout(channel, index);
}

static void put_u64(uint8_t *data, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        data[i] = (uint8_t)(value >> (56 - (8 * i)));
    }
}

station *station_new(uint64_t uid, int number, int is_synchronised, uint32_t bit_ns, int64_t period_ns,
                     uint32_t granularity_ns)
{
    station *const self = calloc(1, sizeof *self);
    genus_config *const config = &self->config;
    put_u64(config->uid, uid);
    config->number = (uint8_t)number;
    config->is_synchronised = is_synchronised != 0;
    config->bit_ns = bit_ns;
    config->clock.period_ns = period_ns;
    config->clock.drift_ppm = 100;
    config->clock.wander_ppm = 10;
    config->clock.granularity_ns = granularity_ns;
    config->clock.bit_ns = bit_ns;
    config->channels = self->channels;
    config->slots = self->slots;
    config->subjects = (const uint8_t(*)[8])self->subjects;
    config->blocks = self->blocks;
    config->known = self->known;
    config->calls.load = load;
    config->calls.on_event = on_event;
    config->calls.on_notice = on_notice;
#if GENUS_WITH_LATE
    config->calls.on_class = on_class;
#endif
    config->calls.random = random_below;
    config->calls.layout_byte = layout_byte;
    config->context = self;
    return self;
}

void station_data_bit(station *self, uint32_t data_bit_ns)
{
#if GENUS_FD
    self->config.data_bit_ns = data_bit_ns;
#else
    (void)self;
    (void)data_bit_ns;
#endif
}

void station_call(station *self, load_call on_load, event_call event, notice_call notice, class_call class_answer,
                  random_call random, layout_call layout)
{
    self->load = on_load;
    self->on_event = event;
    self->on_notice = notice;
    self->on_class = class_answer;
    self->random = random;
    self->layout = layout;
}

int station_init(station *self)
{
    return genus_node_init(&self->node, &self->config);
}

void station_free(station *self)
{
    free(self);
}

size_t station_size(void)
{
    return sizeof(genus_node);
}

int station_add_slot(station *self, int channel, int number, int etag, const int64_t *times, int frames, int omissions,
                     int is_sporadic, int is_planned)
{
    genus_slot *const slot = &self->slots[self->config.slot_count];
    if (self->config.slot_count >= GENUS_SLOTS) {
        return -1;
    }
    memset(slot, 0, sizeof *slot);
    slot->channel = (uint8_t)channel;
    slot->number = (uint8_t)number;
    slot->etag = (uint16_t)etag;
    slot->offset_ns = times[0];
    slot->period_ns = times[1];
    slot->length_ns = times[2];
    slot->wait_ns = times[3];
    slot->gap_ns = times[4];
    slot->closes_ns = times[5];
    slot->frames = (uint8_t)frames;
    slot->omissions = (uint8_t)omissions;
    slot->is_sporadic = is_sporadic != 0;
    slot->is_planned_passive = is_planned != 0;
    return self->config.slot_count++;
}

/* What genus_node_init does for the channels it knows. */
int station_add_channel(station *self, uint64_t subject, int etag, int width, int qos, int is_bulk, int largest,
                        uint32_t digest, int layout_size, int64_t span_ns, int64_t expires_ns)
{
    const uint8_t index = self->config.channel_count;
    genus_channel *const channel = &self->channels[index];
    if (index >= GENUS_CHANNELS) {
        return -1;
    }
    put_u64(channel->subject, subject);
    channel->etag = (uint16_t)etag;
    channel->width = (uint8_t)width;
    channel->qos = (uint8_t)qos;
    channel->is_bulk = is_bulk != 0;
    channel->largest = (uint16_t)largest;
    channel->digest = digest;
    channel->layout_size = (uint16_t)layout_size;
    channel->span_ns = span_ns;
    channel->expires_ns = expires_ns;
    self->config.channel_count++;
    self->node.channels[index].slot = GENUS_NO_CHANNEL;
    self->node.channels[index].etag = channel->etag;
    self->node.channels[index].is_segmented = largest == 0 || largest > GENUS_DATA_BYTES;
    return index;
}

int station_add_subject(station *self, uint64_t subject)
{
    if (self->config.subject_count >= GENUS_SUBJECTS) {
        return -1;
    }
    put_u64(self->subjects[self->config.subject_count], subject);
    return self->config.subject_count++;
}

void station_clear_blocks(station *self)
{
    self->config.block_count = 0;
}

void station_add_block(station *self, int value, int mask, int width)
{
    genus_block *const block = &self->blocks[self->config.block_count++];
    block->value = (uint16_t)value;
    block->mask = (uint16_t)mask;
    block->width = (uint8_t)width;
}

void station_add_known(station *self, int etag, uint32_t subject)
{
    genus_known *const known = &self->known[self->config.known_count++];
    known->etag = (uint16_t)etag;
    known->subject[0] = (uint8_t)(subject >> 16);
    known->subject[1] = (uint8_t)(subject >> 8);
    known->subject[2] = (uint8_t)subject;
}

static genus_frame frame_of(uint32_t id, int size, const uint8_t *data)
{
    genus_frame frame;
    memset(&frame, 0xA5, sizeof frame);
    frame.id = id;
    frame.size = (uint8_t)size;
    genus_set_fd(&frame, (size & FD) != 0);
    memcpy(frame.data, data, frame.size > GENUS_DATA_BYTES ? GENUS_DATA_BYTES : frame.size);
    return frame;
}

void station_receive(station *self, uint32_t id, int size, const uint8_t *data, int64_t now)
{
    const genus_frame frame = frame_of(id, size, data);
    genus_node_receive(&self->node, &frame, now);
}

void station_sent(station *self, uint32_t id, int size, const uint8_t *data, int64_t now)
{
    const genus_frame frame = frame_of(id, size, data);
    genus_node_sent(&self->node, &frame, now);
}

void station_failed(station *self, uint32_t id, int size, const uint8_t *data, int64_t now)
{
    const genus_frame frame = frame_of(id, size, data);
    genus_node_failed(&self->node, &frame, now);
}

void station_start(station *self, int64_t now) { genus_node_start(&self->node, now); }
void station_announce(station *self, int channel, int64_t now)
{
    genus_node_announce(&self->node, (uint8_t)channel, now);
}
void station_withdraw(station *self, int channel, int64_t now)
{
    genus_node_withdraw(&self->node, (uint8_t)channel, now);
}
void station_subscribe(station *self, int subject, int64_t now)
{
    genus_node_subscribe(&self->node, (uint8_t)subject, now);
}
void station_lost(station *self, int64_t now) { genus_node_lost(&self->node, now); }
void station_error_passive(station *self, int is_passive, int64_t now)
{
    genus_node_error_passive(&self->node, is_passive != 0, now);
}
void station_bus_off(station *self, int64_t now) { genus_node_bus_off(&self->node, now); }
void station_bus_on(station *self, int64_t now) { genus_node_bus_on(&self->node, now); }
int64_t station_wake_at(const station *self) { return genus_node_wake_at(&self->node); }
void station_wake(station *self, int64_t now) { genus_node_wake(&self->node, now); }

int station_publish(station *self, int channel, int etag, const uint8_t *payload, int size, int64_t deadline,
                    int64_t expires, int reference, int64_t now)
{
    const genus_publish_options options = {deadline, expires, (uint16_t)reference};
    return (int)genus_node_publish(&self->node, (uint8_t)channel, (uint16_t)etag, payload, (uint16_t)size, &options,
                                   now);
}

#if GENUS_WITH_CALENDAR
int64_t station_global_time(const station *self, int64_t local) { return genus_node_global_time(&self->node, local); }
int64_t station_local_time(const station *self, int64_t global) { return genus_node_local_time(&self->node, global); }
int64_t station_precision(const station *self, int64_t now) { return genus_node_precision(&self->node, now); }
#else /* no global time */
int64_t station_global_time(const station *self, int64_t local) { (void)self; return local; }
int64_t station_local_time(const station *self, int64_t global) { (void)self; return global; }
int64_t station_precision(const station *self, int64_t now) { (void)self; (void)now; return 0; }
#endif

int station_number(const station *self) { return self->node.number; }
int station_channel_state(const station *self, int channel) { return self->node.channels[channel].state; }
int station_is_segmented(const station *self, int channel) { return self->node.channels[channel].is_segmented; }
int station_is_running(const station *self) { return self->node.is_running; }

int station_is_joined(const station *self)
{
    int found = 0;
#if GENUS_WITH_CALENDAR
    for (int i = 0; i < self->config.slot_count; i++) {
        found |= self->node.slots[i].is_joined;
    }
#else
    (void)self;
#endif
    return found;
}

int station_waiting(const station *self)
{
    int found = 0;
    for (int i = 0; i < GENUS_EVENTS; i++) {
        found += self->node.queue.events[i].serial != 0;
    }
    for (int i = 0; i < GENUS_MESSAGES; i++) {
        found += self->node.queue.messages[i].serial != 0;
    }
    return found;
}

/* published, sent, missed, expired, failed, replaced, unknown */
void station_counts(const station *self, int channel, uint32_t *counts)
{
    memcpy(counts, &self->node.channels[channel].counts, 7 * sizeof *counts);
}

/* Those of genus_drops, in its order. */
void station_drops(const station *self, uint32_t *drops)
{
    memcpy(drops, &self->node.drops, sizeof self->node.drops);
}

/* Those of genus_clock_drops, in its order. */
void station_clock_drops(const station *self, uint32_t *drops)
{
#if GENUS_WITH_CALENDAR
    const genus_clock_drops *const found = &self->node.clock.drops;
#else
    static const genus_clock_drops none;
    const genus_clock_drops *const found = &none;
    (void)self;
#endif
    drops[0] = found->malformed;
    drops[1] = found->own_number;
    drops[2] = found->not_master;
    drops[3] = found->duplicate;
    drops[4] = found->unpaired;
    drops[5] = found->contradiction;
}

void station_segment_drops(const station *self, uint32_t *drops)
{
    for (int i = 0; i < GENUS_SEGMENT_RESULTS; i++) {
#if GENUS_WITH_SEGMENTS
        drops[i] = self->node.segments.of[i];
#else
        (void)self;
        drops[i] = 0;
#endif
    }
}

int station_received(const station *self, int etag, uint32_t *received, uint32_t *lost)
{
    int found = 0;
    for (int i = 0; i < GENUS_PUBLISHERS; i++) {
        if (self->node.publishers[i].node != 0 && self->node.publishers[i].etag == etag) {
            *received += self->node.publishers[i].received;
            *lost += self->node.publishers[i].lost;
            found++;
        }
    }
    return found;
}

/* Segments for tests of the reassembler alone. */
typedef struct {
    genus_transfer transfer;
    genus_segment_counts counts;
    uint8_t buffer[70000];
} receiver;

receiver *receiver_new(int capacity)
{
    receiver *const self = calloc(1, sizeof *self);
    genus_transfer_init(&self->transfer, self->buffer, (uint16_t)capacity);
    return self;
}

void receiver_free(receiver *self)
{
    free(self);
}

int receiver_receive(receiver *self, const uint8_t *data, int size, int64_t now, int64_t timeout)
{
    return (int)genus_transfer_receive(&self->transfer, data, (uint8_t)size, now, timeout, &self->counts);
}

int receiver_payload(const receiver *self, uint8_t *payload)
{
    memcpy(payload, self->buffer, self->transfer.size);
    return self->transfer.size;
}

int receiver_count(const receiver *self, int result)
{
    return result < GENUS_SEGMENT_RESULTS ? self->counts.of[result] : 0;
}

int segment_count(int size) { return genus_segment_count((uint16_t)size); }
int segment(const uint8_t *payload, int size, int transfer, int position, uint8_t *data)
{
    return genus_segment(payload, (uint16_t)size, (uint8_t)transfer, (uint16_t)position, data);
}
