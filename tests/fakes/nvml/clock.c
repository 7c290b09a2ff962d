/* SPDX-License-Identifier: Apache-2.0 */
/* What time it is for the driver: the kernel's, or what the world says. */
#include "call.h"

static unsigned long long set_epoch, set_boottime;

void set_clock(unsigned long long epoch, unsigned long long boottime)
{
    set_epoch = epoch;
    set_boottime = boottime;
}

unsigned long long now_us(clockid_t clock)
{
    struct timespec now;
    if (set_epoch)
        return clock == CLOCK_BOOTTIME ? set_boottime : set_epoch;
    clock_gettime(clock, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

clockid_t clock_of(const struct gpu *gpu) { return gpu->boottime_stamps ? CLOCK_BOOTTIME : CLOCK_REALTIME; }
