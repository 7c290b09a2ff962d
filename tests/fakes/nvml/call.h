/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of the fake is: begin a call, answer from the world if the call may succeed, finish.
 *
 * Beginning counts the call, hangs and sleeps as the rules say, and returns with the lock held; finishing releases it.
 * The lock is never held while sleeping. */
#ifndef FAKE_NVML_CALL_H
#define FAKE_NVML_CALL_H

#include "functions.h"
#include "world.h"
#include <time.h>

#define TICK_US 166667ull /* the driver makes about six samples a second */

enum how { OF_THE_LIBRARY, BY_HANDLE, BY_INDEX, BY_UUID, BY_BUS };

struct target {
    enum how how;
    const void *key;
    unsigned index;
};

struct call {
    enum function function;
    int answer;                      /* SUCCESS: the body may fill in the caller's memory; it may set another answer */
    struct world *world;
    const struct gpu *gpu;           /* NULL unless the target is one, or an instance of it */
    const struct instance *instance; /* NULL for a whole GPU */
};

struct call call_begin(enum function function, struct target target);
int call_finish(struct call *call);

#define LIBRARY_CALL(name) call_begin(FN_##name, (struct target){.how = OF_THE_LIBRARY})
#define DEVICE_CALL(name, device) call_begin(FN_##name, (struct target){.how = BY_HANDLE, .key = (device)})

/* Change the number of initialisations; the first one makes the handles of earlier ones invalid. */
void library_acquire(void);
void library_release(void);

/* The handle of a GPU, or of an instance that is asked for by slot; the same until the library was shut down.
 *
 * As the header warns, a slot's handle is used again for the instance that is asked for next in this slot. */
device_t handle_of(const struct gpu *gpu, const struct instance *instance);

/* What the rules answer to the call in place of values; SUCCESS when none does. */
int ruled_error(const struct call *call);

/* Copy a string to the caller as NVML does: INSUFFICIENT_SIZE if it does not fit. */
int copy_text(const char *text, char *out, unsigned size);

/* The time of either clock; set_clock stops both at these microseconds, or lets the kernel's go on (0). */
void set_clock(unsigned long long epoch, unsigned long long boottime);
unsigned long long now_us(clockid_t clock);
clockid_t clock_of(const struct gpu *gpu);

#endif
