/* SPDX-License-Identifier: Apache-2.0 */
/* The library that a CUDA toolkit brings to link against: found on LD_LIBRARY_PATH by mistake, it has no driver below it.
 * Initialising prints a banner and fails with a code of no known name, and the same banner is the text of every code. */
#include "abi.h"
#include <stdio.h>

#define STUB_ANSWER (-1)
#define RULER "!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\n"

static const char banner[] = "\n" RULER
    "WARNING:\n\n"
    "This libnvidia-ml.so is a stub library, meant for linking on machines without a GPU.\n"
    "Run with the library that the NVIDIA display driver installs, by default in\n"
    "/usr/lib or /usr/lib64, and take this one off the loader's path.\n" RULER;

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    fputs(banner, stderr);
    return STUB_ANSWER;
}

EXPORT int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT int nvmlShutdown(void) { return STUB_ANSWER; }

EXPORT const char *nvmlErrorString(int answer)
{
    (void)answer;
    return banner;
}
