#include "mcp2515.h"

#include <Arduino.h>
#include <SPI.h>

/* From the data sheet, DS20001801. */
enum {
    RESET = 0xC0, READ = 0x03, WRITE = 0x02, READ_RX0 = 0x90, READ_RX1 = 0x94, LOAD_TX0 = 0x40, SEND_TX0 = 0x81,

    CANSTAT = 0x0E, CANCTRL = 0x0F, CNF3 = 0x28, CNF2 = 0x29, CNF1 = 0x2A, CANINTF = 0x2C, TXB0CTRL = 0x30,
    RXB0CTRL = 0x60, RXM0 = 0x20, RXM1 = 0x24,

    CONFIGURATION = 0x80, NORMAL = 0x00, MODE = 0xE0, RX0_FULL = 0x01, RX1_FULL = 0x02, TX_WAITS = 0x08,
    ROLL_OVER = 0x04, EXTENDED = 0x08, REMOTE = 0x40
};

/* The first two are compared for buffer 0 under mask 0, the others for buffer 1 under mask 1. */
static const uint8_t FILTERS[6] = {0x00, 0x04, 0x08, 0x10, 0x14, 0x18};

bool Mcp2515::begin(const genus_filter *filters, uint8_t count)
{
    pinMode(select_pin_, OUTPUT);
    select(false);
    SPI.begin();
    select(true);
    SPI.transfer(RESET);
    select(false);
    delay(1); /* its oscillator starts */
    if ((read(CANSTAT) & MODE) != CONFIGURATION) {
        return false;
    }
    write(CNF1, 0x03); /* 16 quanta of 0.5 µs */
    write(CNF2, 0xF0);
    write(CNF3, 0x86);
    set_filters(filters, count);
    write(RXB0CTRL, ROLL_OVER);
    write(CANCTRL, NORMAL);
    return true;
}

/* There are two masks for all filters. The first filter keeps its own; the others share what all their masks have in
 * common, which may let more through: the generated code tests event tags again. */
void Mcp2515::set_filters(const genus_filter *filters, uint8_t count)
{
    uint32_t shared = 0x1FFFFFFFUL;
    const uint8_t used = (count < 5) ? count : 5;

    for (uint8_t i = 1; i < count; i++) {
        shared &= genus_rom_u32(&filters[i].mask);
    }
    for (uint8_t i = 0; i < 6; i++) {
        /* filter 1 repeats filter 0; what is not used repeats the last */
        const uint8_t from = (i < 2) ? 0 : ((uint8_t)(i - 1) < used ? (uint8_t)(i - 1) : (uint8_t)(used - 1));
        write_identifier(FILTERS[i], genus_rom_u32(&filters[from].value));
    }
    if (count > used) {
        shared = 0; /* more filters than places: everything passes */
    }
    write_identifier(RXM0, genus_rom_u32(&filters[0].mask));
    write_identifier(RXM1, (count > 1) ? shared : genus_rom_u32(&filters[0].mask));
}

bool Mcp2515::receive(CanFrame &frame)
{
    const uint8_t full = read(CANINTF);

    if ((full & RX0_FULL) != 0) {
        read_buffer(READ_RX0, frame);
    } else if ((full & RX1_FULL) != 0) {
        read_buffer(READ_RX1, frame);
    } else {
        return false;
    }
    return true;
}

/* Reading a buffer to the end of the selection also empties it. */
void Mcp2515::read_buffer(uint8_t instruction, CanFrame &frame)
{
    uint8_t head[5];

    select(true);
    SPI.transfer(instruction);
    for (uint8_t i = 0; i < 5; i++) {
        head[i] = SPI.transfer(0);
    }
    frame.identifier = ((uint32_t)head[0] << 21) | ((uint32_t)(head[1] & 0xE0) << 13) |
                       ((uint32_t)(head[1] & 0x03) << 16) | ((uint32_t)head[2] << 8) | head[3];
    frame.size = ((head[4] & REMOTE) != 0) ? 0 : (((head[4] & 0x0F) < 8) ? (head[4] & 0x0F) : 8);
    for (uint8_t i = 0; i < frame.size; i++) {
        frame.data[i] = SPI.transfer(0);
    }
    select(false);
}

bool Mcp2515::send(const CanFrame &frame)
{
    if ((read(TXB0CTRL) & TX_WAITS) != 0) {
        return false;
    }
    write_identifier(TXB0CTRL + 1, frame.identifier);
    write(TXB0CTRL + 5, frame.size);
    for (uint8_t i = 0; i < frame.size; i++) {
        write(TXB0CTRL + 6 + i, frame.data[i]);
    }
    select(true);
    SPI.transfer(SEND_TX0);
    select(false);
    return true;
}

void Mcp2515::select(bool on)
{
    digitalWrite(select_pin_, on ? LOW : HIGH);
}

uint8_t Mcp2515::read(uint8_t address)
{
    select(true);
    SPI.transfer(READ);
    SPI.transfer(address);
    const uint8_t value = SPI.transfer(0);
    select(false);
    return value;
}

void Mcp2515::write(uint8_t address, uint8_t value)
{
    select(true);
    SPI.transfer(WRITE);
    SPI.transfer(address);
    SPI.transfer(value);
    select(false);
}

void Mcp2515::write_identifier(uint8_t address, uint32_t identifier)
{
    write(address, (uint8_t)(identifier >> 21));
    write(address + 1, (uint8_t)(((identifier >> 13) & 0xE0) | EXTENDED | ((identifier >> 16) & 0x03)));
    write(address + 2, (uint8_t)(identifier >> 8));
    write(address + 3, (uint8_t)identifier);
}
