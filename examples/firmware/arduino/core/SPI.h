/* The SPI library of Arduino, as much of it as the sketch uses. */
#ifndef SPI_H
#define SPI_H

#include <stdint.h>

class SpiMaster {
public:
    void begin();
    uint8_t transfer(uint8_t byte);
};

extern SpiMaster SPI;

#endif
