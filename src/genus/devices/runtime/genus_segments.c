/* SPDX-License-Identifier: Apache-2.0 */
#include "genus_segments.h"

#include <string.h>

#define FIRST 0x80U
#define LAST 0x40U
#define TOGGLE 0x20U
#define NUMBER_MASK 0x1FU
#define CRC_START 0xFFFFU
#define CRC_BYTES 2U
#define PADDING 0x80U /* after a payload in frames of more than 8 bytes, and zeros */

/* CRC-16/CCITT-FALSE without a table: a segment is a fraction of what a frame costs anyway. */
static uint16_t crc_add(uint16_t crc, uint8_t byte)
{
    uint16_t found = (uint16_t)(crc ^ (uint16_t)((uint16_t)byte << 8));
    uint8_t bit;
    for (bit = 0U; bit < 8U; bit++) {
        const bool carry = (found & 0x8000U) != 0U;
        found = (uint16_t)(found << 1);
        if (carry) {
            found = (uint16_t)(found ^ 0x1021U);
        }
    }
    return found;
}

static uint8_t next_tail(uint8_t tail)
{
    return (uint8_t)(((uint8_t)~tail & TOGGLE) | ((tail + 1U) & NUMBER_MASK));
}

/* -- splitting --------------------------------------------------------------------------------- */

static bool is_single(uint16_t size, uint8_t capacity)
{
    return (size < GENUS_FRAME_BYTES) || (((uint32_t)size + 2U) <= capacity);
}

/* The bytes of a payload and, in frames of more than 8 bytes, its padding. */
static uint32_t padded_bytes(uint16_t size, uint8_t capacity)
{
    uint32_t padded = size;
#if GENUS_FD
    if ((capacity > GENUS_FRAME_BYTES) && (size >= GENUS_FRAME_BYTES)) {
        /* the bytes in the last frame, with 0x80 and the tail byte */
        const uint32_t crc = is_single(size, capacity) ? 0U : CRC_BYTES;
        const uint8_t last = (uint8_t)(((size + crc) % (capacity - 1U)) + 2U);
        padded += 1U + (uint32_t)genus_padded_size(last) - last;
    }
#else
    (void)capacity;
#endif
    return padded;
}

static uint16_t count_of(uint16_t size, uint8_t capacity)
{
    const uint8_t step = (uint8_t)(capacity - 1U);
    uint16_t count = 1U;
    if (!is_single(size, capacity)) {
        count = (uint16_t)((padded_bytes(size, capacity) + CRC_BYTES + step - 1U) / step);
    }
    return count;
}

uint16_t genus_segment_count(uint16_t size)
{
    return count_of(size, GENUS_DATA_BYTES);
}

uint16_t genus_classic_count(uint16_t size)
{
    return count_of(size, GENUS_FRAME_BYTES);
}

uint8_t genus_last_segment(uint16_t size)
{
    const uint16_t count = genus_segment_count(size);
    const uint32_t content =
        padded_bytes(size, GENUS_DATA_BYTES) + ((count == 1U) ? 0U : CRC_BYTES);
    return (uint8_t)((content - ((count - 1U) * (GENUS_DATA_BYTES - 1U))) + 1U);
}

/* A byte of a payload, or of the padding after it. */
static uint8_t byte_of(genus_byte_at read, const void *source, uint16_t size, uint32_t index)
{
#if GENUS_FD
    if (index >= size) {
        return (index == size) ? PADDING : 0U;
    }
#else
    (void)size;
#endif
    return read(source, (uint16_t)index);
}

static uint16_t crc_of(genus_byte_at read, const void *source, uint16_t size, uint32_t padded)
{
    uint16_t crc = CRC_START;
    uint32_t index;
    for (index = 0U; index < padded; index++) {
        crc = crc_add(crc, byte_of(read, source, size, index));
    }
    return crc;
}

static uint8_t tail_of(uint8_t transfer, uint16_t position, bool is_last)
{
    uint8_t tail = (uint8_t)((transfer + position) & NUMBER_MASK);
    if ((position & 1U) == 0U) {
        tail = (uint8_t)(tail | TOGGLE);
    }
    if (position == 0U) {
        tail = (uint8_t)(tail | FIRST);
    }
    if (is_last) {
        tail = (uint8_t)(tail | LAST);
    }
    return tail;
}

static uint8_t write_segment(genus_byte_at read, const void *source, uint16_t size,
                             uint8_t capacity, uint8_t transfer, uint16_t position, uint8_t *data)
{
    const uint8_t step = (uint8_t)(capacity - 1U);
    const uint16_t count = count_of(size, capacity);
    const uint32_t padded = padded_bytes(size, capacity);
    const uint32_t total = (count == 1U) ? padded : (padded + CRC_BYTES);
    uint32_t index = (uint32_t)position * step;
    uint16_t crc = 0U;
    uint8_t length = 0U;
    if (position >= count) {
        return 0U;
    }
    if ((index + step) > padded) {
        crc = crc_of(read, source, size, padded);
    }
    while ((length < step) && (index < total)) {
        if (index < padded) {
            data[length] = byte_of(read, source, size, index);
        } else {
            data[length] = (uint8_t)((index == padded) ? (crc >> 8) : (crc & 0xFFU));
        }
        length++;
        index++;
    }
    data[length] = tail_of(transfer, position, position == (uint16_t)(count - 1U));
    return (uint8_t)(length + 1U);
}

uint8_t genus_segment_from(genus_byte_at read, const void *source, uint16_t size, uint8_t transfer,
                           uint16_t position, uint8_t data[GENUS_FRAME_BYTES])
{
    return write_segment(read, source, size, GENUS_FRAME_BYTES, transfer, position, data);
}

static uint8_t byte_in_ram(const void *source, uint16_t index)
{
    return ((const uint8_t *)source)[index];
}

uint8_t genus_segment(const uint8_t *payload, uint16_t size, uint8_t transfer, uint16_t position,
                      uint8_t data[GENUS_DATA_BYTES])
{
    return write_segment(byte_in_ram, payload, size, GENUS_DATA_BYTES, transfer, position, data);
}

/* -- receiving --------------------------------------------------------------------------------- */

void genus_transfer_init(genus_transfer *transfer, uint8_t *buffer, uint16_t capacity)
{
    (void)memset(transfer, 0, sizeof *transfer);
    transfer->buffer = buffer;
    transfer->capacity = capacity;
}

static genus_segment_result drop(genus_segment_counts *counts, genus_segment_result reason)
{
    counts->of[reason]++;
    return reason;
}

static genus_segment_result lose(genus_transfer *transfer, genus_segment_counts *counts,
                                 genus_segment_result reason)
{
    transfer->is_open = false;
    transfer->is_lost = true;
    return drop(counts, reason);
}

static bool append(genus_transfer *transfer, const uint8_t *data, uint8_t length)
{
    const bool fits = ((uint32_t)transfer->size + length) <= transfer->capacity;
    if (fits) {
        (void)memcpy(&transfer->buffer[transfer->size], data, length);
        transfer->size = (uint16_t)(transfer->size + length);
    }
    return fits;
}

/* The data length of all frames of a transfer but the last. */
static uint8_t frame_size_of(const genus_transfer *transfer)
{
#if GENUS_FD
    return transfer->frame_size;
#else
    (void)transfer;
    return GENUS_FRAME_BYTES;
#endif
}

/* A payload is whole: remove what pads it in long frames. */
static genus_segment_result finish(genus_transfer *transfer, genus_segment_counts *counts)
{
#if GENUS_FD
    if (transfer->frame_size > GENUS_FRAME_BYTES) {
        while ((transfer->size > 0U) && (transfer->buffer[transfer->size - 1U] == 0U)) {
            transfer->size--;
        }
        if ((transfer->size == 0U) || (transfer->buffer[transfer->size - 1U] != PADDING)) {
            return drop(counts, GENUS_SEGMENT_WRONG_PADDING);
        }
        transfer->size--;
    }
#else
    (void)transfer;
    (void)counts;
#endif
    return GENUS_SEGMENT_COMPLETE;
}

static genus_segment_result receive_first(genus_transfer *transfer, const uint8_t *data,
                                          uint8_t size, genus_segment_counts *counts)
{
    const uint8_t tail = data[size - 1U];
    if (transfer->is_open) {
        counts->of[GENUS_SEGMENT_MISSING_END]++;
    }
    transfer->is_open = false;
    transfer->is_lost = false;
    transfer->size = 0U;
    if ((tail & TOGGLE) == 0U) {
        return lose(transfer, counts, GENUS_SEGMENT_WRONG_TOGGLE);
    }
    if (((tail & LAST) == 0U) && (size != GENUS_FRAME_BYTES) && (size != GENUS_DATA_BYTES)) {
        return lose(transfer, counts, GENUS_SEGMENT_WRONG_LENGTH);
    }
    if (!append(transfer, data, (uint8_t)(size - 1U))) {
        return lose(transfer, counts, GENUS_SEGMENT_TOO_LONG);
    }
#if GENUS_FD
    transfer->frame_size = size;
#endif
    if ((tail & LAST) != 0U) {
        return finish(transfer, counts);
    }
    transfer->is_open = true;
    transfer->expected = next_tail(tail);
    return GENUS_SEGMENT_KEPT;
}

static genus_segment_result complete(genus_transfer *transfer, genus_segment_counts *counts)
{
    uint16_t crc = CRC_START;
    uint16_t index;
    transfer->is_open = false;
    for (index = 0U; index < transfer->size; index++) {
        crc = crc_add(crc, transfer->buffer[index]);
    }
    if (crc != 0U) { /* the CRC over data followed by its CRC is 0 */
        return drop(counts, GENUS_SEGMENT_WRONG_CRC);
    }
    transfer->size = (uint16_t)(transfer->size - CRC_BYTES);
    return finish(transfer, counts);
}

static genus_segment_result receive_next(genus_transfer *transfer, const uint8_t *data,
                                         uint8_t size, genus_segment_counts *counts)
{
    const uint8_t tail = data[size - 1U];
    const uint8_t differs = (uint8_t)((tail & (TOGGLE | NUMBER_MASK)) ^ transfer->expected);
    if (!transfer->is_open) {
        return lose(transfer, counts,
                    transfer->is_lost ? GENUS_SEGMENT_REST_OF_LOST : GENUS_SEGMENT_MISSING_START);
    }
    if ((differs & NUMBER_MASK) != 0U) {
        return lose(transfer, counts, GENUS_SEGMENT_MISSING_FRAME);
    }
    if (differs != 0U) {
        return lose(transfer, counts, GENUS_SEGMENT_WRONG_TOGGLE);
    }
    if ((size > frame_size_of(transfer)) ||
        (((tail & LAST) == 0U) && (size != frame_size_of(transfer)))) {
        return lose(transfer, counts, GENUS_SEGMENT_WRONG_LENGTH);
    }
    if (!append(transfer, data, (uint8_t)(size - 1U))) {
        return lose(transfer, counts, GENUS_SEGMENT_TOO_LONG);
    }
    transfer->expected = next_tail(tail);
    return ((tail & LAST) != 0U) ? complete(transfer, counts) : GENUS_SEGMENT_KEPT;
}

/* Whether a frame is the last one again; a transfer that was silent for too long is dropped first.
 */
static bool is_duplicate(genus_transfer *transfer, const uint8_t *data, uint8_t size,
                         genus_time now, genus_time timeout, genus_segment_counts *counts)
{
    if (!transfer->is_known) {
        return false;
    }
    if ((now - transfer->at) > timeout) {
        if (transfer->is_open) {
            counts->of[GENUS_SEGMENT_TIMED_OUT]++;
        }
        transfer->is_open = false;
        transfer->is_lost = false;
        return false;
    }
    return (size == transfer->last_size) && (memcmp(data, transfer->last, size) == 0);
}

genus_segment_result genus_transfer_receive(genus_transfer *transfer, const uint8_t *data,
                                            uint8_t size, genus_time now, genus_time timeout,
                                            genus_segment_counts *counts)
{
    if (size == 0U) {
        return drop(counts, GENUS_SEGMENT_EMPTY);
    }
    if (size > GENUS_DATA_BYTES) {
        return drop(counts, GENUS_SEGMENT_FD);
    }
    if (is_duplicate(transfer, data, size, now, timeout, counts)) {
        return drop(counts, GENUS_SEGMENT_DUPLICATE);
    }
    transfer->is_known = true;
    transfer->at = now;
    transfer->last_size = size;
    (void)memcpy(transfer->last, data, size);
    if ((data[size - 1U] & FIRST) != 0U) {
        return receive_first(transfer, data, size, counts);
    }
    return receive_next(transfer, data, size, counts);
}
