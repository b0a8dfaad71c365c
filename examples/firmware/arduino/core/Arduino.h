/* What of the Arduino core the sketch uses, for an ATmega128RFA1: to build and simulate it without the IDE. */
#ifndef ARDUINO_H
#define ARDUINO_H

#include <stdint.h>

enum { LOW, HIGH };
enum { INPUT, OUTPUT };

void setup();
void loop();

/* Pin 53 alone, which is SS (PB0). */
void pinMode(uint8_t pin, uint8_t mode);
void digitalWrite(uint8_t pin, uint8_t level);
void delay(uint32_t milliseconds);

class Uart {
public:
    void begin(uint32_t baud);
    void print(const char *text);
    void print(int number);
    void println(const char *text);
    void println(int number);
};

extern Uart Serial;

#endif
