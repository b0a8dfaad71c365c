#include <avr/io.h>
#include <stdlib.h>
#include <util/delay.h>

#include "Arduino.h"
#include "SPI.h"

Uart Serial;
SpiMaster SPI;

void pinMode(uint8_t, uint8_t mode)
{
    DDRB = (mode == OUTPUT) ? (DDRB | _BV(PB0)) : (DDRB & ~_BV(PB0));
}

void digitalWrite(uint8_t, uint8_t level)
{
    PORTB = (level == HIGH) ? (PORTB | _BV(PB0)) : (PORTB & ~_BV(PB0));
}

void delay(uint32_t milliseconds)
{
    for (; milliseconds > 0; milliseconds--) {
        _delay_ms(1);
    }
}

void Uart::begin(uint32_t baud)
{
    UBRR0 = (uint16_t)(F_CPU / 16 / baud - 1);
    UCSR0B = _BV(TXEN0);
}

void Uart::print(const char *text)
{
    for (; *text != '\0'; text++) {
        while ((UCSR0A & _BV(UDRE0)) == 0) {
        }
        UDR0 = (uint8_t)*text;
    }
}

void Uart::print(int number)
{
    char text[7];
    print(itoa(number, text, 10));
}

void Uart::println(const char *text)
{
    print(text);
    print("\r\n");
}

void Uart::println(int number)
{
    print(number);
    print("\r\n");
}

void SpiMaster::begin()
{
    DDRB |= _BV(PB0) | _BV(PB1) | _BV(PB2); /* SS, SCK, MOSI */
    SPCR = _BV(SPE) | _BV(MSTR);
}

uint8_t SpiMaster::transfer(uint8_t byte)
{
    SPDR = byte;
    while ((SPSR & _BV(SPIF)) == 0) {
    }
    return SPDR;
}

int main()
{
    setup();
    for (;;) {
        loop();
    }
}
