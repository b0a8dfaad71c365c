/* Runs a firmware on a simulated ATmega128RFA1 at 16 MHz and counts cycles between its markers.
 *
 *     simulate FIRMWARE.elf [CYCLES]
 *
 * A firmware marks what is measured by bit 0 of GPIOR0 (see measure.h); it writes a number for the
 * case to GPIOR1 before, and the result to GPIOR2 after. Each gives a line on standard output:
 *
 *     case NUMBER CYCLES STACK RESULT
 *
 * CYCLES are exact, those of the markers included; STACK is how many bytes the stack grew. Bytes of
 * the UART come as lines `uart TEXT`, and the end as `end CYCLES STACK`, with the largest stack of
 * the whole run. It ends when the firmware sleeps with interrupts off, and fails when it crashes or
 * takes too long. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <simavr/avr_uart.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>

enum { GPIOR0 = 0x3E, GPIOR1 = 0x4A, GPIOR2 = 0x4B, FLASH = 128 * 1024, FREQUENCY = 16000000 };

typedef struct {
    bool running;
    uint8_t number;
    avr_cycle_count_t start;
    avr_cycle_count_t cycles;
    uint16_t start_stack;
    uint16_t lowest_stack;
    uint16_t lowest_of_all;
    char line[256];
    size_t length;
    uint64_t at[FLASH / 2];
} run_t;

static run_t run;

static uint16_t stack_pointer(const avr_t *avr)
{
    return (uint16_t)(avr->data[R_SPL] | (avr->data[R_SPH] << 8));
}

static void on_marker(avr_t *avr, avr_io_addr_t address, uint8_t value, void *unused)
{
    (void)unused;
    avr->data[address] = value;
    if (((value & 1) != 0) && !run.running) {
        run.running = true;
        run.start = avr->cycle;
        run.start_stack = stack_pointer(avr);
        run.lowest_stack = run.start_stack;
    } else if (((value & 1) == 0) && run.running) {
        run.running = false;
        run.cycles = avr->cycle - run.start;
    }
}

static void on_case(avr_t *avr, avr_io_addr_t address, uint8_t value, void *unused)
{
    (void)unused;
    avr->data[address] = value;
    run.number = value;
}

static void on_result(avr_t *avr, avr_io_addr_t address, uint8_t value, void *unused)
{
    (void)unused;
    avr->data[address] = value;
    (void)printf("case %u %" PRIu64 " %u %u\n", run.number, run.cycles,
                 run.start_stack - run.lowest_stack, value);
}

static void on_uart(struct avr_irq_t *irq, uint32_t value, void *unused)
{
    (void)irq;
    (void)unused;
    if ((value == '\n') || (run.length == sizeof run.line - 1)) {
        (void)printf("uart %.*s\n", (int)run.length, run.line);
        run.length = 0;
    } else if (value != '\r') {
        run.line[run.length++] = (char)value;
    }
}

static avr_t *load(const char *file)
{
    static elf_firmware_t firmware;
    avr_t *avr = avr_make_mcu_by_name("atmega128rfa1");
    uint32_t flags = 0;

    if ((avr == NULL) || (elf_read_firmware(file, &firmware) != 0)) {
        (void)fprintf(stderr, "simulate: cannot load %s for an atmega128rfa1\n", file);
        exit(2);
    }
    avr_init(avr);
    avr->frequency = FREQUENCY;
    avr->log = LOG_ERROR;
    avr_load_firmware(avr, &firmware);
    avr->frequency = FREQUENCY;
    avr_register_io_write(avr, GPIOR0, on_marker, NULL);
    avr_register_io_write(avr, GPIOR1, on_case, NULL);
    avr_register_io_write(avr, GPIOR2, on_result, NULL);
    avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT),
                            on_uart, NULL);
    return avr;
}

/* One instruction at a time, so that each is seen with its stack. */
static int step(avr_t *avr)
{
    int state;

    avr->run_cycle_limit = 1;
    avr->run_cycle_count = 1;
    state = avr_run(avr);
    if (stack_pointer(avr) > avr->ioend) { /* set up by then */
        const uint16_t stack = stack_pointer(avr);
        run.lowest_stack = (stack < run.lowest_stack) ? stack : run.lowest_stack;
        run.lowest_of_all = (stack < run.lowest_of_all) ? stack : run.lowest_of_all;
    }
    return state;
}

int main(int count, char **words)
{
    avr_cycle_count_t limit = 1600000000;
    avr_t *avr;
    int state = cpu_Running;

    if (count < 2) {
        (void)fprintf(stderr, "usage: simulate FIRMWARE.elf [CYCLES]\n");
        return 2;
    }
    if (count > 2) {
        limit = strtoull(words[2], NULL, 10);
    }
    avr = load(words[1]);
    run.lowest_of_all = avr->ramend;
    while ((state != cpu_Done) && (state != cpu_Crashed) && (avr->cycle < limit)) {
        state = step(avr);
    }
    (void)printf("end %" PRIu64 " %u\n", avr->cycle, avr->ramend - run.lowest_of_all);
    if (state != cpu_Done) {
        (void)fprintf(stderr, "simulate: the firmware %s\n",
                      (state == cpu_Crashed) ? "crashed" : "did not end in time");
        return 1;
    }
    return 0;
}
