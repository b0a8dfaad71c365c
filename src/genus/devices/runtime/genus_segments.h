/* Segmentation of payloads that are longer than a frame, as docs/wire.md says; classic CAN only.
 *
 * The splitter keeps nothing: it makes any segment of a payload from the payload alone. A receiver
 * has one `genus_transfer` for each pair of sender and event tag, with a buffer of the caller.
 * Frames of more than 8 bytes (CAN FD) are refused with GENUS_SEGMENT_FD. */
#ifndef GENUS_SEGMENTS_H
#define GENUS_SEGMENTS_H

#include "genus_frame.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A byte of a payload that is not in RAM as a whole, for example of a table in flash. */
typedef uint8_t (*genus_byte_at)(const void *source, uint16_t index);

/* How many segments a payload of `size` bytes takes. */
uint16_t genus_segment_count(uint16_t size);

/* Write segment `position` of a payload to `data`; returns its length, 1 to 8, or 0 if there is no
 * such. Of `transfer` five bits count; it goes up by one with each transfer. */
uint8_t genus_segment(const uint8_t *payload, uint16_t size, uint8_t transfer, uint16_t position,
                      uint8_t data[GENUS_FRAME_BYTES]);

/* The same for a payload that is read byte by byte. */
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
    GENUS_SEGMENT_RESULTS
} genus_segment_result;

typedef struct {
    uint16_t of[GENUS_SEGMENT_RESULTS]; /* by result; they wrap around */
} genus_segment_counts;

/* State: one transfer of one sender. */
typedef struct {
    uint8_t *buffer;   /* for the payload and the two bytes of its CRC */
    uint16_t capacity; /* of the buffer, at least 7 */
    uint16_t size;     /* of the payload, once it is complete */
    genus_time at;     /* when the last frame came */
    uint8_t expected;  /* toggle and number of the next frame */
    uint8_t last_size;
    uint8_t last[GENUS_FRAME_BYTES];
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
