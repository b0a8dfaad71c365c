/* A valve controller: opens the valve of a room that is cold, unless a window is open there.
 *
 * rooms.h and rooms.c are generated from ../rooms.py and ../subscriptions.txt; ../README.md has the commands. */
#include "mcp2515.h"
#include "rooms.h"

static const uint8_t SELECT_PIN = 53;
static const uint8_t NODE = 7;          /* the number of this node on the bus */
static const uint32_t PRIORITY = 254UL; /* no real time */

static Mcp2515 can(SELECT_PIN);
static bool is_open[256];
static uint8_t sequence;
static uint16_t malformed;

static void publish_valve(uint8_t room, uint8_t opening)
{
    rooms_valve valve = {};
    CanFrame frame;
    uint16_t etag;

    valve.type = ROOMS_TYPE_VALVE;
    valve.room = room;
    valve.opening = opening;
    frame.size = (uint8_t)rooms_valve_encode(&valve, sequence, frame.data, sizeof frame.data, &etag);
    frame.identifier = (PRIORITY << 21) | ((uint32_t)NODE << 14) | etag;
    if ((frame.size > 0) && can.send(frame)) {
        sequence++;
    }
}

/* -- handlers: declared in rooms.h, one for each subscription ----------------------------------------------------- */

void rooms_on_cold(const rooms_measured *event)
{
    const uint8_t opening = is_open[event->room] ? 0 : ((event->tenths < 150) ? 100 : 50);

    Serial.print("cold: room ");
    Serial.print(event->room);
    Serial.print(", tenths ");
    Serial.println(event->tenths);
    publish_valve(event->room, opening);
}

void rooms_on_empty(const rooms_measured *event)
{
    Serial.print("empty: battery in room ");
    Serial.println(event->room);
}

void rooms_on_humid(const rooms_measured *event)
{
    Serial.print("humid: room ");
    Serial.print(event->room);
    Serial.print(", percent ");
    Serial.println(event->percent);
}

void rooms_on_window(const rooms_window *event)
{
    is_open[event->room] = event->open;
    Serial.print(event->open ? "opened: room " : "closed: room ");
    Serial.println(event->room);
}

/* -- the program ---------------------------------------------------------------------------------------------------- */

void setup()
{
    Serial.begin(57600);
    Serial.println(can.begin(rooms_filters, ROOMS_FILTERS) ? "ready" : "no CAN controller");
}

void loop()
{
    CanFrame frame;

    if (can.receive(frame) && (rooms_receive(frame.identifier & 0x3FFF, frame.data, frame.size) == GENUS_MALFORMED)) {
        malformed++;
        Serial.print("malformed: ");
        Serial.println(malformed);
    }
}
