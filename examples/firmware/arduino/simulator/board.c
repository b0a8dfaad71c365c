/* A board with an ATmega128RFA1 at 16 MHz and an MCP2515, in simavr.
 *
 *     board FIRMWARE.elf < FRAMES
 *
 * FRAMES has a frame of the bus a line, IDENTIFIER and DATA in hexadecimal; what follows is a comment. Each comes when
 * the controller has room. What the firmware writes to its UART and sends is printed. It ends when all frames have come
 * and nothing has happened for 50 ms. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <simavr/avr_ioport.h>
#include <simavr/avr_spi.h>
#include <simavr/avr_uart.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>

#include "mcp2515_model.h"

enum { FREQUENCY = 16000000, QUIET = FREQUENCY / 20, STEP = FREQUENCY / 1000 };

static mcp2515_model chip;
static avr_irq_t *answers;
static bool is_active;

static void on_sent(const model_frame *frame)
{
    uint8_t i;

    (void)printf("[sent %08" PRIx32 " ", frame->identifier);
    for (i = 0; i < frame->size; i++) {
        (void)printf("%02x", frame->data[i]);
    }
    (void)printf("]\n");
    is_active = true;
}

static void on_select(struct avr_irq_t *irq, uint32_t level, void *unused)
{
    (void)irq;
    (void)unused;
    model_select(&chip, level == 0);
}

static void on_spi(struct avr_irq_t *irq, uint32_t byte, void *unused)
{
    (void)irq;
    (void)unused;
    avr_raise_irq(answers, model_exchange(&chip, (uint8_t)byte));
}

static void on_uart(struct avr_irq_t *irq, uint32_t byte, void *unused)
{
    (void)irq;
    (void)unused;
    if (byte != '\r') {
        (void)putchar((int)byte);
    }
    is_active = true;
}

static avr_t *make_board(const char *file)
{
    static elf_firmware_t firmware;
    avr_t *avr = avr_make_mcu_by_name("atmega128rfa1");
    uint32_t flags = 0;

    if ((avr == NULL) || (elf_read_firmware(file, &firmware) != 0)) {
        (void)fprintf(stderr, "board: cannot load %s for an atmega128rfa1\n", file);
        exit(2);
    }
    avr_init(avr);
    avr->log = LOG_ERROR;
    avr_load_firmware(avr, &firmware);
    avr->frequency = FREQUENCY;
    avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT), on_uart, NULL);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_SPI_GETIRQ(0), SPI_IRQ_OUTPUT), on_spi, NULL);
    answers = avr_io_getirq(avr, AVR_IOCTL_SPI_GETIRQ(0), SPI_IRQ_INPUT);
    avr_irq_register_notify(avr_io_getirq(avr, AVR_IOCTL_IOPORT_GETIRQ('B'), 0), on_select, NULL);
    model_reset(&chip);
    chip.on_sent = on_sent;
    return avr;
}

/* The next frame of standard input; false at its end. */
static bool read_frame(model_frame *frame)
{
    char line[256];
    char data[17];

    while (fgets(line, sizeof line, stdin) != NULL) {
        const int found = sscanf(line, "%" SCNx32 " %16[0-9a-f]", &frame->identifier, data);
        if (found == 2) {
            frame->size = (uint8_t)(strlen(data) / 2);
            for (uint8_t i = 0; i < frame->size; i++) {
                unsigned byte = 0;
                (void)sscanf(&data[2 * i], "%2x", &byte);
                frame->data[i] = (uint8_t)byte;
            }
            return true;
        }
    }
    return false;
}

/* Runs for a time, and says whether the firmware did something. */
static bool run(avr_t *avr, avr_cycle_count_t cycles)
{
    const avr_cycle_count_t end = avr->cycle + cycles;

    is_active = false;
    while (avr->cycle < end) {
        const int state = avr_run(avr);
        if ((state == cpu_Done) || (state == cpu_Crashed)) {
            (void)fprintf(stderr, "board: the firmware stopped\n");
            exit(1);
        }
    }
    return is_active;
}

int main(int count, char **words)
{
    avr_t *avr;
    model_frame frame;
    int patience = 1000;

    if (count != 2) {
        (void)fprintf(stderr, "usage: board FIRMWARE.elf < FRAMES\n");
        return 2;
    }
    avr = make_board(words[1]);
    while (run(avr, QUIET)) {
    }
    while (read_frame(&frame)) {
        while (!model_is_free(&chip) && (--patience > 0)) {
            (void)run(avr, STEP);
        }
        model_receive(&chip, &frame);
        (void)run(avr, STEP);
    }
    while (run(avr, QUIET)) {
    }
    (void)printf("[%" PRIu32 " frames refused by the filters]\n", chip.refused);
    return (patience > 0) ? 0 : 1;
}
