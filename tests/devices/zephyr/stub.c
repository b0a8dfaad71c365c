/* A bus for the host: frames come from standard input (IDENTIFIER and DATA in hexadecimal, a frame a line) and pass the
 * filters that were added; what is sent is printed. The program ends with the input. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zephyr/drivers/can.h>
#include <zephyr/sys/printk.h>

#define MOST_FILTERS 8

const struct device stub_canbus = {"canbus"};

static struct can_filter filters[MOST_FILTERS];
static int filter_count;
static bool is_started;

bool device_is_ready(const struct device *dev)
{
    return dev == &stub_canbus;
}

int can_start(const struct device *dev)
{
    is_started = dev == &stub_canbus;
    return 0;
}

int can_add_rx_filter_msgq(const struct device *dev, struct k_msgq *msgq, const struct can_filter *filter)
{
    (void)dev;
    (void)msgq;
    if (filter_count == MOST_FILTERS) {
        return -28;
    }
    filters[filter_count] = *filter;
    return filter_count++;
}

int can_send(const struct device *dev, const struct can_frame *frame, k_timeout_t timeout, can_tx_callback_t callback,
             void *user_data)
{
    uint8_t i;

    (void)dev;
    (void)timeout;
    (void)callback;
    (void)user_data;
    (void)printf("[sent %08" PRIx32 " ", (uint32_t)frame->id);
    for (i = 0; i < frame->dlc; i++) {
        (void)printf("%02x", frame->data[i]);
    }
    (void)printf("]\n");
    return is_started ? 0 : -100;
}

uint8_t can_dlc_to_bytes(uint8_t dlc)
{
    return (dlc < CAN_MAX_DLEN) ? dlc : CAN_MAX_DLEN;
}

uint8_t can_bytes_to_dlc(uint8_t num_bytes)
{
    return num_bytes;
}

static bool passes(uint32_t id)
{
    int i;

    for (i = 0; i < filter_count; i++) {
        if (((id ^ filters[i].id) & filters[i].mask) == 0) {
            return true;
        }
    }
    (void)printf("[%08" PRIx32 " refused by the filters]\n", id);
    return false;
}

int k_msgq_get(struct k_msgq *msgq, void *data, k_timeout_t timeout)
{
    struct can_frame *frame = data;
    char bytes[17];
    uint32_t id;

    (void)msgq;
    (void)timeout;
    while (scanf("%" SCNx32 " %16[0-9a-f]%*[^\n]", &id, bytes) == 2) {
        if (passes(id)) {
            frame->id = id & 0x1FFFFFFFU;
            frame->flags = CAN_FRAME_IDE;
            frame->dlc = (uint8_t)(strlen(bytes) / 2);
            for (uint8_t i = 0; i < frame->dlc; i++) {
                char pair[3] = {bytes[2 * i], bytes[2 * i + 1], '\0'};
                frame->data[i] = (uint8_t)strtoul(pair, NULL, 16);
            }
            return 0;
        }
    }
    return -11;
}

void printk(const char *format, ...)
{
    va_list values;

    va_start(values, format);
    (void)vprintf(format, values);
    va_end(values);
}
