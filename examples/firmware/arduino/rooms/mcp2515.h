/* A CAN controller MCP2515 on SPI: as much of it as events need. */
#ifndef MCP2515_H
#define MCP2515_H

#include <stdint.h>

#include "genus_event.h"

/* A data frame with a 29-bit identifier. */
struct CanFrame {
    uint32_t identifier;
    uint8_t size;
    uint8_t data[8];
};

class Mcp2515 {
public:
    explicit Mcp2515(uint8_t select_pin) : select_pin_(select_pin) {}

    /* Starts at 125 kbit/s with a crystal of 16 MHz; false if no controller answers. Frames that pass none of the
     * filters, which lie in flash, are not received. */
    bool begin(const genus_filter *filters, uint8_t count);
    /* Takes a frame that has come; false if there is none. */
    bool receive(CanFrame &frame);
    /* Sends a frame; false if the one before it still waits. */
    bool send(const CanFrame &frame);

private:
    void select(bool on);
    uint8_t read(uint8_t address);
    void write(uint8_t address, uint8_t value);
    void write_identifier(uint8_t address, uint32_t identifier);
    void set_filters(const genus_filter *filters, uint8_t count);
    void read_buffer(uint8_t instruction, CanFrame &frame);

    uint8_t select_pin_;
};

#endif
