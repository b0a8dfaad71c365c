#ifndef STUB_CAN_H
#define STUB_CAN_H

#include <stdint.h>

#include <zephyr/device.h>
#include <zephyr/kernel.h>

#define CAN_FRAME_IDE 1U
#define CAN_FILTER_IDE 1U
#define CAN_MAX_DLEN 8U

struct can_frame {
    uint32_t id : 29;
    uint32_t reserved : 3;
    uint8_t dlc;
    uint8_t flags;
    uint8_t data[CAN_MAX_DLEN];
};

struct can_filter {
    uint32_t id;
    uint32_t mask;
    uint8_t flags;
};

typedef void (*can_tx_callback_t)(const struct device *dev, int error, void *user_data);

#define CAN_MSGQ_DEFINE(name, size) struct k_msgq name = {sizeof(struct can_frame), (size)}

int can_start(const struct device *dev);
int can_add_rx_filter_msgq(const struct device *dev, struct k_msgq *msgq, const struct can_filter *filter);
int can_send(const struct device *dev, const struct can_frame *frame, k_timeout_t timeout,
             can_tx_callback_t callback, void *user_data);
uint8_t can_dlc_to_bytes(uint8_t dlc);
uint8_t can_bytes_to_dlc(uint8_t num_bytes);

#endif
