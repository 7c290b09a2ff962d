/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and utilization. With MIG on, NVML gives no utilization, neither of the GPU nor of an instance. */
#include "call.h"

#define UTILIZATION_SAMPLES 1

static struct memory_use memory_of(const struct call *call)
{
    return call->instance ? call->instance->memory : call->gpu->memory;
}

/* Version 1 counts the driver's reserve as used. */
EXPORT int nvmlDeviceGetMemoryInfo(device_t device, struct memory *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetMemoryInfo, device);
    if (call.answer == SUCCESS) {
        struct memory_use memory = memory_of(&call);
        out->total = memory.total;
        out->used = memory.used + memory.reserved;
        out->free = out->total - out->used;
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(device_t device, struct memory_v2 *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetMemoryInfo_v2, device);
    if (call.answer == SUCCESS && out->version != VERSION_WORD(*out, 2))
        call.answer = ARGUMENT_VERSION_MISMATCH;
    if (call.answer == SUCCESS) {
        struct memory_use memory = memory_of(&call);
        out->total = memory.total;
        out->used = memory.used;
        out->reserved = memory.reserved;
        out->free = memory.total - memory.used - memory.reserved;
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetBAR1MemoryInfo(device_t device, struct bar1_memory *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetBAR1MemoryInfo, device);
    if (call.answer == SUCCESS)
        *out = (struct bar1_memory){.bar1Total = 128ull << 30, .bar1Free = 127ull << 30, .bar1Used = 1ull << 30};
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetUtilizationRates(device_t device, struct utilization *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetUtilizationRates, device);
    if (call.answer == SUCCESS && call.gpu->mig_on)
        call.answer = NOT_SUPPORTED;
    if (call.answer == SUCCESS)
        *out = (struct utilization){.gpu = call.gpu->busy, .memory = call.gpu->memory_busy};
    return call_finish(&call);
}

static int engine(struct call call, unsigned busy, unsigned *out, unsigned *period_us)
{
    if (call.answer == SUCCESS && call.gpu->mig_on)
        call.answer = NOT_SUPPORTED;
    if (call.answer == SUCCESS) {
        *out = busy;
        *period_us = (unsigned)TICK_US;
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetEncoderUtilization(device_t device, unsigned *out, unsigned *period_us)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetEncoderUtilization, device);
    return engine(call, call.gpu ? call.gpu->encoder_busy : 0, out, period_us);
}

EXPORT int nvmlDeviceGetDecoderUtilization(device_t device, unsigned *out, unsigned *period_us)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetDecoderUtilization, device);
    return engine(call, call.gpu ? call.gpu->decoder_busy : 0, out, period_us);
}

static union value typed(int type, double number)
{
    union value value = {.ullVal = 0};
    switch (type) {
    case DOUBLE: value.dVal = number; break;
    case UNSIGNED_INT: value.uiVal = (unsigned)number; break;
    case UNSIGNED_SHORT: value.usVal = (unsigned short)number; break;
    case SIGNED_INT: value.siVal = (int)number; break;
    case SIGNED_LONG_LONG: value.sllVal = (long long)number; break;
    default: value.ullVal = (unsigned long long)number; break;
    }
    return value;
}

/* The buffer from oldest to newest: what was recorded, or the last hundred ticks. */
static struct sample buffered(const struct call *call, int place)
{
    const struct gpu *gpu = call->gpu;
    if (gpu->recorded) {
        unsigned long long written = gpu->boottime_stamps ? call->world->written_boottime : call->world->written_epoch;
        return (struct sample){written - gpu->sample_ages[place], typed(gpu->value_type, gpu->sample_values[place])};
    }
    unsigned long long tick = now_us(clock_of(gpu)) / TICK_US - SAMPLE_CAPACITY + 1 + (unsigned)place;
    double value = gpu->sample_values[tick % (unsigned)gpu->sample_count];
    return (struct sample){tick * TICK_US, typed(gpu->value_type, value)};
}

static int fill_samples(const struct call *call, unsigned long long seen, unsigned *count, struct sample *out)
{
    int available = call->gpu->sample_count && !call->gpu->recorded ? SAMPLE_CAPACITY : call->gpu->sample_count;
    unsigned filled = 0;
    for (int place = 0; place < available && filled < *count; place++) {
        out[filled] = buffered(call, place);
        filled += out[filled].timeStamp > seen;
    }
    *count = filled;
    return filled ? SUCCESS : NOT_FOUND;
}

EXPORT int nvmlDeviceGetSamples(device_t device, unsigned type, unsigned long long seen, unsigned *value_type,
                                unsigned *count, struct sample *samples)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetSamples, device);
    if (call.answer == SUCCESS && (call.gpu->mig_on || type != UTILIZATION_SAMPLES))
        call.answer = NOT_SUPPORTED;
    if (call.answer == SUCCESS && samples && *count == 0)
        call.answer = INVALID_ARGUMENT;
    if (call.answer == SUCCESS) {
        *value_type = (unsigned)call.gpu->value_type;
        if (samples)
            call.answer = fill_samples(&call, seen, count, samples);
        else
            *count = SAMPLE_CAPACITY;
    }
    return call_finish(&call);
}
