/* What examples/firmware/zephyr uses of Zephyr's API, to compile it without Zephyr. */
#ifndef STUB_DEVICE_H
#define STUB_DEVICE_H

#include <stdbool.h>

struct device {
    const char *name;
};

extern const struct device stub_canbus;

#define DT_CHOSEN(property) property
#define DEVICE_DT_GET(node) (&stub_canbus)

bool device_is_ready(const struct device *dev);

#endif
