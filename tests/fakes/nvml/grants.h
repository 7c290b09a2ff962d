/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver gives to processes over time: the truth that its samples tell of, and a log of it.
 *
 * The log is the file named by FAKE_NVML_GRANTS, a line for each stretch of ticks that was granted until the world's
 * clock: FIRST LAST UUID PID SM, the stamps of its first and last tick in microseconds since boot. */
#ifndef FAKE_NVML_GRANTS_H
#define FAKE_NVML_GRANTS_H

#include "call.h"

/* Log what was granted between the clock of the world before and this world's, which is stopped; whether anybody asks or not. */
void grants_log(const struct world *world);

/* Make the shares of this GPU's processes anew: means over the ticks that the driver holds with a stamp later than seen. */
void grants_sample(const struct call *call, unsigned long long seen);

#endif
