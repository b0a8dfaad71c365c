/* SPDX-License-Identifier: Apache-2.0 */
/* The payload codec by tables. The format is on the page "The wire format" of the documentation. */
#include "genus_event.h"

#define FIRST_BIT 0x08U  /* presence bits begin here in the first byte of a header, */
#define NEXT_BIT 0x40U   /* and here in each further byte */
#define LONG_COUNT 255U  /* a count from here on has two more bytes */

#ifndef GENUS_BIG_ENDIAN
#if defined(__BYTE_ORDER__) && (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)
#define GENUS_BIG_ENDIAN 1
#else
#define GENUS_BIG_ENDIAN 0
#endif
#endif

/* The first and the last microsecond of the years 1 to 9999, big-endian, with the sign bit inverted. */
static const uint8_t FIRST_TIME[8] GENUS_ROM = {0x7F, 0x23, 0x40, 0x01, 0x00, 0xD4, 0x40, 0x00};
static const uint8_t LAST_TIME[8] GENUS_ROM = {0x83, 0x84, 0x44, 0x0C, 0xCC, 0x73, 0x5F, 0xFF};

/* -- reading ---------------------------------------------------------------------------------------------------- */

void genus_copy_number(void *to, const void *from, uint8_t size)
{
    uint8_t *target = (uint8_t *)to;
    const uint8_t *source = (const uint8_t *)from;
    uint8_t i;

#if GENUS_BIG_ENDIAN
    for (i = 0U; i < size; i++) {
        target[i] = source[i];
    }
#else
    target = &target[size];
    for (i = 0U; i < size; i++) {
        target--;
        *target = source[i];
    }
#endif
}

const uint8_t *genus_skip_header(const uint8_t *at, const uint8_t *end, uint8_t follows)
{
    const uint8_t *next = at;
    uint8_t bit = follows;

    while (next < end) {
        const uint8_t header = *next;
        next++;
        if ((header & bit) == 0U) {
            return next;
        }
        bit = GENUS_NEXT_FOLLOWS;
    }
    return NULL;
}

const uint8_t *genus_read_count(const uint8_t *at, const uint8_t *end, uint16_t *count)
{
    if (at == end) {
        return NULL;
    }
    *count = *at;
    if (*at < LONG_COUNT) {
        return &at[1];
    }
    if ((end - at) < 3) {
        return NULL;
    }
    *count = (uint16_t)(((uint16_t)at[1] << 8) | at[2]);
    return &at[3];
}

const uint8_t *genus_read_bytes(const uint8_t *at, const uint8_t *end, genus_text *member)
{
    uint16_t size = 0U;
    const uint8_t *start = genus_read_count(at, end, &size);

    if ((start == NULL) || ((uint16_t)(end - start) < size)) {
        return NULL;
    }
    member->bytes = start;
    member->size = size;
    return &start[size];
}

const uint8_t *genus_read_text(const uint8_t *at, const uint8_t *end, genus_text *member)
{
    const uint8_t *next = genus_read_bytes(at, end, member);

    return ((next != NULL) && genus_is_utf8(member)) ? next : NULL;
}

/* Whether a big-endian number, with its sign bit inverted, is less than one in flash. */
static bool is_before(const uint8_t *bytes, const uint8_t *limit)
{
    uint8_t i;

    for (i = 0U; i < 8U; i++) {
        const uint8_t own = (i == 0U) ? (uint8_t)(bytes[i] ^ 0x80U) : bytes[i];
        const uint8_t other = genus_rom_u8(&limit[i]);
        if (own != other) {
            return own < other;
        }
    }
    return false;
}

bool genus_is_time(const uint8_t *bytes)
{
    uint8_t i;

    if (bytes[0] == 0U) {
        return true; /* the years 1970 to 4253 need no comparison */
    }
    if (is_before(bytes, FIRST_TIME)) {
        return false;
    }
    if (is_before(bytes, LAST_TIME)) {
        return true;
    }
    for (i = 1U; i < 8U; i++) {
        if (bytes[i] != genus_rom_u8(&LAST_TIME[i])) {
            return false;
        }
    }
    return (bytes[0] ^ 0x80U) == genus_rom_u8(LAST_TIME);
}

/* The bytes of a letter after the first one, and the smallest and largest that the second may be; false if none. */
static bool letter_form(uint8_t first, uint8_t *more, uint8_t *low, uint8_t *high)
{
    *low = 0x80U;
    *high = 0xBFU;
    if ((first >= 0xC2U) && (first <= 0xDFU)) {
        *more = 1U;
        return true;
    }
    if ((first & 0xF0U) == 0xE0U) {
        *more = 2U;
        *low = (first == 0xE0U) ? 0xA0U : 0x80U;
        *high = (first == 0xEDU) ? 0x9FU : 0xBFU;
        return true;
    }
    *more = 3U;
    *low = (first == 0xF0U) ? 0x90U : 0x80U;
    *high = (first == 0xF4U) ? 0x8FU : 0xBFU;
    return (first >= 0xF0U) && (first <= 0xF4U);
}

bool genus_is_utf8(const genus_text *text)
{
    const uint8_t *at = text->bytes;
    const uint8_t *end = (text->size == 0U) ? at : &at[text->size]; /* an empty text may have no bytes at all */

    while (at < end) {
        const uint8_t first = *at;
        uint8_t more;
        uint8_t low;
        uint8_t high;
        at++;
        if (first < 0x80U) {
            continue;
        }
        if (!letter_form(first, &more, &low, &high) || ((uint16_t)(end - at) < more)) {
            return false;
        }
        for (; more > 0U; more--) {
            if ((*at < low) || (*at > high)) {
                return false;
            }
            low = 0x80U;
            high = 0xBFU;
            at++;
        }
    }
    return true;
}

static const uint8_t *read_choice(const uint8_t *at, const uint8_t *end, uint8_t kind, uint16_t choices,
                                  void *member, bool *is_known)
{
    uint16_t index = 0U;
    const uint8_t *next = genus_read_count(at, end, &index);

    if ((next == NULL) || ((kind == GENUS_CHOICE8) && ((next - at) > 1))) {
        return NULL; /* a list of at most 255 has indexes of one byte */
    }
    *is_known = index < choices;
    if (*is_known && (member != NULL)) {
        if (kind == GENUS_CHOICE8) {
            *(uint8_t *)member = (uint8_t)index;
        } else {
            *(uint16_t *)member = index;
        }
    }
    return next;
}

static const uint8_t *read_number(const uint8_t *at, const uint8_t *end, uint8_t kind, void *member)
{
    const uint8_t size = (uint8_t)((kind == GENUS_BOOL) ? 1U : ((kind == GENUS_TIME) ? 8U : kind));

    if ((end - at) < size) {
        return NULL;
    }
    if (((kind == GENUS_BOOL) && (*at > 1U)) || ((kind == GENUS_TIME) && !genus_is_time(at))) {
        return NULL;
    }
    if (member != NULL) {
        genus_copy_number(member, at, size);
    }
    return &at[size];
}

const uint8_t *genus_read(const uint8_t *at, const uint8_t *end, uint8_t kind, uint16_t choices, void *member,
                          bool *is_known)
{
    genus_text text;
    const uint8_t *next;

    if (kind <= GENUS_TIME) {
        return read_number(at, end, kind, member);
    }
    if (kind <= GENUS_CHOICE16) {
        return read_choice(at, end, kind, choices, member, is_known);
    }
    next = (kind == GENUS_TEXT) ? genus_read_text(at, end, &text) : genus_read_bytes(at, end, &text);
    if ((next != NULL) && (member != NULL) && (kind != GENUS_OPAQUE)) {
        *(genus_text *)member = text;
    }
    return next;
}

static inline uint8_t mask_byte(const genus_class *of_class, const uint8_t *masks, uint16_t index)
{
    return of_class->in_ram ? masks[index] : genus_rom_u8(&masks[index]);
}

/* Read the value of an attribute, and set its presence bit if the event has a member for it. */
static const uint8_t *decode_value(const genus_attribute *attribute, const uint8_t *at, const uint8_t *end,
                                   uint8_t *event, uint8_t *present, uint8_t bit)
{
    const uint8_t kind = genus_rom_u8(&attribute->kind);
    const uint8_t *next;
    uint8_t *member = NULL;
    bool is_known = true;

    if ((kind & GENUS_KEPT) != 0U) {
        member = &event[genus_rom_u16(&attribute->offset)];
    }
    if (kind == (GENUS_KEPT | 1U)) { /* one byte, the most frequent, without a call */
        *member = (at < end) ? *at : 0U;
        next = (at < end) ? at + 1 : NULL;
    } else {
        next = genus_read(at, end, (uint8_t)(kind & ~GENUS_KEPT), genus_rom_u16(&attribute->choices), member, &is_known);
    }
    if ((member != NULL) && is_known) {
        *present = (uint8_t)(*present | bit);
    }
    return next;
}

/* The loop is written for processors with few registers: bits move through bytes, nothing is shifted by a variable. */
bool genus_decode(const genus_family *family, const genus_class *of_class, uint16_t etag, const uint8_t *payload,
                  uint16_t size, void *event, uint8_t *present)
{
    const uint8_t *const end = &payload[size];
    const uint8_t *const first = genus_skip_header(payload, end, GENUS_FIRST_FOLLOWS);
    const uint8_t *at = first;
    const uint8_t *header = payload;
    const genus_attribute *attribute = family->attributes;
    uint8_t *presence = present;
    uint8_t kept = 1U;     /* the presence bit in the event */
    uint8_t bits = 0U;     /* those of the header that are not used yet, highest first, and a 1 behind them */
    uint8_t required = 0U; /* a byte of what the class requires, */
    uint8_t mask = 0U;     /* and the bit of the attribute in it */
    uint8_t byte = 0U;     /* the next one of these; a vector has at most 2048 attributes */
    uint16_t left;

    (void)memset(present, 0, family->presence_bytes);
    if (at == NULL) {
        return false;
    }
    bits = (uint8_t)(((unsigned)*header << 4) | 0x08U);
    for (left = family->count; left > 0U; left--) {
        const uint8_t tag_bit = genus_rom_u8(&attribute->tag_bit);
        bool is_present = false;

        if (mask == 0U) {
            mask = 0x80U;
            required = mask_byte(of_class, of_class->required, byte);
            byte++;
        }
        if (tag_bit != GENUS_UNTAGGED) {
            is_present = (((unsigned)etag >> tag_bit) & 1U) != 0U;
            if (!is_present && ((required & mask) != 0U)) {
                return false;
            }
        } else if ((required & mask) != 0U) {
            is_present = true;
        } else {
            if ((bits == 0x80U) && (&header[1] < first)) {
                header++;
                bits = (uint8_t)(((unsigned)*header << 1) | 1U);
            }
            if (bits != 0x80U) {
                is_present = (bits & 0x80U) != 0U;
                bits = (uint8_t)(bits << 1);
            }
        }
        if (is_present) {
            at = decode_value(attribute, at, end, (uint8_t *)event, presence, kept);
            if (at == NULL) {
                return false;
            }
        }
        if ((genus_rom_u8(&attribute->kind) & GENUS_KEPT) != 0U) {
            kept = (uint8_t)(kept << 1);
            if (kept == 0U) {
                kept = 1U;
                presence++;
            }
        }
        mask >>= 1;
        attribute++;
    }
    return true;
}

/* -- writing ---------------------------------------------------------------------------------------------------- */

/* State: where a payload is written; `left` are the bytes that still fit. */
typedef struct {
    uint8_t *at;
    uint16_t left;
} writer;

static bool write_number(writer *out, const void *member, uint8_t size)
{
    if (out->left < size) {
        return false;
    }
    genus_copy_number(out->at, member, size);
    out->at = &out->at[size];
    out->left = (uint16_t)(out->left - size);
    return true;
}

static bool write_count(writer *out, uint16_t count)
{
    const uint8_t first = (uint8_t)((count < LONG_COUNT) ? count : LONG_COUNT);

    return write_number(out, &first, 1U) && ((count < LONG_COUNT) || write_number(out, &count, 2U));
}

static bool write_bytes(writer *out, const genus_text *text)
{
    if (!write_count(out, text->size) || (out->left < text->size)) {
        return false;
    }
    if (text->size > 0U) {
        (void)memcpy(out->at, text->bytes, text->size);
    }
    out->at = &out->at[text->size];
    out->left = (uint16_t)(out->left - text->size);
    return true;
}

static bool write_value(writer *out, uint8_t kind, uint16_t choices, const uint8_t *member)
{
    const uint8_t *start = out->at;
    uint16_t index;

    switch (kind) {
    case GENUS_BOOL:
        return (*member <= 1U) && write_number(out, member, 1U);
    case GENUS_TIME:
        return write_number(out, member, 8U) && genus_is_time(start);
    case GENUS_CHOICE8:
    case GENUS_CHOICE16:
        index = (kind == GENUS_CHOICE8) ? *member : *(const uint16_t *)(const void *)member;
        return (index < choices) && write_count(out, index);
    case GENUS_TEXT:
        return genus_is_utf8((const genus_text *)(const void *)member) &&
               write_bytes(out, (const genus_text *)(const void *)member);
    case GENUS_BYTES:
        return write_bytes(out, (const genus_text *)(const void *)member);
    case GENUS_OPAQUE:
        return false;
    default:
        return write_number(out, member, kind);
    }
}

/* Whether attribute i is in the payload: the class requires it, or has it and so does the event. */
static bool is_written(const genus_class *of_class, const uint8_t *present, uint8_t kind, uint16_t i, uint8_t number)
{
    const uint8_t bit = (uint8_t)(0x80U >> (i % 8U));

    if ((mask_byte(of_class, of_class->required, i / 8U) & bit) != 0U) {
        return true;
    }
    return ((kind & GENUS_KEPT) != 0U) && ((mask_byte(of_class, of_class->declared, i / 8U) & bit) != 0U) &&
           genus_has(present, number);
}

/* Write the presence bits, without bytes of zeros at the end; false if they do not fit. */
static bool write_header(const genus_family *family, const genus_class *of_class, const uint8_t *present,
                         writer *out, uint16_t *etag)
{
    const genus_attribute *attribute = family->attributes;
    uint8_t *byte = out->at;
    uint8_t *last = out->at;
    uint8_t *end = &out->at[out->left];
    uint8_t bit = FIRST_BIT;
    uint8_t number = 0U;
    uint16_t i;

    for (i = 0U; i < family->count; i++) {
        const uint8_t kind = genus_rom_u8(&attribute->kind);
        const uint8_t tag_bit = genus_rom_u8(&attribute->tag_bit);
        const bool is_set = is_written(of_class, present, kind, i, number);
        const bool is_required =
            (mask_byte(of_class, of_class->required, i / 8U) & (uint8_t)(0x80U >> (i % 8U))) != 0U;

        number = (uint8_t)(number + (((kind & GENUS_KEPT) != 0U) ? 1U : 0U));
        attribute++;
        if (tag_bit != GENUS_UNTAGGED) {
            *etag = (uint16_t)(*etag | (uint16_t)((is_set ? 1U : 0U) << tag_bit));
        } else if (!is_required) {
            if (bit == 0U) {
                byte++;
                bit = NEXT_BIT;
            }
            if (is_set) {
                while (last < byte) {
                    last++;
                    if (last == end) {
                        return false;
                    }
                    *last = 0U;
                }
                *byte = (uint8_t)(*byte | bit);
            }
            bit >>= 1;
        } else {
            /* what the class requires has no bit */
        }
    }
    for (byte = out->at; byte < last; byte++) {
        *byte = (uint8_t)(*byte | ((byte == out->at) ? GENUS_FIRST_FOLLOWS : GENUS_NEXT_FOLLOWS));
    }
    out->left = (uint16_t)(end - last - 1);
    out->at = &last[1];
    return true;
}

uint16_t genus_encode(const genus_family *family, const genus_class *of_class, const void *event,
                      const uint8_t *present, uint8_t sequence, uint8_t *payload, uint16_t capacity, uint16_t *etag)
{
    writer out = {payload, capacity};
    const genus_attribute *attribute = family->attributes;
    uint8_t number = 0U;
    uint16_t i;

    if (capacity == 0U) {
        return 0U;
    }
    payload[0] = (uint8_t)((sequence & 7U) << 5);
    if (!write_header(family, of_class, present, &out, etag)) {
        return 0U;
    }
    for (i = 0U; i < family->count; i++) {
        const uint8_t kind = genus_rom_u8(&attribute->kind);

        if (is_written(of_class, present, kind, i, number) &&
            !write_value(&out, (uint8_t)(kind & ~GENUS_KEPT), genus_rom_u16(&attribute->choices),
                         &((const uint8_t *)event)[genus_rom_u16(&attribute->offset)])) {
            return 0U;
        }
        number = (uint8_t)(number + (((kind & GENUS_KEPT) != 0U) ? 1U : 0U));
        attribute++;
    }
    return (uint16_t)(out.at - payload);
}
