/* Feeds a node with random and damaged frames, timers and errors; built with sanitizers, it must not report.
 *
 *   c_fuzz FRAMES SEED      random frames, most of which make sense, or nearly so
 *   with -DFRAMES=N         the same on an AVR, which prints to its first serial port
 *   with -DFUZZER           an entry for libFuzzer: the bytes say what happens
 *
 * Three nodes get everything: with a planned number, with one of the broker, and with a clock that needs no master. */
#include "genus_node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES 3
#define LONGEST(size) (GENUS_WITH_SEGMENTS ? (size) : 8)
#define HARD (GENUS_WITH_CALENDAR ? GENUS_QOS_HARD : GENUS_QOS_SOFT)

static const genus_channel CHANNELS[] = {
    {{1, 2, 3, 4, 5, 6, 7, 8}, 0x2010, 0, HARD, false, 8, 0xC0FFEE, 20, 10000000, 0},
    {{2, 2, 3, 4, 5, 6, 7, 8}, 0x2020, 2, GENUS_QOS_SOFT, false, LONGEST(0), 0xC0FFEE, 100, 5000000, 20000000},
    {{3, 2, 3, 4, 5, 6, 7, 8}, 0x2030, 0, GENUS_QOS_NONE, true, LONGEST(40), 0xC0FFEE, 0, 0, 0},
    {{4, 2, 3, 4, 5, 6, 7, 8}, 0x2050, 0, HARD, false, LONGEST(12), 0xC0FFEE, 9, 20000000, 0},
};
static const genus_slot SLOTS[] = {
    {0, 3, 0x2010, 1000000, 10000000, 562000, 191000, 20000, 382000, 1, 1, false, false},
    {GENUS_NO_CHANNEL, 5, 0x2040, 3000000, 10000000, 562000, 191000, 20000, 382000, 1, 1, false, false},
    {GENUS_NO_CHANNEL, 6, 0x2048, 5000000, 20000000, 1062000, 191000, 20000, 382000, 2, 1, true, true},
    {3, 3, 0x2050, 8000000, 20000000, 1062000, 191000, 20000, 382000, 2, 1, true, false},
};
static const uint8_t SUBJECTS[][8] = {{9, 9, 9, 9, 1, 1, 1, 1}, {4, 2, 3, 4, 5, 6, 7, 8}};
static const genus_block BLOCKS[] = {{0x2040, 0x3FF0, 2}, {0x2080, 0x3F80, 0}, {0x2010, 0x3FFF, 0}};

static const genus_known KNOWN[] = {{0x2040, {1, 2, 3}}, {0x2081, {4, 5, 6}}};

static genus_config configs[NODES];
static genus_node nodes[NODES];
static genus_frame mailboxes[NODES][2];
static bool is_loaded[NODES][2];
static unsigned long loads;
static unsigned long events;
static unsigned long notices;
static unsigned long classes;
static uint32_t sum; /* of everything that is read, so that no read is left out */
static uint32_t digest = 2166136261U; /* FNV-1a of all that the nodes do, to compare processors */

static void add(uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        digest = (digest ^ ((value >> (8 * i)) & 0xFFU)) * 16777619U;
    }
}

static void load(void *context, uint8_t mailbox, const genus_frame *frame)
{
    const int index = *(const int *)context;
    loads++;
    add((uint32_t)index * 2U + mailbox);
    is_loaded[index][mailbox] = frame != NULL;
    if (frame != NULL) {
        if (frame->size > (genus_is_fd(frame) ? GENUS_DATA_BYTES : 8) || frame->id >> 29 != 0U) {
            abort();
        }
        mailboxes[index][mailbox] = *frame;
        add(frame->id);
        for (uint8_t i = 0; i < frame->size; i++) {
            add(frame->data[i]);
        }
    }
}

static bool on_event(void *context, const genus_received *event)
{
    (void)context;
    events++;
    add(event->etag);
    add(event->size);
    for (uint16_t i = 0; i < event->size; i++) {
        sum += event->payload[i];
    }
    return (event->etag & 8U) == 0U;
}

static void on_notice(void *context, const genus_notice *notice)
{
    const int index = *(const int *)context;
    static const uint8_t payload[14] = {0};
    notices++;
    add((uint32_t)notice->kind);
    add((uint32_t)notice->channel << 16 | notice->node);
    add((uint32_t)notice->count << 16 | notice->etag);
    add((uint32_t)((uint64_t)notice->time >> 32));
    add((uint32_t)notice->time);
    if (notice->kind == GENUS_NOTICE_SENT && notice->channel < 4U) { /* programs publish from callbacks */
        (void)genus_node_publish(&nodes[index], (uint8_t)(notices % 5U), 0x2022, payload, 1U + (notices % 14U), NULL,
                                 nodes[index].now);
    }
}

#if GENUS_WITH_LATE
static void on_class(void *context, const uint8_t *answer, uint16_t size)
{
    (void)context;
    classes++;
    for (uint16_t i = 0; i < size; i++) {
        sum += answer[i];
    }
}
#endif

static uint8_t layout_byte(void *context, uint8_t channel, uint16_t index)
{
    (void)context;
    if (index >= CHANNELS[channel].layout_size) {
        abort();
    }
    return (uint8_t)(index * 7U);
}

static int indices[NODES] = {0, 1, 2};

static void set_up(void)
{
    for (int i = 0; i < NODES; i++) {
        genus_config *const config = &configs[i];
        memset(config, 0, sizeof *config);
        memcpy(config->uid, "\x12\x34\x56\x78\x9A\xBC\xDE", 7U);
        config->uid[7] = (uint8_t)(i + 1);
        config->number = (uint8_t)(i == 1 ? 0 : 3 + i);
        config->is_synchronised = i != 2;
        config->bit_ns = 1000;
#if GENUS_FD
        config->data_bit_ns = 250;
#endif
        config->clock.period_ns = 20000000;
        config->clock.drift_ppm = 100;
        config->clock.wander_ppm = 10;
        config->clock.granularity_ns = 100;
        config->clock.bit_ns = 1000;
        config->channels = CHANNELS;
        config->channel_count = 4;
        config->slots = SLOTS;
        config->slot_count = GENUS_WITH_CALENDAR ? 4 : 0;
        config->subjects = SUBJECTS;
        config->subject_count = 2;
        config->blocks = BLOCKS;
        config->block_count = 3;
        config->known = KNOWN;
        config->known_count = 2;
        config->calls = (genus_callbacks){.load = load, .on_event = on_event, .on_notice = on_notice};
        config->calls.layout_byte = layout_byte;
#if GENUS_WITH_LATE
        config->calls.on_class = on_class;
#endif
        config->context = &indices[i];
        memset(is_loaded[i], 0, sizeof is_loaded[i]);
        if (!genus_node_init(&nodes[i], config)) {
            abort();
        }
        genus_node_start(&nodes[i], 1000);
        for (uint8_t each = 0; each < 4U; each++) {
            genus_node_announce(&nodes[i], each, 2000);
        }
        genus_node_subscribe(&nodes[i], 0, 3000);
        genus_node_subscribe(&nodes[i], 1, 3000);
    }
}

/* Wake a node as often as it asks for until an instant; it must make progress. */
static void wake(genus_node *node, genus_time now)
{
    int wakes = 0;
    genus_time due = genus_node_wake_at(node);
    while (due <= now) {
        genus_node_wake(node, due > node->now ? due : node->now);
        due = genus_node_wake_at(node);
        if (++wakes > 100000) {
            fprintf(stderr, "the node asks again and again to wake at %lld\n", (long long)due);
            abort();
        }
    }
}

/* One thing happens to a node: `op` says what, `frame` is there for what is received. */
static void step(int index, uint8_t op, const genus_frame *frame, genus_time now)
{
    genus_node *const node = &nodes[index];
    static const uint8_t payload[40] = {0x1F, 1, 2, 3};
    const uint8_t mailbox = (uint8_t)(op & 1U);
    wake(node, now);
    switch (op >> 4) {
    case 0:
        (void)genus_node_publish(node, (uint8_t)(op & 3U), (uint16_t)frame->id, payload, frame->data[0] % 41U, NULL, now);
        break;
    case 1:
    case 2:
    case 3:
        if (is_loaded[index][mailbox]) {
            const genus_frame sent = mailboxes[index][mailbox];
            is_loaded[index][mailbox] = false;
            genus_node_sent(node, &sent, now);
        }
        break;
    case 4:
        if (is_loaded[index][mailbox]) {
            const genus_frame failed = mailboxes[index][mailbox];
            genus_node_failed(node, &failed, now);
        } else {
            genus_node_lost(node, now);
        }
        break;
    case 5:
        if (op == 0x50U) {
            genus_node_bus_off(node, now);
            memset(is_loaded[index], 0, sizeof is_loaded[index]);
            genus_node_bus_on(node, now + 1);
        } else if (op < 0x54U) {
            genus_node_error_passive(node, mailbox != 0U, now);
        } else {
            genus_node_lost(node, now);
        }
        break;
    default:
        genus_node_receive(node, frame, now);
        break;
    }
}

#ifdef FUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    genus_time now = 10000;
    set_up();
    while (size >= 15U) {
        genus_frame frame;
        uint32_t id;
        memcpy(&id, &data[1], 4U);
        memset(&frame, 0, sizeof frame);
        frame.id = id & 0x1FFFFFFFU;
        frame.size = data[5] % (GENUS_DATA_BYTES + 4U); /* also longer ones, which are refused */
        genus_set_fd(&frame, frame.size > 8U);
        memcpy(frame.data, &data[6], 8U);
        now += (genus_time)1 << (data[14] % 32U);
        for (int i = 0; i < NODES; i++) {
            step(i, data[0], &frame, now);
        }
        data += 15;
        size -= 15U;
    }
    return 0;
}
#else

static uint64_t state;

static uint32_t draw(uint32_t range)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 16) % range);
}

static uint16_t draw_etag(void)
{
    static const uint16_t known[] = {0x2010, 0x2020, 0x2030, 0x2040, 0x2042, 0x2048, 0x2081, 0x20FF, 0x2050};
    return draw(8U) == 0U ? (uint16_t)draw(0x4000U) : known[draw(9U)];
}

/* A message of the middleware with its priority and length; its data are random, or those of the tables. */
static void draw_message(genus_frame *frame, genus_time now)
{
    static const uint8_t priority[15] = {252, 252, 253, 252, 252, 251, 253, 251, 251, 251, 251, 253, 254, 251, 251};
    static uint8_t sequence;
    const uint8_t drawn = (uint8_t)draw(15U);
    const uint8_t etag = ((drawn == 8U) || (drawn == 9U)) && draw(20U) != 0U ? 4U : drawn;
    const bool is_brokers = etag == 0U || etag == 3U || etag == 4U || etag == 10U || etag == 12U;
    const uint8_t node = (uint8_t)(is_brokers ? 127U : 1U + draw(12U));
    frame->id = genus_identifier(priority[etag], etag == 0U && draw(4U) == 0U ? (uint8_t)draw(20U) : node, etag);
    frame->size = etag == 1U ? 0U : (etag == 8U ? 2U : 8U);
    if (etag == 5U || etag == 0U) {
        memcpy(frame->data, configs[draw(NODES)].uid, 8U);
        frame->data[7] = (uint8_t)(draw(2U) == 0U ? frame->data[7] : 3U + draw(16U));
    } else if (etag == 4U) {
        static uint32_t replies; /* both halves of a reply, one after the other */
        static uint8_t to;
        const genus_channel *const channel = &CHANNELS[(replies / 2U) % 4U];
        const uint16_t supplied = draw(20U) == 0U ? 0U : channel->etag;
        to = replies % 2U == 0U ? nodes[draw(NODES)].number : to;
        frame->data[0] = to;
        frame->data[1] = (uint8_t)((draw(3U) == 0U ? frame->data[1] & 0xFEU : 0xC0U) | (replies % 2U));
        frame->data[2] = (uint8_t)(supplied >> 8);
        frame->data[3] = (uint8_t)supplied;
        memcpy(&frame->data[4], &channel->subject[(replies % 2U) * 4U], 4U);
        replies++;
    } else if (etag == 6U || etag == 7U || (etag == 13U && draw(4U) == 0U)) {
        const uint16_t about = draw_etag();
        frame->data[0] = (uint8_t)((about >> 8) | (draw(4U) == 0U ? 0x80U : 0U));
        frame->data[1] = (uint8_t)about;
    } else if (etag == 11U) {
        const uint16_t about = CHANNELS[draw(4U)].etag;
        memset(frame->data, 0, 6U);
        frame->data[0] = (uint8_t)(1U + draw(7U));
        frame->data[1] = draw(3U) == 0U ? 0U : nodes[draw(NODES)].number;
        frame->data[6] = (uint8_t)(about >> 8);
        frame->data[7] = (uint8_t)about;
    } else if (etag == 8U) {
        frame->id = genus_identifier(251, 1, 8);
        frame->data[0] = ++sequence;
        frame->data[1] = 0U;
    } else if (etag == 9U) {
        const uint64_t time = (uint64_t)now + (draw(4U) == 0U ? draw(100000U) : 0U);
        frame->id = genus_identifier(251, 1, 9);
        frame->data[0] = sequence;
        for (int i = 1; i < 8; i++) {
            frame->data[i] = (uint8_t)(time >> (8 * (7 - i)));
        }
    } else {
        /* random data */
    }
}

static uint8_t transfer[60]; /* of which the frames come one after the other */
static uint16_t transfer_size;
static uint16_t transfer_position;
static uint32_t transfer_id;

/* Begin a transfer: the answer to a question of a node, or an event in several frames. */
static void begin_transfer(void)
{
    static uint8_t number;
    transfer_position = 0U;
    transfer_size = (uint16_t)(3U + draw(57U));
    for (uint16_t i = 0; i < transfer_size; i++) {
        transfer[i] = (uint8_t)draw(256U);
    }
    if (draw(2U) == 0U) {
        transfer_id = genus_identifier(254, 127, 12);
        transfer[0] = nodes[draw(NODES)].number;
        transfer[1] = (uint8_t)(number++ / 8U);
        transfer[2] = 6U;
    } else {
        transfer_id = genus_identifier((uint8_t)draw(256U), (uint8_t)(1U + draw(12U)), draw_etag());
    }
}

static void draw_segment(genus_frame *frame)
{
    if (transfer_position >= genus_segment_count(transfer_size)) {
        begin_transfer();
    }
    frame->id = transfer_id;
    frame->size = genus_segment(transfer, transfer_size, (uint8_t)transfer_size, transfer_position, frame->data);
    transfer_position++;
}

static void draw_frame(genus_frame *frame, genus_time now)
{
    memset(frame, 0, sizeof *frame);
    for (int i = 0; i < GENUS_DATA_BYTES; i++) {
        frame->data[i] = (uint8_t)draw(256U);
    }
    switch (draw(5U)) {
    case 4:
        draw_segment(frame);
        break;
    case 0:
        frame->id = draw(0x20000000U);
        frame->size = (uint8_t)draw(GENUS_DATA_BYTES + 4U);
        break;
    case 1:
        frame->id = genus_identifier((uint8_t)(draw(3U) == 0U ? 0U : draw(256U)), (uint8_t)(1U + draw(12U)), draw_etag());
        frame->size = (uint8_t)draw(GENUS_DATA_BYTES + 1U);
        break;
    default:
        draw_message(frame, now);
        break;
    }
    if (draw(10U) == 0U) { /* damage */
        frame->id ^= (uint32_t)1U << draw(29U);
        frame->size = (uint8_t)draw(GENUS_DATA_BYTES + 1U);
    }
#if GENUS_FD
    genus_set_fd(frame, (frame->size > 8U) || (genus_etag_of(frame->id) >= GENUS_RESERVED_ETAGS) || (draw(50U) == 0U));
#endif
}

/* A master whose clock is a little faster than the nodes' sends the time; now and then it is wrong, or lost. */
static void send_time(genus_time now)
{
    static uint8_t sequence;
    const uint64_t time = (uint64_t)(now + (now / 20000) + (draw(200U) == 0U ? 100000000 : 0));
    genus_frame frame;
    memset(&frame, 0, sizeof frame);
    frame.id = genus_identifier(251, 1, 8);
    frame.size = 2U;
    frame.data[0] = ++sequence;
    frame.data[1] = (uint8_t)(time >> 56);
    for (int i = 0; i < NODES; i++) {
        step(i, 0xFFU, &frame, now);
    }
    frame.id = genus_identifier(251, 1, 9);
    frame.size = 8U;
    for (int i = 1; i < 8; i++) {
        frame.data[i] = (uint8_t)(time >> (8 * (7 - i)));
    }
    for (int i = 0; i < NODES && draw(50U) != 0U; i++) {
        step(i, 0xFFU, &frame, now + 100);
    }
}

static void report(unsigned long received)
{
    printf("%lu frames, %lu loads, %lu events, %lu notices, %lu classes, %lu malformed, digest %08lx\n", received, loads,
           events, notices, classes, (unsigned long)nodes[0].drops.malformed,
           (unsigned long)(digest ^ (sum & 0U)));
}

static void run(unsigned long frames, unsigned long seed)
{
    genus_time now = 10000;
    genus_time sync_at = now;
    unsigned long received = 0;
    state = 88172645463325252ULL + seed;
    set_up();
    while (received < frames) {
        genus_frame frame;
        const uint8_t op = (uint8_t)draw(256U);
        now += 1000 + (genus_time)draw(draw(500U) == 0U ? 50000000U : 200000U);
        if (now >= sync_at) {
            sync_at = now + 20000000;
            send_time(now);
        }
        draw_frame(&frame, now);
        received += op >= 0x60U;
        for (int i = 0; i < NODES; i++) { /* a stamp may be a little older than the timer before it */
            step(i, op, &frame, now - (genus_time)draw(900U));
        }
    }
    report(received);
}

#ifdef __AVR__
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>

static int put(char letter, FILE *stream)
{
    (void)stream;
    while ((UCSR0A & (1 << UDRE0)) == 0) {
    }
    UDR0 = (uint8_t)letter;
    return 0;
}

static FILE serial = FDEV_SETUP_STREAM(put, NULL, _FDEV_SETUP_WRITE);

int main(void)
{
    UCSR0B = 1 << TXEN0;
    stdout = &serial;
    run(FRAMES, 1UL);
    cli();
    sleep_mode(); /* the simulator ends here */
    for (;;) {
    }
}
#else
int main(int argc, char **argv)
{
    run(argc > 1 ? strtoul(argv[1], NULL, 10) : 10000UL, argc > 2 ? strtoul(argv[2], NULL, 10) : 0UL);
    return 0;
}
#endif
#endif
