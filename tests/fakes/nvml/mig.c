/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs cut into instances. */
#include "call.h"

EXPORT int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetMigMode, device);
    if (call.answer == SUCCESS && !call.gpu->mig_capable)
        call.answer = NOT_SUPPORTED;
    if (call.answer == SUCCESS) {
        *current = (unsigned)call.gpu->mig_on;
        *pending = *current ^ (unsigned)call.gpu->mig_pending;
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned *count)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetMaxMigDeviceCount, device);
    if (call.answer == SUCCESS)
        *count = call.gpu->mig_slots;
    return call_finish(&call);
}

static int find_slot(struct call *call, unsigned slot)
{
    if (!call->gpu->mig_on)
        return NOT_SUPPORTED;
    if (slot >= call->gpu->mig_slots)
        return INVALID_ARGUMENT;
    for (int i = 0; i < call->world->instances.count; i++) {
        call->instance = &call->world->instances.items[i];
        if (call->instance->slot == slot && call->instance->gpu == call->gpu - call->world->gpus.items)
            return SUCCESS;
    }
    return NOT_FOUND;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned index, device_t *instance)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetMigDeviceHandleByIndex, device);
    if (call.answer == SUCCESS)
        call.answer = call.instance ? INVALID_ARGUMENT : find_slot(&call, index);
    if (call.answer == SUCCESS)
        call.answer = ruled_error(&call); /* now it is about the instance */
    if (call.answer == SUCCESS)
        *instance = handle_of(call.gpu, call.instance);
    return call_finish(&call);
}

EXPORT int nvmlDeviceIsMigDeviceHandle(device_t device, unsigned *is_instance)
{
    struct call call = DEVICE_CALL(nvmlDeviceIsMigDeviceHandle, device);
    if (call.answer == SUCCESS)
        *is_instance = call.instance != NULL;
    return call_finish(&call);
}

static struct call instance_only(struct call call)
{
    if (call.answer == SUCCESS && !call.instance)
        call.answer = INVALID_ARGUMENT;
    return call;
}

EXPORT int nvmlDeviceGetGpuInstanceId(device_t device, unsigned *id)
{
    struct call call = instance_only(DEVICE_CALL(nvmlDeviceGetGpuInstanceId, device));
    if (call.answer == SUCCESS)
        *id = call.instance->gi;
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetComputeInstanceId(device_t device, unsigned *id)
{
    struct call call = instance_only(DEVICE_CALL(nvmlDeviceGetComputeInstanceId, device));
    if (call.answer == SUCCESS)
        *id = call.instance->ci;
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device_t instance, device_t *device)
{
    struct call call = instance_only(DEVICE_CALL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, instance));
    if (call.answer == SUCCESS)
        *device = handle_of(call.gpu, NULL);
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetAttributes_v2(device_t device, struct device_attributes *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetAttributes_v2, device);
    if (call.answer == SUCCESS && !call.instance)
        call.answer = NOT_SUPPORTED;
    if (call.answer == SUCCESS)
        *out = (struct device_attributes){
            .multiprocessorCount = 14 * call.instance->compute_slices,
            .gpuInstanceSliceCount = call.instance->slices,
            .computeInstanceSliceCount = call.instance->compute_slices,
            .memorySizeMB = call.instance->memory.total >> 20,
        };
    return call_finish(&call);
}
