#ifndef STUB_KERNEL_H
#define STUB_KERNEL_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int64_t ticks;
} k_timeout_t;

#define K_FOREVER ((k_timeout_t){-1})
#define K_MSEC(ms) ((k_timeout_t){(ms)})

struct k_msgq {
    size_t msg_size;
    uint32_t max_msgs;
};

int k_msgq_get(struct k_msgq *msgq, void *data, k_timeout_t timeout);

#endif
