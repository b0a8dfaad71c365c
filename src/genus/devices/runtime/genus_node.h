/* SPDX-License-Identifier: Apache-2.0 */
/* A node of a Genus CAN bus, as a machine without I/O: frames and times in, frames and calls out.
 *
 * It claims a number (or gets one from the broker), binds and announces its channels, publishes
 * hard events in the slots of the calendar, soft ones by their deadlines and others when the bus is
 * free, reports what it sent, follows the time service, and receives events. It makes the decisions
 * of the Python node; docs/devices-node.md says what it leaves out:
 *   - it is never the time master, and never a broker;
 *   - it reads no catalog: event tags, sizes and slots come from the tables of `genus_config`;
 *   - it compares types that others sign with its tables, but no layouts, and objects to nothing;
 *   - its own events are not delivered to itself;
 *   - a request for an event tag that no broker answered is repeated when a broker is heard again;
 *   - it has no driver queue: the driver has two mailboxes that can be loaded again at any time.
 *
 * All state is in one `genus_node`, whose features and capacities are macros of genus_settings.h.
 * Nothing is allocated, nothing blocks. A driver calls the inputs with readings of one clock that
 * is never set back, in  nanoseconds (0 to 2^60), from one context (an interrupt or the main loop,
 * not both at once). It  calls `genus_node_wake` when `genus_node_wake_at` has come, with all
 * frames before that received.  Callbacks may call `genus_node_publish`, and no other input. */
#ifndef GENUS_NODE_H
#define GENUS_NODE_H

#include "genus_clock.h"
#include "genus_frame.h"
#include "genus_segments.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -- capacities that follow from those of genus_settings.h ------------------------------------- */

#define GENUS_REQUESTS (GENUS_SUBJECTS + GENUS_CHANNELS)
/* A claim twice, four requests, questions, an answer and an empty report; three messages of every
 * channel. */
#define GENUS_MESSAGES                                                                             \
    ((4U * GENUS_CHANNELS) + ((GENUS_WITH_LATE != 0) ? GENUS_QUESTIONS : 0U) + 9U)
#define GENUS_REPLACED 4U
#define GENUS_LAYOUTS 4U /* questions for layouts that wait; nodes repeat those that are dropped */
#define GENUS_NO_CHANNEL 0xFFU

/* The mailboxes of the controller: hard frames, and all others. The frame that would win is sent
 * first. */
#define GENUS_TIME_TRIGGERED 0U
#define GENUS_EVENT_TRIGGERED 1U

/* -- tables ------------------------------------------------------------------------------------ */

#define GENUS_QOS_NONE 0U
#define GENUS_QOS_SOFT 1U
#define GENUS_QOS_HARD 2U

/* A channel that the node publishes. */
typedef struct {
    uint8_t subject[8]; /* the subject uid of its type, big-endian */
    uint16_t etag;      /* of its type, without presence bits; 0: as the broker says */
    uint8_t width;      /* low bits of the event tag that are presence bits of tagged attributes */
    uint8_t qos;        /* GENUS_QOS_NONE, _SOFT or _HARD */
    bool is_bulk;       /* without real time, behind all others */
    uint16_t largest;   /* bytes of its largest payload; 0 if there is no limit */
    uint32_t digest;    /* 24 bits of its layout, for the signature */
    uint16_t layout_size;  /* bytes of the layout that `layout_byte` gives; 0: questions for it are
                              not answered */
    genus_time span_ns;    /* hard: the period; soft: the deadline */
    genus_time expires_ns; /* soft: after this time it is not sent any more; 0: never */
} genus_channel;

/* A slot of the calendar: one of the node's own, or one that it receives events in. */
typedef struct {
    uint8_t channel; /* of this node; GENUS_NO_CHANNEL if it is a slot of another one */
    uint8_t number;  /* the node that sends in it */
    uint16_t etag;   /* of its events, without presence bits */
    genus_time offset_ns;
    genus_time period_ns;
    genus_time length_ns;
    genus_time wait_ns;
    genus_time gap_ns;
    genus_time closes_ns; /* from its start to the last instant at which a frame can start */
    uint8_t frames;
    uint8_t omissions;
    bool is_sporadic;
    bool is_planned_passive; /* long enough for a sender that is error passive */
} genus_slot;

/* Event tags that the node wants: (etag & mask) == value. Those of one family have the same
 * `width`. */
typedef struct {
    uint16_t value;
    uint16_t mask;
    uint8_t width;
} genus_block;

/* A class that the firmware knows, to compare with the signatures of its publishers. */
typedef struct {
    uint16_t etag;      /* without presence bits */
    uint8_t subject[3]; /* the leading bytes of its subject uid */
} genus_known;

/* -- what the node tells ----------------------------------------------------------------------- */

typedef enum {
    GENUS_NOTICE_CONFIGURED,      /* the node has the number `node` */
    GENUS_NOTICE_NUMBER_LOST,     /* another node has it; a new one is asked for */
    GENUS_NOTICE_NUMBER_CONFLICT, /* another claims it; `count` 1 if with this node's uid */
    GENUS_NOTICE_NO_NUMBER_FREE,
    GENUS_NOTICE_READY,     /* events of `channel` can be published */
    GENUS_NOTICE_NOT_BOUND, /* `channel` or subject cannot be used; `count` is a genus_refusal */
    GENUS_NOTICE_WRONG_CATALOG,   /* `count` objects to `channel`; or events of `node` are others */
    GENUS_NOTICE_SENT,            /* event `reference` of `channel` was sent, at `time` */
    GENUS_NOTICE_DEADLINE_MISSED, /* not sent by its deadline `time`; soft: it still will be */
    GENUS_NOTICE_EXPIRED,         /* expired at `time`; `count` 1: on the wire then, and sent */
    GENUS_NOTICE_NOT_SENT,        /* it was given up after `count` attempts, or with the number */
    GENUS_NOTICE_MAYBE_SENT,      /* hard, and being sent when the number or channel was given up */
    GENUS_NOTICE_EVENT_MISSING,   /* none of `etag` from `node` came by its deadline `time` */
    GENUS_NOTICE_EVENTS_LOST,     /* `count` events of `etag` from `node` did not come */
    GENUS_NOTICE_HARD_STOPPED, /* the clock is not good enough for slots; `time` is its precision */
    GENUS_NOTICE_HARD_RESUMED,
    GENUS_NOTICE_ERROR_PASSIVE, /* too many errors; `count` 1 if slots are planned for that */
    GENUS_NOTICE_ERROR_ACTIVE,
    GENUS_NOTICE_OFF_THE_BUS,
    GENUS_NOTICE_CLASS_UNKNOWN /* no broker could say what class `etag` is */
} genus_notice_kind;

typedef enum {
    GENUS_REFUSED_UNKNOWN = 1, /* the broker does not know the subject */
    GENUS_REFUSED_KIND = 2,    /* it is a kind, without an event tag */
    GENUS_REFUSED_EXHAUSTED = 3,
    GENUS_REFUSED_ETAG,  /* the broker has another event tag than this firmware */
    GENUS_REFUSED_CLASS, /* its first publisher announced another quality of service, or format */
    GENUS_REFUSED_OBJECTION,  /* the broker has another catalog */
    GENUS_REFUSED_UNANSWERED, /* no broker answered yet */
    GENUS_REFUSED_WITHDRAWN
} genus_refusal;

typedef struct {
    genus_notice_kind kind;
    uint8_t channel; /* GENUS_NO_CHANNEL if it is about none */
    uint8_t node;
    uint16_t etag;
    uint16_t reference;
    uint16_t count;
    genus_time time;
} genus_notice;

/* An event that was received. */
typedef struct {
    uint16_t etag; /* with presence bits */
    uint8_t node;
    uint16_t size;
    const uint8_t *payload; /* valid during the call */
} genus_received;

typedef struct {
    /* Put a frame into a mailbox, in place of what was there; NULL empties it. A frame that is on
     * the wire is not stopped. */
    void (*load)(void *context, uint8_t mailbox, const genus_frame *frame);
    /* An event came; returns false if its class is not known, and the broker is to be asked. */
    bool (*on_event)(void *context, const genus_received *event);
    /* What a publisher or subscriber has to know; may be NULL. */
    void (*on_notice)(void *context, const genus_notice *notice);
#if GENUS_WITH_LATE
    /* The broker's answer to a question for a class (docs/wire.md); may be NULL: none is
     * asked. */
    void (*on_class)(void *context, const uint8_t *answer, uint16_t size);
#endif
    /* A byte of the layout of a channel, as it is sent; NULL without layouts. */
    uint8_t (*layout_byte)(void *context, uint8_t channel, uint16_t index);
    /* A random number below `range`; NULL: a generator of the node, seeded with its uid. */
    uint32_t (*random)(void *context, uint32_t range);
} genus_callbacks;

/* What a node is; it is not copied and must stay valid. */
typedef struct {
    uint8_t uid[8];       /* big-endian, not 0, unique */
    uint8_t number;       /* planned; 0: the broker gives one */
    bool is_synchronised; /* false: the node's clock is global time */
    uint32_t bit_ns;
#if GENUS_FD
    uint32_t data_bit_ns; /* of the data of CAN FD frames */
#endif
    genus_clock_settings clock;
    const genus_channel *channels;
    uint8_t channel_count;
    const genus_slot *slots;
    uint8_t slot_count;
    const uint8_t (*subjects)[8]; /* subject uids of the types it subscribes to */
    uint8_t subject_count;
    const genus_block *blocks;
    uint8_t block_count;
    const genus_known *known; /* may be NULL: signatures are not compared */
    uint8_t known_count;
    genus_callbacks calls;
    void *context;
} genus_config;

/* -- state ------------------------------------------------------------------------------------- */

/* Of a channel. */
#define GENUS_STATE_IDLE 0U
#define GENUS_STATE_BINDING 1U
#define GENUS_STATE_READY 2U
#define GENUS_STATE_REFUSED 3U

typedef struct {
    uint32_t published;
    uint32_t sent;
    uint32_t missed;
    uint32_t expired;
    uint32_t failed;
    uint32_t replaced; /* hard events that a newer one replaced before their slot */
    uint32_t unknown;  /* of which it is not known whether they were sent */
} genus_tx_counts;

/* State: a channel of this node. */
typedef struct {
    genus_tx_counts counts;
    genus_time opened_at;
    genus_time published_at; /* of a sporadic event, in global time */
    uint32_t started;        /* the event of which some frames are sent; 0: none */
    uint16_t etag;
    uint8_t state;
    uint8_t refusal;
    uint8_t sequence;
    uint8_t transfer;
    uint8_t waiting;
    uint8_t slot;      /* GENUS_NO_CHANNEL if it is not in the calendar */
    uint8_t announced; /* in this order, from 1 on; 0: not */
    bool is_segmented;
    bool is_reporting;
    bool is_signing;
    bool has_published_at;
    bool has_objection;
} genus_tx_channel;

/* State: a message of the middleware that waits to be sent. */
typedef struct {
    uint32_t serial; /* 0 if unused; also the order */
    genus_frame frame;
    uint8_t kind;
    uint8_t index;
    uint8_t follow;
} genus_message;

/* State: a soft or other event that waits to be sent. */
typedef struct {
    uint32_t serial; /* 0 if unused */
    uint32_t order;
    genus_time deadline; /* 0: not soft */
    genus_time expires;
    genus_time start_by;
    uint16_t etag;
    uint16_t size;
    uint16_t position;
    uint16_t reference;
    uint8_t channel;
    uint8_t priority;
    bool is_missed;
    bool is_expired; /* its last frame may be on the wire, until `start_by` */
    uint8_t payload[GENUS_EVENT_BYTES];
} genus_outgoing;

/* What a frame in the mailbox belongs to; it may be on the wire when it is gone. */
typedef struct {
    genus_frame frame;
    uint32_t serial;
    uint8_t channel; /* GENUS_NO_CHANNEL for a message */
    bool is_last;    /* of its event */
} genus_loaded;

typedef struct {
    genus_message messages[GENUS_MESSAGES];
    genus_outgoing events[GENUS_EVENTS];
    genus_loaded loaded; /* serial 0: nothing */
    genus_loaded replaced[GENUS_REPLACED];
    uint32_t last_serial;
    uint32_t last_order;
    uint8_t replaced_used;
    bool is_changed;
} genus_queue;

/* State: how a slot is used. */
typedef struct {
    genus_time start;    /* global time of the occurrence that is next, or under way */
    genus_time close_at; /* global time; GENUS_NEVER */
    genus_time written_at;
    genus_time settle_at;  /* global time; GENUS_NEVER */
    genus_time occurrence; /* of which the event is sent, or was received */
    uint32_t order;
    uint16_t etag;
    uint16_t next_etag;
    uint16_t reference;
    uint16_t next_reference;
    uint16_t size; /* of the event that is being sent, or was received; 0: none */
    uint16_t next_size;
    uint16_t position;
    uint8_t node;
    uint8_t attempts;
    uint8_t phase;
    bool is_joined;
    bool is_closed;
    bool is_stopped; /* since it could not be used */
    bool is_overdue; /* its slot is over, but it may be on the wire */
    bool has_occurrence;
    uint8_t payload[GENUS_HARD_BYTES];
    uint8_t next[GENUS_HARD_BYTES]; /* the buffer of a sender */
} genus_slot_use;

/* State: a request for the event tag of a subject. */
typedef struct {
    genus_time retry_at;
    uint32_t message;
    uint32_t order; /* requests are made in this order */
    uint16_t half_etag;
    uint16_t etag; /* of the channel that the broker knows; 0: it was not announced yet */
    uint8_t state;
    uint8_t attempts;
    uint8_t half_flags;
    uint8_t told;
    bool has_half;
    bool is_segmented;
} genus_request;

/* State: what was received from one node with one event tag. */
typedef struct {
    genus_time seen_at;
    uint32_t received;
    uint32_t lost;
    uint32_t reported;
    int32_t unreported;
    uint32_t explained;
    uint16_t etag;
    uint16_t last_size;
    uint16_t last_crc;
    uint8_t last_data[GENUS_FRAME_BYTES];
    uint8_t node;     /* 0 if unused */
    int8_t last;      /* sequence number; -1: none */
    int8_t segmented; /* -1: not known */
    bool has_report;
    bool is_wrong; /* it signed another type than this firmware knows */
} genus_publisher;

typedef struct {
    genus_transfer transfer;
    uint16_t etag;
    uint8_t node; /* 0 if unused */
    uint8_t buffer[GENUS_EVENT_BYTES + GENUS_PADDING_BYTES + 2U];
} genus_reassembly;

/* State: the first event of a class that is asked for, until the answer comes. */
typedef struct {
    genus_time at;
    uint16_t etag;
    uint16_t size; /* 0: none */
    uint8_t node;
    uint8_t payload[(GENUS_LATE_BYTES > 0U) ? GENUS_LATE_BYTES : 1U];
} genus_kept;

/* State: a question for a late class. */
typedef struct {
    genus_time retry_at;
    genus_time timeout_at;
    uint32_t message;
    uint16_t etag;
    uint8_t number;
    uint8_t attempts;
    uint8_t state;
} genus_question;

typedef struct {
    uint32_t malformed;
    uint32_t unknown_etag;   /* not of a block that it wants */
    uint32_t unknown_class;  /* the program does not know the class, nor could it be learnt */
    uint32_t wrong_catalog;  /* of a publisher that signed another type */
    uint32_t unknown_format; /* the publisher did not say yet whether it segments */
    uint32_t repeated;
    uint32_t empty;
    uint32_t outside_slot;
    uint32_t unsynchronised; /* hard, while the clock is not good enough */
    uint32_t too_long;       /* hard, longer than GENUS_HARD_BYTES */
    uint32_t too_many;       /* of a publisher, or a message, for which there was no room */
    uint32_t segmented;      /* in several frames, at a node without GENUS_WITH_SEGMENTS */
} genus_drops;

/* State: a node. Programs may read `number`, `channels[i].state`, counters and drops. */
typedef struct {
    const genus_config *config;
    genus_time now;
    uint8_t number; /* 0: none */
    bool is_up;
    bool needs_broker;
    bool is_inside;
    uint32_t random_state;
#if GENUS_WITH_CALENDAR
    genus_clock clock;
    genus_slot_use slots[GENUS_SLOTS];
#endif
    genus_queue queue;
    genus_tx_channel channels[GENUS_CHANNELS];
    genus_request requests[GENUS_REQUESTS];
    genus_publisher publishers[GENUS_PUBLISHERS];
#if GENUS_WITH_SEGMENTS
    genus_reassembly reassemblies[GENUS_TRANSFERS];
    genus_segment_counts segments;
#endif
#if GENUS_WITH_LATE
    genus_question questions[GENUS_QUESTIONS];
    genus_transfer answer;
    genus_segment_counts answer_segments;
    uint8_t answer_buffer[GENUS_ANSWER_BYTES];
    uint8_t next_question;
#if GENUS_LATE_BYTES > 0
    genus_kept kept;
#endif
#endif
    genus_drops drops;
    /* configuration */
    genus_time retry_at;
    genus_time retry_after;
    genus_time claim_at;
    genus_time defended_at;
    uint32_t claim_message;
    uint8_t claim_failures;
    uint8_t stage;
    bool is_resting;
    bool has_defended;
    bool has_broker;
    uint8_t broker[7]; /* epoch and digest */
    genus_time broker_at;
    uint8_t claimed[16]; /* bits of nodes whose claims came */
    /* binding */
    genus_time announced_at;
    genus_time delay_until;
    genus_time quiet_at;
    bool has_announced_all;
    bool has_asked_broker; /* a broker was heard since one is needed */
    bool has_asked_all;
    /* answers */
    uint8_t layouts[GENUS_LAYOUTS]; /* channels whose layout was asked for, in order */
    uint8_t layouts_waiting;
    uint16_t layout_position;
    uint8_t layout_channel;
    uint8_t layout_transfer;
    uint32_t layout_message;
    genus_time layout_at;
    /* reports */
    genus_time report_at;
    genus_time reported_at;
    bool has_reported;
    bool signs_next;
    /* calendar and errors */
    uint32_t slot_order;
    bool is_running;
    bool has_told_stop;
    bool is_passive;
    bool is_off;
    uint8_t told_errors;
    uint32_t recovery_message;
    uint8_t recovery_frames;
    genus_time recovery_at;
} genus_node;

/* -- calls ------------------------------------------------------------------------------------- */

typedef enum {
    GENUS_PUBLISHED,
    GENUS_PUBLISH_NOT_READY, /* the channel is not bound, or was refused */
    GENUS_PUBLISH_TOO_LONG,
    GENUS_PUBLISH_QUEUE_FULL,
    GENUS_PUBLISH_TOO_SOON /* sporadic: less than a period after the last one */
} genus_publish_result;

/* What an event has of its own; zeros for what the channel says. */
typedef struct {
    genus_time deadline; /* by the node's own clock */
    genus_time expires;
    uint16_t reference; /* comes back in notices */
} genus_publish_options;

/* Prepare a node; returns false if the tables are larger than its capacities, or contradict
 * themselves. */
bool genus_node_init(genus_node *node, const genus_config *config);

/* Join the bus. */
void genus_node_start(genus_node *node, genus_time now);

/* Bind a channel of the tables; GENUS_NOTICE_READY follows. Before or after the start. */
void genus_node_announce(genus_node *node, uint8_t channel, genus_time now);

/* Close a channel: what was published is still sent, then a last report. */
void genus_node_withdraw(genus_node *node, uint8_t channel, genus_time now);

/* Receive events of a subject of the tables. */
void genus_node_subscribe(genus_node *node, uint8_t subject, genus_time now);

/* Publish an event; `etag` gives its presence bits, `options` may be NULL. The sequence number in
 * the payload is set when it is sent. */
genus_publish_result genus_node_publish(genus_node *node, uint8_t channel, uint16_t etag,
                                        const uint8_t *payload, uint16_t size,
                                        const genus_publish_options *options, genus_time now);

/* -- inputs ------------------------------------------------------------------------------------ */

/* A frame of another node has ended. */
void genus_node_receive(genus_node *node, const genus_frame *frame, genus_time now);

/* A frame of this node was sent; its mailbox is empty, or has the frame that was loaded meanwhile.
 */
void genus_node_sent(genus_node *node, const genus_frame *frame, genus_time now);

/* A frame of this node was corrupted; the controller repeats it unless the mailbox is loaded again.
 */
void genus_node_failed(genus_node *node, const genus_frame *frame, genus_time now);

/* Another frame won the bus while one of this node waits, or an error frame ended. Controllers that
 * do not tell may leave it out, or call it after every frame they receive: soft priorities are then
 * renewed less exactly. */
void genus_node_lost(genus_node *node, genus_time now);

/* The controller reached its warning limit (96 errors) or is error passive; or no more. */
void genus_node_error_passive(genus_node *node, bool is_passive, genus_time now);

/* The controller went off the bus, its mailboxes are empty; or is back. */
void genus_node_bus_off(genus_node *node, genus_time now);
void genus_node_bus_on(genus_node *node, genus_time now);

/* When to call `genus_node_wake`; GENUS_NEVER if no timer is set. It changes with every input. */
genus_time genus_node_wake_at(const genus_node *node);
void genus_node_wake(genus_node *node, genus_time now);

/* -- time -------------------------------------------------------------------------------------- */

#if GENUS_WITH_CALENDAR
/* Global time at a reading of the node's clock, the reading at a global time, and a bound on the
 * error. */
genus_time genus_node_global_time(const genus_node *node, genus_time local);
genus_time genus_node_local_time(const genus_node *node, genus_time global);
genus_time genus_node_precision(const genus_node *node, genus_time now);
#endif

#ifdef __cplusplus
}
#endif

#endif
