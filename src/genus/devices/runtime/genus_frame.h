/* Classic CAN frames of Genus: 29-bit identifiers of 8 bits priority, 7 bits node, 14 bits event
 * tag. The layout is that of docs/wire.md. Frames of CAN FD and of 11-bit identifiers are not for
 * this runtime. */
#ifndef GENUS_FRAME_H
#define GENUS_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GENUS_FRAME_BYTES 8U
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

/* A data frame with a 29-bit identifier; `size` is 0 to 8. */
typedef struct {
    uint32_t id;
    uint8_t size;
    uint8_t data[GENUS_FRAME_BYTES];
} genus_frame;

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

/* The worst-case length of a frame with this many bytes of data, in bits, with the intermission. */
static inline uint16_t genus_frame_bits(uint8_t size)
{
    return (uint16_t)(80U + (10U * (uint16_t)size));
}

#ifdef __cplusplus
}
#endif

#endif
