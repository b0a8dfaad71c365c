/* SPDX-License-Identifier: Apache-2.0 */
/* CAN frames of Genus: 29-bit identifiers of 8 bits priority, 7 bits node, 14 bits event tag. The
 * layout is that of docs/wire.md. Frames of 11-bit identifiers are not for this runtime.
 *
 * With GENUS_DATA_BYTES 64 the bus is CAN FD: events are in FD frames with bit rate switch, and the
 * middleware's messages in classic ones. */
#ifndef GENUS_FRAME_H
#define GENUS_FRAME_H

#include "genus_settings.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GENUS_FRAME_BYTES 8U
#if (GENUS_DATA_BYTES != 8) && (GENUS_DATA_BYTES != 64)
#error "GENUS_DATA_BYTES is 8, or 64 with CAN FD"
#endif
#define GENUS_FD (GENUS_DATA_BYTES > 8)
#define GENUS_ETAG_MASK 0x3FFFU
#define GENUS_RESERVED_ETAGS 128U
#define GENUS_FIRST_NODE 1U
#define GENUS_LAST_NODE 126U
#define GENUS_BROKER_NODE 127U

#define GENUS_PRIORITY_HARD 0U
#define GENUS_PRIORITY_SOFT_FIRST 1U
#define GENUS_PRIORITY_SOFT_LAST 250U
#define GENUS_PRIORITY_SYSTEM 251U
#define GENUS_PRIORITY_REPLY 252U
#define GENUS_PRIORITY_PROTOCOL 253U
#define GENUS_PRIORITY_NONE 254U
#define GENUS_PRIORITY_BULK 255U

/* Event tags of the middleware. */
#define GENUS_ETAG_SSI 0U
#define GENUS_ETAG_RSI 1U
#define GENUS_ETAG_GET_ETAG 2U
#define GENUS_ETAG_SUPPLY 4U
#define GENUS_ETAG_CLAIM 5U
#define GENUS_ETAG_ANNOUNCE 6U
#define GENUS_ETAG_REPORT 7U
#define GENUS_ETAG_SYNC 8U
#define GENUS_ETAG_FOLLOW_UP 9U
#define GENUS_ETAG_BROKER 10U
#define GENUS_ETAG_QUESTION 11U
#define GENUS_ETAG_ANSWER 12U
#define GENUS_ETAG_SIGNATURE 13U
#define GENUS_ETAG_OBJECTION 14U

/* A time in nanoseconds: of the node's own clock, or global time. */
typedef int64_t genus_time;

#define GENUS_NEVER INT64_MAX
#define GENUS_MS ((genus_time)1000000)

/* A data frame with a 29-bit identifier; `size` is 0 to 8, or up to 64 if it is CAN FD. */
typedef struct {
    uint32_t id;
    uint8_t size;
#if GENUS_FD
    bool is_fd;
#endif
    uint8_t data[GENUS_DATA_BYTES];
} genus_frame;

/* Say whether a frame is CAN FD; frames of a classic bus never are. */
static inline void genus_set_fd(genus_frame *frame, bool is_fd)
{
#if GENUS_FD
    frame->is_fd = is_fd;
#else
    (void)frame;
    (void)is_fd;
#endif
}

static inline bool genus_is_fd(const genus_frame *frame)
{
#if GENUS_FD
    return frame->is_fd;
#else
    (void)frame;
    return false;
#endif
}

/* The data length of an event's frame that holds `size` bytes: CAN FD has only some above 8. */
static inline uint8_t genus_padded_size(uint8_t size)
{
#if GENUS_FD
    uint8_t padded = size;
    if (size > 32U) {
        padded = (size > 48U) ? 64U : 48U;
    } else if (size > 24U) {
        padded = 32U;
    } else if (size > 8U) {
        padded = (uint8_t)((size + 3U) & 0xFCU);
    } else {
        /* all lengths */
    }
    return padded;
#else
    return size;
#endif
}

static inline uint32_t genus_identifier(uint8_t priority, uint8_t node, uint16_t etag)
{
    return ((uint32_t)priority << 21) | ((uint32_t)node << 14) | (uint32_t)etag;
}

static inline uint8_t genus_priority_of(uint32_t id)
{
    return (uint8_t)((id >> 21) & 0xFFU);
}

static inline uint8_t genus_node_of(uint32_t id)
{
    return (uint8_t)((id >> 14) & 0x7FU);
}

static inline uint16_t genus_etag_of(uint32_t id)
{
    return (uint16_t)(id & GENUS_ETAG_MASK);
}

/* The worst-case length of a classic frame with this many bytes of data, in bits, with the
 * intermission. */
static inline uint16_t genus_frame_bits(uint8_t size)
{
    return (uint16_t)(80U + (10U * (uint16_t)size));
}

#ifdef __cplusplus
}
#endif

#endif
