/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of subscriptions: texts, floats by their keys, and arithmetic of integers that knows its limits. */
#include "genus_event.h"

/* -- texts ------------------------------------------------------------------------------------------------------ */

#define ANY_TEXT 0xFFU   /* in a pattern: any text, also the empty one */
#define ONE_LETTER 0xFEU /* in a pattern: one letter; no byte of a text in UTF-8 has these values */

static int8_t compare_sizes(uint16_t left, uint16_t right)
{
    return (left == right) ? 0 : ((left < right) ? -1 : 1);
}

int8_t genus_compare(const genus_text *text, const uint8_t *constant, uint16_t size)
{
    uint16_t i;

    for (i = 0U; (i < text->size) && (i < size); i++) {
        const uint8_t other = genus_rom_u8(&constant[i]);
        if (text->bytes[i] != other) {
            return (text->bytes[i] < other) ? -1 : 1;
        }
    }
    return compare_sizes(text->size, size);
}

int8_t genus_compare_values(const genus_text *left, const genus_text *right)
{
    uint16_t i;

    for (i = 0U; (i < left->size) && (i < right->size); i++) {
        if (left->bytes[i] != right->bytes[i]) {
            return (left->bytes[i] < right->bytes[i]) ? -1 : 1;
        }
    }
    return compare_sizes(left->size, right->size);
}

/* Whether a constant stands at a place of a text that has enough bytes there. */
static bool stands_at(const uint8_t *at, const uint8_t *constant, uint16_t size)
{
    uint16_t i;

    for (i = 0U; i < size; i++) {
        if (at[i] != genus_rom_u8(&constant[i])) {
            return false;
        }
    }
    return true;
}

bool genus_equals(const genus_text *text, const uint8_t *constant, uint16_t size)
{
    return (text->size == size) && stands_at(text->bytes, constant, size);
}

bool genus_starts_with(const genus_text *text, const uint8_t *constant, uint16_t size)
{
    return (text->size >= size) && stands_at(text->bytes, constant, size);
}

bool genus_ends_with(const genus_text *text, const uint8_t *constant, uint16_t size)
{
    return (text->size >= size) && stands_at(&text->bytes[text->size - size], constant, size);
}

bool genus_contains(const genus_text *text, const uint8_t *constant, uint16_t size)
{
    uint16_t start;

    for (start = 0U; (uint32_t)start + size <= text->size; start++) {
        if (stands_at(&text->bytes[start], constant, size)) {
            return true;
        }
    }
    return false;
}

/* The place after the letter at a place. */
static uint16_t after_letter(const genus_text *text, uint16_t at)
{
    uint16_t next = (uint16_t)(at + 1U);

    while ((next < text->size) && ((text->bytes[next] & 0xC0U) == 0x80U)) {
        next++;
    }
    return next;
}

uint16_t genus_count_letters(const genus_text *text)
{
    uint16_t count = 0U;
    uint16_t at;

    for (at = 0U; at < text->size; at = after_letter(text, at)) {
        count++;
    }
    return count;
}

/* The leftmost place of a part between two wildcards is never worse than a later one: only the last one is tried
 * again, so no time is spent on others. */
bool genus_is_like(const genus_text *text, const uint8_t *pattern, uint16_t size)
{
    uint16_t at = 0U;
    uint16_t in_pattern = 0U;
    uint16_t retry_at = 0U;
    uint16_t retry_in_pattern = 0U;
    bool may_retry = false;

    while (at < text->size) {
        const uint8_t wanted = (in_pattern < size) ? genus_rom_u8(&pattern[in_pattern]) : ANY_TEXT;
        if ((in_pattern < size) && (wanted == ANY_TEXT)) {
            in_pattern++;
            retry_in_pattern = in_pattern;
            retry_at = at;
            may_retry = true;
        } else if ((in_pattern < size) && (wanted == ONE_LETTER)) {
            in_pattern++;
            at = after_letter(text, at);
        } else if ((in_pattern < size) && (wanted == text->bytes[at])) {
            in_pattern++;
            at++;
        } else if (may_retry) {
            retry_at = after_letter(text, retry_at);
            at = retry_at;
            in_pattern = retry_in_pattern;
        } else {
            return false;
        }
    }
    while ((in_pattern < size) && (genus_rom_u8(&pattern[in_pattern]) == ANY_TEXT)) {
        in_pattern++;
    }
    return in_pattern == size;
}

/* -- floats ----------------------------------------------------------------------------------------------------- */

int64_t genus_widen_key(int32_t key)
{
    const bool is_negative = key < 0;
    uint32_t magnitude = (uint32_t)(is_negative ? -key : key);
    uint64_t wide;

    if (magnitude >= UINT32_C(0x7F800000)) { /* infinity and NaN */
        wide = UINT64_C(0x7FF0000000000000) | ((uint64_t)(magnitude & UINT32_C(0x7FFFFF)) << 29);
    } else if (magnitude >= UINT32_C(0x800000)) {
        wide = ((uint64_t)magnitude << 29) + (UINT64_C(896) << 52); /* the exponents begin at other numbers */
    } else if (magnitude == 0U) {
        wide = 0U;
    } else { /* a number without the leading bit, which has it in 64 bits */
        uint64_t exponent = 897U;
        while ((magnitude & UINT32_C(0x800000)) == 0U) {
            magnitude <<= 1;
            exponent--;
        }
        wide = (exponent << 52) | ((uint64_t)(magnitude & UINT32_C(0x7FFFFF)) << 29);
    }
    return is_negative ? -(int64_t)wide : (int64_t)wide;
}

int64_t genus_key_of_integer(int64_t number)
{
    const bool is_negative = number < 0;
    uint64_t magnitude = is_negative ? (UINT64_C(0) - (uint64_t)number) : (uint64_t)number;
    uint64_t exponent = 1086U; /* of a number whose highest bit is bit 63 */
    uint64_t lost;
    uint64_t key;

    if (magnitude == 0U) {
        return 0;
    }
    while ((magnitude >> 63) == 0U) {
        magnitude <<= 1;
        exponent--;
    }
    lost = magnitude & UINT64_C(0x7FF);
    key = ((exponent - 1U) << 52) + (magnitude >> 11); /* the highest bit adds one to the exponent */
    if ((lost > UINT64_C(0x400)) || ((lost == UINT64_C(0x400)) && ((key & 1U) != 0U))) {
        key++; /* a carry goes into the exponent, as it must */
    }
    return is_negative ? -(int64_t)key : (int64_t)key;
}

/* -- integers --------------------------------------------------------------------------------------------------- */

bool genus_absolute_checked(int64_t number, int64_t *result)
{
    if (number == INT64_MIN) {
        return false;
    }
    *result = genus_absolute64(number);
    return true;
}

bool genus_add64(int64_t left, int64_t right, int64_t *result)
{
    if ((right > 0) ? (left > (INT64_MAX - right)) : (left < (INT64_MIN - right))) {
        return false;
    }
    *result = left + right;
    return true;
}

bool genus_subtract64(int64_t left, int64_t right, int64_t *result)
{
    if ((right > 0) ? (left < (INT64_MIN + right)) : (left > (INT64_MAX + right))) {
        return false;
    }
    *result = left - right;
    return true;
}

bool genus_multiply64(int64_t left, int64_t right, int64_t *result)
{
    if ((left == 0) || (right == 0)) {
        *result = 0;
        return true;
    }
    if (((left == -1) && (right == INT64_MIN)) || ((right == -1) && (left == INT64_MIN))) {
        return false;
    }
    if ((left > 0) ? ((right > 0) ? (left > (INT64_MAX / right)) : (right < (INT64_MIN / left)))
                   : ((right > 0) ? (left < (INT64_MIN / right)) : (right < (INT64_MAX / left)))) {
        return false;
    }
    *result = left * right;
    return true;
}

bool genus_floor_divide64(int64_t left, int64_t right, int64_t *result)
{
    if ((left == INT64_MIN) && (right == -1)) {
        return false;
    }
    *result = genus_floor_quotient64(left, right);
    return true;
}

int32_t genus_remainder32(int32_t left, int32_t right)
{
    const int32_t found = (right == -1) ? 0 : (left % right);
    return ((found != 0) && ((found < 0) != (right < 0))) ? (found + right) : found;
}

int64_t genus_remainder64(int64_t left, int64_t right)
{
    const int64_t found = (right == -1) ? 0 : (left % right);
    return ((found != 0) && ((found < 0) != (right < 0))) ? (found + right) : found;
}

int32_t genus_floor_quotient32(int32_t left, int32_t right)
{
    const int32_t found = left / right;
    return ((genus_remainder32(left, right) != 0) && ((left < 0) != (right < 0))) ? (found - 1) : found;
}

int64_t genus_floor_quotient64(int64_t left, int64_t right)
{
    const int64_t found = left / right;
    return ((genus_remainder64(left, right) != 0) && ((left < 0) != (right < 0))) ? (found - 1) : found;
}
