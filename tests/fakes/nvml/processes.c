/* SPDX-License-Identifier: Apache-2.0 */
/* Who runs on a device, and how much of it each process uses. */
#include "call.h"
#include "grants.h"

#define SHARE_CAPACITY 100u /* what real drivers answer to a probe, however many processes there are */

static int runs_here(const struct call *call, const struct process *process, enum process_kind kind)
{
    const struct instance *instance = call->instance;
    if (process->kind != kind || process->gpu != call->gpu - call->world->gpus.items)
        return 0;
    return !instance || (process->info.gpuInstanceId == instance->gi && process->info.computeInstanceId == instance->ci);
}

static int list_processes(struct call *call, enum process_kind kind, unsigned *size, struct process_info *out)
{
    unsigned count = 0;
    for (int i = 0; i < call->world->processes.count; i++) {
        const struct process *process = &call->world->processes.items[i];
        if (!runs_here(call, process, kind))
            continue;
        if (out && count < *size)
            out[count] = process->info;
        count++;
    }
    int fits = count == 0 || (out && count <= *size);
    *size = count;
    return fits ? SUCCESS : INSUFFICIENT_SIZE;
}

#define RUNNING(name, kind)                                                          \
    EXPORT int name(device_t device, unsigned *count, struct process_info *infos)    \
    {                                                                                \
        struct call call = DEVICE_CALL(name, device);                                \
        if (call.answer == SUCCESS)                                                  \
            call.answer = list_processes(&call, kind, count, infos);                 \
        return call_finish(&call);                                                   \
    }

RUNNING(nvmlDeviceGetComputeRunningProcesses_v2, COMPUTE)
RUNNING(nvmlDeviceGetComputeRunningProcesses_v3, COMPUTE)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v2, GRAPHICS)
RUNNING(nvmlDeviceGetGraphicsRunningProcesses_v3, GRAPHICS)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v2, MPS)
RUNNING(nvmlDeviceGetMPSComputeRunningProcesses_v3, MPS)

static unsigned long long stamp_of(const struct call *call, const struct share *share)
{
    unsigned long long now = now_us(clock_of(call->gpu));
    return share->stamp ? share->stamp : now - now % TICK_US - share->age;
}

/* The next share of this GPU with a stamp later than seen, from place on; NULL when there is none. */
static const struct share *next_share(const struct call *call, unsigned long long seen, int *place)
{
    while (*place < call->world->shares.count) {
        const struct share *share = &call->world->shares.items[(*place)++];
        if (share->gpu == call->gpu - call->world->gpus.items && stamp_of(call, share) > seen)
            return share;
    }
    return NULL;
}

static unsigned count_shares(const struct call *call, unsigned long long seen)
{
    unsigned count = 0;
    for (int place = 0; next_share(call, seen, &place);)
        count++;
    return count;
}

/* SUCCESS when the caller may be given what is new; sets the size that a second call needs. */
static int offer_shares(const struct call *call, unsigned long long seen, const void *out, unsigned *size)
{
    grants_sample(call, seen);
    unsigned count = count_shares(call, seen), room = out ? *size : 0;
    if (room < count || !out) {
        *size = count > SHARE_CAPACITY ? count : SHARE_CAPACITY;
        return INSUFFICIENT_SIZE;
    }
    *size = count;
    return count ? SUCCESS : NOT_FOUND;
}

EXPORT int nvmlDeviceGetProcessUtilization(device_t device, struct process_utilization *out, unsigned *count,
                                           unsigned long long seen)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetProcessUtilization, device);
    const struct share *share;
    if (call.answer == SUCCESS)
        call.answer = call.gpu->mig_on ? NOT_SUPPORTED : offer_shares(&call, seen, out, count);
    if (call.answer == SUCCESS)
        for (int place = 0; (share = next_share(&call, seen, &place)); out++)
            *out = (struct process_utilization){share->pid, stamp_of(&call, share), share->sm,
                                                share->memory, share->encoder, share->decoder};
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetProcessesUtilizationInfo(device_t device, struct processes_utilization_info *info)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetProcessesUtilizationInfo, device);
    struct process_utilization_info *out = info->procUtilArray;
    unsigned long long seen = info->lastSeenTimeStamp;
    const struct share *share;
    if (call.answer == SUCCESS && info->version != VERSION_WORD(*info, 1))
        call.answer = ARGUMENT_VERSION_MISMATCH;
    if (call.answer == SUCCESS)
        call.answer = call.gpu->mig_on ? NOT_SUPPORTED : offer_shares(&call, seen, out, &info->processSamplesCount);
    if (call.answer == SUCCESS)
        for (int place = 0; (share = next_share(&call, seen, &place)); out++)
            *out = (struct process_utilization_info){stamp_of(&call, share), share->pid, share->sm, share->memory,
                                                     share->encoder, share->decoder, 0, 0};
    return call_finish(&call);
}
