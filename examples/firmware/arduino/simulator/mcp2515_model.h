/* A model of the CAN controller MCP2515 behind its SPI pins: registers, acceptance filters, two receive buffers and
 * one transmit buffer. Bit timing and errors are left out. */
#ifndef MCP2515_MODEL_H
#define MCP2515_MODEL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t identifier;
    uint8_t size;
    uint8_t data[8];
} model_frame;

typedef struct {
    uint8_t registers[128];
    uint8_t instruction;
    uint8_t position; /* bytes since it was selected */
    uint8_t address;
    bool is_selected;
    uint32_t refused; /* frames that passed no filter */
    void (*on_sent)(const model_frame *frame);
} mcp2515_model;

void model_reset(mcp2515_model *chip);
void model_select(mcp2515_model *chip, bool is_selected);
/* One byte both ways. */
uint8_t model_exchange(mcp2515_model *chip, uint8_t byte);
/* Whether a frame from the bus can come now: the chip is in normal mode and both buffers are empty. */
bool model_is_free(const mcp2515_model *chip);
/* A frame from the bus. */
void model_receive(mcp2515_model *chip, const model_frame *frame);

#endif
