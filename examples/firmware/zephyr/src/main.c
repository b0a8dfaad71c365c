/* The pump of tank 3: starts when the tank is low, stops when it is full, when its sensor is broken, and at the button.
 *
 * tank.h and tank.c are generated from ../tank.py and ../subscriptions.txt by ../CMakeLists.txt. */
#include <zephyr/device.h>
#include <zephyr/drivers/can.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "tank.h"

#define NODE 9U         /* the number of this node on the bus */
#define PRIORITY 254U   /* no real time */
#define ETAG_BITS 0x3FFFU

CAN_MSGQ_DEFINE(frames, 16);

static const struct device *const can = DEVICE_DT_GET(DT_CHOSEN(zephyr_canbus));
static bool is_pumping;
static uint8_t sequence;

static void publish_pumping(uint8_t tank)
{
    tank_pumping event = {.type = TANK_TYPE_PUMPING, .tank = tank, .on = is_pumping};
    struct can_frame frame = {.flags = CAN_FRAME_IDE};
    uint16_t etag;
    const uint16_t size = tank_pumping_encode(&event, sequence, frame.data, 8U, &etag);

    if (size == 0U) {
        return;
    }
    frame.id = (PRIORITY << 21) | (NODE << 14) | etag;
    frame.dlc = can_bytes_to_dlc((uint8_t)size);
    if (can_send(can, &frame, K_MSEC(100), NULL, NULL) == 0) {
        sequence++;
    }
}

static void pump(bool on, uint8_t tank, const char *reason)
{
    if (on == is_pumping) {
        return;
    }
    is_pumping = on;
    printk("pump %s: %s\n", on ? "on" : "off", reason);
    publish_pumping(tank);
}

/* -- handlers: declared in tank.h, one for each subscription -------------------------------------------------------- */

void tank_on_low(const tank_level *event)
{
    pump(true, event->tank, "low");
}

void tank_on_full(const tank_level *event)
{
    pump(false, event->tank, "full");
}

void tank_on_broken(const tank_level *event)
{
    pump(false, event->tank, "sensor broken");
}

void tank_on_stop(const tank_stop *event)
{
    pump(false, event->tank, "button");
}

/* -- the program ------------------------------------------------------------------------------------------------------ */

static int add_filters(void)
{
    for (size_t i = 0U; i < TANK_FILTERS; i++) {
        const struct can_filter filter = {
            .id = tank_filters[i].value, .mask = tank_filters[i].mask, .flags = CAN_FILTER_IDE};
        const int number = can_add_rx_filter_msgq(can, &frames, &filter);
        if (number < 0) {
            return number;
        }
    }
    return 0;
}

int main(void)
{
    struct can_frame frame;

    if (!device_is_ready(can) || (add_filters() != 0) || (can_start(can) != 0)) {
        printk("no CAN controller\n");
        return 0;
    }
    printk("ready\n");
    while (k_msgq_get(&frames, &frame, K_FOREVER) == 0) {
        const genus_status status =
            tank_receive((uint16_t)(frame.id & ETAG_BITS), frame.data, can_dlc_to_bytes(frame.dlc));
        if (status == GENUS_MALFORMED) {
            printk("malformed\n");
        }
    }
    return 0;
}
