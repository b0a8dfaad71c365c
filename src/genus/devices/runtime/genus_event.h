/* SPDX-License-Identifier: Apache-2.0 */
/* Genus on small devices: values of events, the payload codec by tables, and the tests of subscriptions.
 *
 * Integers only: a float is kept as its bits and compared by its key, a signed integer of the same order. Texts point
 * into the payload that they were read from. Nothing here allocates, recurses or keeps state.
 */
#ifndef GENUS_EVENT_H
#define GENUS_EVENT_H

#include "genus_port.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a payload. */
typedef enum {
    GENUS_OK,           /* at least one handler was called */
    GENUS_NOT_WANTED,   /* no subscription matches */
    GENUS_UNKNOWN_TYPE, /* the event tag is not known: ask the broker for its class, see NAME_learn */
    GENUS_MALFORMED     /* the payload is cut short, or has a value that is refused */
} genus_status;

/* An acceptance filter over identifiers of 29 bits: a frame passes if (identifier & mask) == value. */
typedef struct {
    uint32_t value;
    uint32_t mask;
} genus_filter;

/* A text in UTF-8, or bytes. They belong to the payload and are valid as long as it is. One that a received event does
 * not carry is empty: `size` is 0, and `bytes` is the payload, never NULL. */
typedef struct {
    const uint8_t *bytes;
    uint16_t size;
} genus_text;

/* How a value is written: 1, 2, 4 and 8 are integers and floats of as many bytes. */
#define GENUS_BOOL 9U
#define GENUS_TIME 10U
#define GENUS_CHOICE8 11U  /* the member has 8 bits */
#define GENUS_CHOICE16 12U /* the member has 16 bits */
#define GENUS_TEXT 13U
#define GENUS_BYTES 14U
#define GENUS_OPAQUE 15U /* skipped; only its presence is kept */

#define GENUS_KEPT 0x80U     /* with a kind: it has a presence bit in the event, and a member unless it is opaque */
#define GENUS_UNTAGGED 0xFFU /* no presence bit in the event tag */

/* One attribute of a family's vector; in flash. */
typedef struct {
    uint8_t kind;     /* a size or one of these, and GENUS_KEPT */
    uint8_t tag_bit;  /* the number of its bit in the event tag, or GENUS_UNTAGGED */
    uint16_t offset;  /* of its member in the event */
    uint16_t choices; /* how many a choice has */
} genus_attribute;

/* A family: its vector, in flash. */
typedef struct {
    const genus_attribute *attributes;
    uint16_t count;
    uint8_t presence_bytes; /* of an event */
} genus_family;

/* A class of a family: bit 7 - i % 8 of byte i / 8 is for attribute i of the vector. */
typedef struct {
    const uint8_t *required; /* what all its events carry */
    const uint8_t *declared; /* what is written of its events, the required ones included; not used to read */
    bool in_ram;             /* a class that was learnt from the broker; others are in flash */
} genus_class;

/* Read a payload into an event; false if it is malformed. `present` are the presence bits of the event. Every attribute
 * of the vector is read, also one that the class got after the firmware was made. */
bool genus_decode(const genus_family *family, const genus_class *of_class, uint16_t etag, const uint8_t *payload,
                  uint16_t size, void *event, uint8_t *present);

/* Write the payload of an event: its size, or 0 if it does not fit or has a value that is not valid.
 * `etag` gets the bits of tagged attributes. Attributes that the class requires are written in any case. */
uint16_t genus_encode(const genus_family *family, const genus_class *of_class, const void *event,
                      const uint8_t *present, uint8_t sequence, uint8_t *payload, uint16_t capacity, uint16_t *etag);

/* Whether an event carries the attribute with this number. */
static inline bool genus_has(const uint8_t *present, uint8_t number)
{
    return (present[number / 8U] & (uint8_t)(1U << (number % 8U))) != 0U;
}

/* Say that an event carries the attribute with this number. */
static inline void genus_set(uint8_t *present, uint8_t number)
{
    present[number / 8U] = (uint8_t)(present[number / 8U] | (1U << (number % 8U)));
}

/* Say that an event does not carry the attribute with this number. */
static inline void genus_clear(uint8_t *present, uint8_t number)
{
    present[number / 8U] = (uint8_t)(present[number / 8U] & (uint8_t)~(1U << (number % 8U)));
}

/* The sequence number, 0 to 7, of a payload that is not empty. */
static inline uint8_t genus_sequence_of(const uint8_t *payload)
{
    return (uint8_t)(payload[0] >> 5);
}

/* -- parts of payloads, for generated code ---------------------------------------------------------------------- */

/* Functions that read give the place after the value, NULL if it is cut short or refused. `member` may be NULL.
 * `is_known` becomes false for a choice that is newer than the firmware: its attribute is then absent. */
const uint8_t *genus_skip_header(const uint8_t *at, const uint8_t *end, uint8_t follows);
const uint8_t *genus_read(const uint8_t *at, const uint8_t *end, uint8_t kind, uint16_t choices, void *member,
                          bool *is_known);
const uint8_t *genus_read_count(const uint8_t *at, const uint8_t *end, uint16_t *count);
const uint8_t *genus_read_bytes(const uint8_t *at, const uint8_t *end, genus_text *member);
const uint8_t *genus_read_text(const uint8_t *at, const uint8_t *end, genus_text *member);
bool genus_is_time(const uint8_t *bytes);
bool genus_is_utf8(const genus_text *text);

/* Copy a number of as many bytes from big-endian to the processor's order, or back. */
void genus_copy_number(void *to, const void *from, uint8_t size);

#define GENUS_FIRST_FOLLOWS 0x10U /* in the first byte of a header: another byte follows */
#define GENUS_NEXT_FOLLOWS 0x80U  /* in the other bytes of a header */

/* -- tests ------------------------------------------------------------------------------------------------------ */

/* A constant is in flash. genus_compare gives a number below, equal to or above 0. */
bool genus_equals(const genus_text *text, const uint8_t *constant, uint16_t size);
int8_t genus_compare(const genus_text *text, const uint8_t *constant, uint16_t size);
int8_t genus_compare_values(const genus_text *left, const genus_text *right);
bool genus_starts_with(const genus_text *text, const uint8_t *constant, uint16_t size);
bool genus_ends_with(const genus_text *text, const uint8_t *constant, uint16_t size);
bool genus_contains(const genus_text *text, const uint8_t *constant, uint16_t size);
bool genus_is_like(const genus_text *text, const uint8_t *pattern, uint16_t size);
uint16_t genus_count_letters(const genus_text *text);

static inline uint16_t genus_count_bytes(const genus_text *bytes)
{
    return bytes->size;
}

/* The key of a float: 0.0 and -0.0 have the same, NaN lies beyond the infinities. */
static inline int32_t genus_key32(uint32_t bits)
{
    const int32_t magnitude = (int32_t)(bits & UINT32_C(0x7FFFFFFF));
    return ((bits >> 31) != 0U) ? -magnitude : magnitude;
}

static inline int64_t genus_key64(uint64_t bits)
{
    const int64_t magnitude = (int64_t)(bits & UINT64_C(0x7FFFFFFFFFFFFFFF));
    return ((bits >> 63) != 0U) ? -magnitude : magnitude;
}

static inline bool genus_within32(int32_t key, int32_t low, int32_t high)
{
    return (low <= key) && (key <= high);
}

static inline bool genus_within64(int64_t key, int64_t low, int64_t high)
{
    return (low <= key) && (key <= high);
}

static inline bool genus_is_number32(int32_t key)
{
    return genus_within32(key, -INT32_C(0x7F800000), INT32_C(0x7F800000));
}

static inline bool genus_is_number64(int64_t key)
{
    return genus_within64(key, -INT64_C(0x7FF0000000000000), INT64_C(0x7FF0000000000000));
}

/* The key in 64 bits of the same float; and of the float that is nearest to an integer, ties to even. */
int64_t genus_widen_key(int32_t key);
int64_t genus_key_of_integer(int64_t number);

static inline int32_t genus_absolute32(int32_t number)
{
    return (number < 0) ? -number : number;
}

static inline int64_t genus_absolute64(int64_t number)
{
    return (number < 0) ? -number : number;
}

static inline bool genus_keep(int64_t number, int64_t *variable)
{
    *variable = number;
    return true;
}

/* Arithmetic that says whether its result fits in 64 bits. Divisors are not 0. */
bool genus_absolute_checked(int64_t number, int64_t *result);
bool genus_add64(int64_t left, int64_t right, int64_t *result);
bool genus_subtract64(int64_t left, int64_t right, int64_t *result);
bool genus_multiply64(int64_t left, int64_t right, int64_t *result);
bool genus_floor_divide64(int64_t left, int64_t right, int64_t *result);

/* Division rounded down, whose remainder has the sign of the divisor. The quotient fits. */
int32_t genus_floor_quotient32(int32_t left, int32_t right);
int64_t genus_floor_quotient64(int64_t left, int64_t right);
int32_t genus_remainder32(int32_t left, int32_t right);
int64_t genus_remainder64(int64_t left, int64_t right);

#ifdef __cplusplus
}
#endif

#endif
