/* SPDX-License-Identifier: Apache-2.0 */
/* Segmentation of payloads that are longer than a frame, as docs/wire.md says.
 *
 * The splitter keeps nothing: it makes any segment of a payload from the payload alone. A receiver
 * has one `genus_transfer` for each pair of sender and event tag, with a buffer of the caller.
 * Events are in frames of GENUS_DATA_BYTES, answers of the middleware in classic frames. Longer
 * frames are refused with GENUS_SEGMENT_FD. */
#ifndef GENUS_SEGMENTS_H
#define GENUS_SEGMENTS_H

#include "genus_frame.h"

#ifdef __cplusplus
extern "C" {
#endif

/* With CAN FD, an event of 8 bytes or more in segments has so many bytes of padding, at most. */
#define GENUS_PADDING_BYTES (GENUS_FD ? 16U : 0U)

/* Whether a frame is the first of an event in segments. */
static inline bool genus_is_first_segment(const genus_frame *frame)
{
    return (frame->size > 0U) && ((frame->data[frame->size - 1U] & 0x80U) != 0U);
}

/* A byte of a payload that is not in RAM as a whole, for example of a table in flash. */
typedef uint8_t (*genus_byte_at)(const void *source, uint16_t index);

/* How many segments an event of `size` bytes takes. */
uint16_t genus_segment_count(uint16_t size);

/* The length of the last of them. */
uint8_t genus_last_segment(uint16_t size);

/* Write segment `position` of an event to `data`; returns its length, 1 to GENUS_DATA_BYTES, or 0
 * if there is no such. Of `transfer` five bits count; it goes up by one with each transfer. */
uint8_t genus_segment(const uint8_t *payload, uint16_t size, uint8_t transfer, uint16_t position,
                      uint8_t data[GENUS_DATA_BYTES]);

/* The same two for an answer of the middleware, which is read byte by byte, in classic frames. */
uint16_t genus_classic_count(uint16_t size);
uint8_t genus_segment_from(genus_byte_at read, const void *source, uint16_t size, uint8_t transfer,
                           uint16_t position, uint8_t data[GENUS_FRAME_BYTES]);

/* What became of a segment; all from GENUS_SEGMENT_DUPLICATE on are counted by reason. */
typedef enum {
    GENUS_SEGMENT_KEPT,
    GENUS_SEGMENT_COMPLETE,
    GENUS_SEGMENT_DUPLICATE,
    GENUS_SEGMENT_EMPTY,
    GENUS_SEGMENT_FD,
    GENUS_SEGMENT_MISSING_START,
    GENUS_SEGMENT_REST_OF_LOST,
    GENUS_SEGMENT_MISSING_FRAME,
    GENUS_SEGMENT_MISSING_END,
    GENUS_SEGMENT_WRONG_TOGGLE,
    GENUS_SEGMENT_WRONG_LENGTH,
    GENUS_SEGMENT_WRONG_CRC,
    GENUS_SEGMENT_TOO_LONG,
    GENUS_SEGMENT_TIMED_OUT,
#if GENUS_FD
    GENUS_SEGMENT_WRONG_PADDING,
#endif
    GENUS_SEGMENT_RESULTS
} genus_segment_result;

typedef struct {
    uint16_t of[GENUS_SEGMENT_RESULTS]; /* by result; they wrap around */
} genus_segment_counts;

/* State: one transfer of one sender. */
typedef struct {
    uint8_t *buffer;   /* for the payload, its padding and the two bytes of its CRC */
    uint16_t capacity; /* of the buffer, at least 7 */
    uint16_t size;     /* of the payload, once it is complete */
    genus_time at;     /* when the last frame came */
    uint8_t expected;  /* toggle and number of the next frame */
    uint8_t last_size;
    uint8_t last[GENUS_DATA_BYTES];
#if GENUS_FD
    uint8_t frame_size; /* of all its frames but the last: 8 or 64 */
#endif
    bool is_known; /* whether a frame came */
    bool is_open;  /* whether a transfer is under way */
    bool is_lost;  /* whether the last one was lost */
} genus_transfer;

/* Begin to receive from a sender. */
void genus_transfer_init(genus_transfer *transfer, uint8_t *buffer, uint16_t capacity);

/* Receive a segment. After GENUS_SEGMENT_COMPLETE the payload is in the buffer, with `size` bytes,
 * until the next call. A transfer that is silent for longer than `timeout` is lost. */
genus_segment_result genus_transfer_receive(genus_transfer *transfer, const uint8_t *data,
                                            uint8_t size, genus_time now, genus_time timeout,
                                            genus_segment_counts *counts);

#ifdef __cplusplus
}
#endif

#endif
