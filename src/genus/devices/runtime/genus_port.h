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
#endif

#endif
