/* SPDX-License-Identifier: Apache-2.0 */
/* Counters in the file named by FAKE_NVML_COUNTS, mapped and shared, so that a test reads those of a running process.
 * Records of 64 bytes: a name (56, zero-padded) and an unsigned 64-bit number in the machine's byte order. */
#ifndef FAKE_NVML_COUNTS_H
#define FAKE_NVML_COUNTS_H

#include "functions.h"

enum extra_count {
    IN_FLIGHT = FUNCTION_COUNT, /* calls that have entered and not returned */
    REFERENCES,                 /* initialisations that no shutdown has taken back */
    SHUTDOWN_WHILE_IN_FLIGHT,   /* shutdowns that arrived while another call of the same process was inside */
    GPM_SAMPLES,                /* sample buffers that were allocated and not freed */
    COUNT_TOTAL,
};

/* Add to one counter, a function's number or an extra one; does nothing without a counts file. */
void count_add(int counter, int amount);

#endif
