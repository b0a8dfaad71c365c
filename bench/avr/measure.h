/* Markers for simulate.c: sbi and cbi need no register, so they cost the same everywhere. */
#ifndef MEASURE_H
#define MEASURE_H

#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
#include <stdint.h>

static inline void measure_case(uint8_t number)
{
    GPIOR1 = number;
}

static inline __attribute__((always_inline)) void measure_start(void)
{
    __asm__ volatile("sbi %0, 0" : : "I"(_SFR_IO_ADDR(GPIOR0)) : "memory");
}

/* The result is an operand, so that it is there when the marker is reached. */
static inline __attribute__((always_inline)) void measure_stop(uint8_t result)
{
    __asm__ volatile("cbi %0, 0" : : "I"(_SFR_IO_ADDR(GPIOR0)), "r"(result) : "memory");
    GPIOR2 = result;
}

static inline void measure_end(void)
{
    cli();
    sleep_enable();
    sleep_cpu();
}

#endif
