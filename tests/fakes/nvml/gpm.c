/* SPDX-License-Identifier: Apache-2.0 */
/* Hopper's performance counters: a sample is taken into a buffer, and a metric is what two samples differ by. */
#include "call.h"
#include "counts.h"
#include <math.h>

#define HOPPER 9u
#define SAMPLE_COUNT 512

struct gpm_sample {
    int allocated, filled;
    double busy; /* percent of the time, of what was sampled; infinite: nobody can tell */
};

static struct gpm_sample samples[SAMPLE_COUNT];

static struct gpm_sample *live(void *sample)
{
    for (int i = 0; i < SAMPLE_COUNT; i++)
        if (sample == &samples[i] && samples[i].allocated)
            return &samples[i];
    return NULL;
}

EXPORT int nvmlGpmQueryDeviceSupport(device_t device, struct gpm_support *support)
{
    struct call call = DEVICE_CALL(nvmlGpmQueryDeviceSupport, device);
    if (call.answer == SUCCESS && support->version != 1)
        call.answer = ARGUMENT_VERSION_MISMATCH;
    if (call.answer == SUCCESS)
        support->isSupportedDevice = call.gpu->capability_major >= HOPPER;
    return call_finish(&call);
}

EXPORT int nvmlGpmSampleAlloc(void **sample)
{
    struct call call = LIBRARY_CALL(nvmlGpmSampleAlloc);
    int place = 0;
    while (call.answer == SUCCESS && place < SAMPLE_COUNT && samples[place].allocated)
        place++;
    if (call.answer == SUCCESS && place == SAMPLE_COUNT)
        call.answer = UNKNOWN;
    if (call.answer == SUCCESS) {
        samples[place] = (struct gpm_sample){.allocated = 1};
        *sample = &samples[place];
        count_add(GPM_SAMPLES, 1);
    }
    return call_finish(&call);
}

EXPORT int nvmlGpmSampleFree(void *sample)
{
    struct call call = LIBRARY_CALL(nvmlGpmSampleFree);
    if (call.answer == SUCCESS && !live(sample))
        call.answer = INVALID_ARGUMENT;
    if (call.answer == SUCCESS) {
        live(sample)->allocated = 0;
        count_add(GPM_SAMPLES, -1);
    }
    return call_finish(&call);
}

static int fill(const struct call *call, void *key, double busy)
{
    struct gpm_sample *sample = live(key);
    if (call->gpu->capability_major < HOPPER)
        return NOT_SUPPORTED;
    if (!sample)
        return INVALID_ARGUMENT;
    sample->filled = 1;
    sample->busy = busy;
    return SUCCESS;
}

EXPORT int nvmlGpmSampleGet(device_t device, void *sample)
{
    struct call call = DEVICE_CALL(nvmlGpmSampleGet, device);
    if (call.answer == SUCCESS)
        call.answer = fill(&call, sample, call.instance ? call.instance->busy : call.gpu->busy);
    return call_finish(&call);
}

/* The counters are the GPU instance's: what its compute instances do, by their parts of it. */
static int busy_of(const struct call *call, unsigned gi, double *busy)
{
    int found = 0;
    *busy = 0;
    for (int i = 0; i < call->world->instances.count; i++) {
        const struct instance *it = &call->world->instances.items[i];
        if (it->gpu != call->gpu - call->world->gpus.items || it->gi != gi)
            continue;
        *busy += it->busy * it->compute_slices / it->slices;
        found = 1;
    }
    return found;
}

EXPORT int nvmlGpmMigSampleGet(device_t device, unsigned gi, void *sample)
{
    struct call call = DEVICE_CALL(nvmlGpmMigSampleGet, device);
    double busy = 0;
    if (call.answer == SUCCESS && (call.instance || !busy_of(&call, gi, &busy)))
        call.answer = INVALID_ARGUMENT;
    if (call.answer == SUCCESS)
        call.answer = fill(&call, sample, busy);
    return call_finish(&call);
}

static int compute(struct gpm_metrics *wanted)
{
    const struct gpm_sample *first = live(wanted->sample1), *second = live(wanted->sample2);
    if (wanted->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    if (!first || !second || first == second || !first->filled || !second->filled)
        return INVALID_ARGUMENT;
    for (unsigned i = 0; i < wanted->numMetrics; i++) {
        struct gpm_metric *metric = &wanted->metrics[i];
        int is_told = metric->metricId == GPM_METRIC_GRAPHICS_UTIL && !isinf(second->busy);
        metric->nvmlReturn = is_told ? SUCCESS : NOT_SUPPORTED;
        metric->value = is_told ? second->busy : 42;
    }
    return SUCCESS;
}

EXPORT int nvmlGpmMetricsGet(struct gpm_metrics *wanted)
{
    struct call call = LIBRARY_CALL(nvmlGpmMetricsGet);
    if (call.answer == SUCCESS)
        call.answer = compute(wanted);
    return call_finish(&call);
}
