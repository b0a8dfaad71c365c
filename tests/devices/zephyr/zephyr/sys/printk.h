#ifndef STUB_PRINTK_H
#define STUB_PRINTK_H

void printk(const char *format, ...);

#endif
