/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices there are, and who each one is. */
#include "call.h"
#include <stdio.h>
#include <string.h>

#define BRAND_NVIDIA 14
#define ARCHITECTURE_OF(gpu) ((gpu)->capability_major == 9 ? 9u : (gpu)->capability_major == 8 ? 7u : 10u)

EXPORT int nvmlDeviceGetCount_v2(unsigned *count)
{
    struct call call = LIBRARY_CALL(nvmlDeviceGetCount_v2);
    if (call.answer == SUCCESS)
        *count = (unsigned)call.world->gpus.count;
    return call_finish(&call);
}

static int give_handle(struct call call, device_t *device)
{
    if (call.answer == SUCCESS)
        *device = handle_of(call.gpu, call.instance);
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device)
{
    struct target target = {.how = BY_INDEX, .index = index};
    return give_handle(call_begin(FN_nvmlDeviceGetHandleByIndex_v2, target), device);
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device)
{
    struct target target = {.how = BY_UUID, .key = uuid};
    return give_handle(call_begin(FN_nvmlDeviceGetHandleByUUID, target), device);
}

EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, device_t *device)
{
    struct target target = {.how = BY_BUS, .key = bus};
    return give_handle(call_begin(FN_nvmlDeviceGetHandleByPciBusId_v2, target), device);
}

EXPORT int nvmlDeviceGetPciInfo_v3(device_t device, struct pci_info *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetPciInfo_v3, device);
    if (call.answer == SUCCESS) {
        memset(out, 0, sizeof *out);
        sscanf(call.gpu->bus, "%x:%x:%x", &out->domain, &out->bus, &out->device);
        snprintf(out->busId, sizeof out->busId, "%.31s", call.gpu->bus);
        snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04X:%02X:%02X.0", out->domain & 0xFFFF,
                 out->bus & 0xFF, out->device & 0xFF);
        out->pciDeviceId = 0x233010DE;
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetPciInfoExt(device_t device, struct pci_info_ext *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetPciInfoExt, device);
    if (call.answer == SUCCESS && out->version != VERSION_WORD(*out, 1))
        call.answer = ARGUMENT_VERSION_MISMATCH;
    if (call.answer == SUCCESS) {
        sscanf(call.gpu->bus, "%x:%x:%x", &out->domain, &out->bus, &out->device);
        snprintf(out->busId, sizeof out->busId, "%.31s", call.gpu->bus);
        out->pciDeviceId = 0x233010DE;
        out->baseClass = 3;
        out->subClass = 2;
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetName(device_t device, char *name, unsigned size)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetName, device);
    char text[2 * TEXT_SIZE + 8];
    if (call.answer == SUCCESS) {
        snprintf(text, sizeof text, call.instance ? "%s MIG %s" : "%s", call.gpu->name,
                 call.instance ? call.instance->profile : "");
        call.answer = copy_text(text, name, size);
    }
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned size)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetUUID, device);
    if (call.answer == SUCCESS)
        call.answer = copy_text(call.instance ? call.instance->uuid : call.gpu->uuid, uuid, size);
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetSerial(device_t device, char *serial, unsigned size)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetSerial, device);
    if (call.answer == SUCCESS)
        call.answer = call.gpu->serial[0] ? copy_text(call.gpu->serial, serial, size) : NOT_SUPPORTED;
    return call_finish(&call);
}

/* An instance has no /dev/nvidiaN of its own. */
EXPORT int nvmlDeviceGetMinorNumber(device_t device, unsigned *minor)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetMinorNumber, device);
    if (call.answer == SUCCESS && call.instance)
        call.answer = NOT_SUPPORTED;
    if (call.answer == SUCCESS)
        *minor = call.gpu->minor;
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetIndex(device_t device, unsigned *index)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetIndex, device);
    if (call.answer == SUCCESS)
        *index = call.instance ? call.instance->slot : (unsigned)(call.gpu - call.world->gpus.items);
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetBrand(device_t device, unsigned *brand)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetBrand, device);
    if (call.answer == SUCCESS)
        *brand = BRAND_NVIDIA;
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetArchitecture(device_t device, unsigned *architecture)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetArchitecture, device);
    if (call.answer == SUCCESS)
        *architecture = ARCHITECTURE_OF(call.gpu);
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetCudaComputeCapability(device_t device, int *major, int *minor)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetCudaComputeCapability, device);
    if (call.answer == SUCCESS) {
        *major = (int)call.gpu->capability_major;
        *minor = (int)call.gpu->capability_minor;
    }
    return call_finish(&call);
}
