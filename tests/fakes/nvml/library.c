/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the library as a whole. */
#include "call.h"
#include "counts.h"
#include <stdio.h>

static int initialise(struct call call)
{
    if (call.answer == SUCCESS)
        library_acquire();
    return call_finish(&call);
}

EXPORT int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return initialise(LIBRARY_CALL(nvmlInitWithFlags));
}

EXPORT int nvmlInit_v2(void) { return initialise(LIBRARY_CALL(nvmlInit_v2)); }

EXPORT int nvmlShutdown(void)
{
    struct call call = LIBRARY_CALL(nvmlShutdown);
    if (call.answer == SUCCESS)
        library_release();
    return call_finish(&call);
}

EXPORT const char *nvmlErrorString(int answer)
{
    static const struct { int answer; const char *text; } texts[] = {
        {SUCCESS, "Success"},
        {UNINITIALIZED, "Uninitialized"},
        {INVALID_ARGUMENT, "Invalid Argument"},
        {NOT_SUPPORTED, "Not Supported"},
        {NOT_FOUND, "Not Found"},
        {DRIVER_NOT_LOADED, "Driver Not Loaded"},
        {GPU_IS_LOST, "GPU is lost"},
    };
    count_add(FN_nvmlErrorString, 1);
    for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].answer == answer)
            return texts[i].text;
    return "Unknown Error";
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    struct call call = LIBRARY_CALL(nvmlSystemGetDriverVersion);
    if (call.answer == SUCCESS)
        call.answer = copy_text(call.world->driver, version, size);
    return call_finish(&call);
}

EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    struct call call = LIBRARY_CALL(nvmlSystemGetNVMLVersion);
    if (call.answer == SUCCESS)
        call.answer = copy_text(call.world->nvml, version, size);
    return call_finish(&call);
}

static int cuda_version(struct call call, int *version)
{
    if (call.answer == SUCCESS)
        *version = call.world->cuda;
    return call_finish(&call);
}

EXPORT int nvmlSystemGetCudaDriverVersion(int *version)
{
    return cuda_version(LIBRARY_CALL(nvmlSystemGetCudaDriverVersion), version);
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return cuda_version(LIBRARY_CALL(nvmlSystemGetCudaDriverVersion_v2), version);
}

static int read_process_name(unsigned pid, char *name, unsigned size)
{
    char path[32], text[1024] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NOT_FOUND;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return length ? copy_text(text, name, size) : NOT_FOUND;
}

EXPORT int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
    struct call call = LIBRARY_CALL(nvmlSystemGetProcessName);
    if (call.answer == SUCCESS)
        call.answer = read_process_name(pid, name, size);
    return call_finish(&call);
}
