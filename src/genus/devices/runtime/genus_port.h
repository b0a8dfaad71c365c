/* What differs between processors: where constant tables lie and how they are read.
 *
 * On AVR, constants live in flash and need instructions of their own to be read; elsewhere they
 * are ordinary memory. */
#ifndef GENUS_PORT_H
#define GENUS_PORT_H

#include <stdint.h>
#include <string.h>

#ifdef __AVR__

#include <avr/pgmspace.h>

#define GENUS_ROM PROGMEM

static inline uint8_t genus_rom_u8(const uint8_t *from)
{
    return pgm_read_byte(from);
}

static inline uint16_t genus_rom_u16(const uint16_t *from)
{
    return pgm_read_word(from);
}

static inline uint32_t genus_rom_u32(const uint32_t *from)
{
    return pgm_read_dword(from);
}

static inline void genus_rom_copy(void *to, const void *from, uint16_t size)
{
    (void)memcpy_P(to, from, size);
}

#else

#define GENUS_ROM

static inline uint8_t genus_rom_u8(const uint8_t *from)
{
    return *from;
}

static inline uint16_t genus_rom_u16(const uint16_t *from)
{
    return *from;
}

static inline uint32_t genus_rom_u32(const uint32_t *from)
{
    return *from;
}

static inline void genus_rom_copy(void *to, const void *from, uint16_t size)
{
    (void)memcpy(to, from, size);
}

#endif

#endif
