#include "mcp2515_model.h"

#include <string.h>

/* From the data sheet, DS20001801. */
enum { CANSTAT = 0x0E, CANCTRL = 0x0F, CANINTF = 0x2C, TXB0CTRL = 0x30, RXB0 = 0x61, RXB1 = 0x71 };
enum { MODE = 0xE0, CONFIGURATION = 0x80, TX0_SENT = 0x04, EXTENDED = 0x08 };
enum { RESET = 0xC0, READ = 0x03, WRITE = 0x02, READ_RX0 = 0x90, READ_RX1 = 0x94, SEND_TX0 = 0x81 };

void model_reset(mcp2515_model *chip)
{
    (void)memset(chip->registers, 0, sizeof chip->registers);
    chip->registers[CANSTAT] = CONFIGURATION;
    chip->registers[CANCTRL] = 0x87;
}

static uint32_t identifier_at(const mcp2515_model *chip, uint8_t address)
{
    const uint8_t *at = &chip->registers[address];

    return ((uint32_t)at[0] << 21) | ((uint32_t)(at[1] & 0xE0) << 13) | ((uint32_t)(at[1] & 3) << 16) |
           ((uint32_t)at[2] << 8) | at[3];
}

static void store_frame(mcp2515_model *chip, uint8_t address, const model_frame *frame)
{
    uint8_t *at = &chip->registers[address];

    at[0] = (uint8_t)(frame->identifier >> 21);
    at[1] = (uint8_t)(((frame->identifier >> 13) & 0xE0) | EXTENDED | ((frame->identifier >> 16) & 3));
    at[2] = (uint8_t)(frame->identifier >> 8);
    at[3] = (uint8_t)frame->identifier;
    at[4] = frame->size;
    (void)memcpy(&at[5], frame->data, 8);
}

static void send(mcp2515_model *chip)
{
    const uint8_t *at = &chip->registers[TXB0CTRL];
    model_frame frame = {identifier_at(chip, TXB0CTRL + 1), at[5] & 0x0F, {0}};

    (void)memcpy(frame.data, &at[6], 8);
    chip->registers[CANINTF] |= TX0_SENT;
    chip->on_sent(&frame);
}

void model_select(mcp2515_model *chip, bool is_selected)
{
    if (chip->is_selected && !is_selected) {
        if (chip->instruction == READ_RX0) {
            chip->registers[CANINTF] &= (uint8_t)~1U;
        } else if (chip->instruction == READ_RX1) {
            chip->registers[CANINTF] &= (uint8_t)~2U;
        } else if (chip->instruction == SEND_TX0) {
            send(chip);
        }
    }
    chip->is_selected = is_selected;
    chip->position = 0;
    chip->instruction = 0;
}

static void write_register(mcp2515_model *chip, uint8_t address, uint8_t value)
{
    const bool is_setting = (address < 0x0C) || ((address >= 0x10) && (address < 0x1C)) ||
                            ((address >= 0x20) && (address < 0x2B));

    /* Filters, masks and bit timing can only be written in configuration mode. */
    if (is_setting && ((chip->registers[CANSTAT] & MODE) != CONFIGURATION)) {
        return;
    }
    chip->registers[address] = value;
    if (address == CANCTRL) {
        chip->registers[CANSTAT] = value & MODE;
    }
}

uint8_t model_exchange(mcp2515_model *chip, uint8_t byte)
{
    const uint8_t position = chip->position++;
    uint8_t answer = 0xFF;

    if (!chip->is_selected) {
        return answer;
    }
    if (position == 0) {
        chip->instruction = byte;
        chip->address = (byte == READ_RX0) ? RXB0 : RXB1;
        if (byte == RESET) {
            model_reset(chip);
        }
    } else if ((chip->instruction == READ_RX0) || (chip->instruction == READ_RX1)) {
        answer = chip->registers[chip->address++ & 127];
    } else if (position == 1) {
        chip->address = byte;
    } else if (chip->instruction == READ) {
        answer = chip->registers[chip->address++ & 127];
    } else if (chip->instruction == WRITE) {
        write_register(chip, chip->address++ & 127, byte);
    }
    return answer;
}

static bool passes(const mcp2515_model *chip, uint32_t identifier, uint8_t filter, uint8_t mask)
{
    return ((identifier ^ identifier_at(chip, filter)) & identifier_at(chip, mask)) == 0;
}

bool model_is_free(const mcp2515_model *chip)
{
    return ((chip->registers[CANSTAT] & MODE) == 0) && ((chip->registers[CANINTF] & 3) == 0);
}

void model_receive(mcp2515_model *chip, const model_frame *frame)
{
    static const uint8_t filters[] = {0x08, 0x10, 0x14, 0x18};
    uint8_t i;

    if (passes(chip, frame->identifier, 0x00, 0x20) || passes(chip, frame->identifier, 0x04, 0x20)) {
        store_frame(chip, RXB0, frame);
        chip->registers[CANINTF] |= 1;
        return;
    }
    for (i = 0; i < sizeof filters; i++) {
        if (passes(chip, frame->identifier, filters[i], 0x24)) {
            store_frame(chip, RXB1, frame);
            chip->registers[CANINTF] |= 2;
            return;
        }
    }
    chip->refused++;
}
