/* SPDX-License-Identifier: Apache-2.0 */
/* Genus on small devices: what differs between processors. Tables lie in flash where that is a memory of its own. */
#ifndef GENUS_PORT_H
#define GENUS_PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __AVR__
#include <avr/pgmspace.h>
#define GENUS_ROM PROGMEM
#ifndef __clang__
/* For functions that choose constants by a switch: gcc makes a table of it, and puts that into RAM. */
#define GENUS_BY_COMPARISON __attribute__((optimize("no-tree-switch-conversion")))
#else
#define GENUS_BY_COMPARISON
#endif

static inline uint8_t genus_rom_u8(const void *at)
{
    return pgm_read_byte(at);
}

static inline uint16_t genus_rom_u16(const void *at)
{
    return pgm_read_word(at);
}

static inline uint32_t genus_rom_u32(const void *at)
{
    return pgm_read_dword(at);
}

static inline void genus_rom_copy(void *to, const void *from, size_t size)
{
    (void)memcpy_P(to, from, size);
}

/* A member of a packed struct behind the one that was read before: `at` moves on by itself. */
static inline uint8_t genus_rom_next_u8(const void **at, const uint8_t *member)
{
    uint8_t value;

    (void)member;
    __asm__("lpm %0, Z+" : "=r"(value), "+z"(*at));
    return value;
}

static inline uint16_t genus_rom_next_u16(const void **at, const uint16_t *member)
{
    uint16_t value;

    (void)member;
    __asm__("lpm %A0, Z+\n\tlpm %B0, Z+" : "=r"(value), "+z"(*at));
    return value;
}

#else
#define GENUS_ROM
#define GENUS_BY_COMPARISON

static inline uint8_t genus_rom_u8(const void *at)
{
    return *(const uint8_t *)at;
}

static inline uint16_t genus_rom_u16(const void *at)
{
    uint16_t value;
    (void)memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t genus_rom_u32(const void *at)
{
    uint32_t value;
    (void)memcpy(&value, at, sizeof value);
    return value;
}

static inline void genus_rom_copy(void *to, const void *from, size_t size)
{
    (void)memcpy(to, from, size);
}

static inline uint8_t genus_rom_next_u8(const void **at, const uint8_t *member)
{
    (void)at;
    return *member;
}

static inline uint16_t genus_rom_next_u16(const void **at, const uint16_t *member)
{
    (void)at;
    return *member;
}
#endif

#endif
