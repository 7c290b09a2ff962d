/* SPDX-License-Identifier: Apache-2.0 */
/* What peers of the product ask besides: the same numbers on every GPU. */
#include "call.h"

#define POWER_MW 350000
#define CELSIUS 55

#define CONSTANT(name, constant)                      \
    EXPORT int name(device_t device, unsigned *out)   \
    {                                                 \
        struct call call = DEVICE_CALL(name, device); \
        if (call.answer == SUCCESS)                   \
            *out = (constant);                        \
        return call_finish(&call);                    \
    }

#define CONSTANT_OF(name, constant)                                  \
    EXPORT int name(device_t device, unsigned which, unsigned *out)  \
    {                                                                \
        struct call call = DEVICE_CALL(name, device);                \
        (void)which;                                                 \
        if (call.answer == SUCCESS)                                  \
            *out = (constant);                                       \
        return call_finish(&call);                                   \
    }

CONSTANT(nvmlDeviceGetPowerUsage, POWER_MW)
CONSTANT(nvmlDeviceGetPowerManagementLimit, 2 * POWER_MW)
CONSTANT(nvmlDeviceGetEnforcedPowerLimit, 2 * POWER_MW)
CONSTANT(nvmlDeviceGetPerformanceState, 0)
CONSTANT(nvmlDeviceGetPersistenceMode, 1)
CONSTANT(nvmlDeviceGetComputeMode, 0)
CONSTANT(nvmlDeviceGetDisplayMode, 0)
CONSTANT(nvmlDeviceGetDisplayActive, 0)
CONSTANT_OF(nvmlDeviceGetTemperature, CELSIUS)
CONSTANT_OF(nvmlDeviceGetClockInfo, 1410)
CONSTANT_OF(nvmlDeviceGetMaxClockInfo, 1980)
CONSTANT_OF(nvmlDeviceGetPcieThroughput, 1024)

static int refuse(struct call call)
{
    if (call.answer == SUCCESS)
        call.answer = NOT_SUPPORTED;
    return call_finish(&call);
}

/* Boards of servers have no fan of their own. */
EXPORT int nvmlDeviceGetFanSpeed(device_t device, unsigned *speed)
{
    (void)speed;
    return refuse(DEVICE_CALL(nvmlDeviceGetFanSpeed, device));
}

/* Driver models exist on Windows only. */
EXPORT int nvmlDeviceGetDriverModel(device_t device, unsigned *current, unsigned *pending)
{
    (void)current, (void)pending;
    return refuse(DEVICE_CALL(nvmlDeviceGetDriverModel, device));
}

EXPORT int nvmlDeviceGetDriverModel_v2(device_t device, unsigned *current, unsigned *pending)
{
    (void)current, (void)pending;
    return refuse(DEVICE_CALL(nvmlDeviceGetDriverModel_v2, device));
}

EXPORT int nvmlDeviceGetTemperatureV(device_t device, struct temperature *out)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetTemperatureV, device);
    if (call.answer == SUCCESS && out->version != VERSION_WORD(*out, 1))
        call.answer = ARGUMENT_VERSION_MISMATCH;
    if (call.answer == SUCCESS)
        out->temperature = CELSIUS;
    return call_finish(&call);
}

static unsigned long long energy_mj(void) { return now_us(CLOCK_BOOTTIME) / 1000 * POWER_MW / 1000; }

EXPORT int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *energy)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetTotalEnergyConsumption, device);
    if (call.answer == SUCCESS)
        *energy = energy_mj();
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *reasons)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetCurrentClocksEventReasons, device);
    if (call.answer == SUCCESS)
        *reasons = 0;
    return call_finish(&call);
}

EXPORT int nvmlDeviceGetTotalEccErrors(device_t device, unsigned error, unsigned counter, unsigned long long *count)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetTotalEccErrors, device);
    (void)error, (void)counter;
    if (call.answer == SUCCESS)
        *count = 0;
    return call_finish(&call);
}

enum field { MEMORY_TEMPERATURE = 82, ENERGY = 83, NVLINK_COUNT = 91, POWER_AVERAGE = 185, POWER_INSTANT = 186 };

/* The call succeeds whatever becomes of a field: each entry has an answer of its own. */
static void fill_field(struct field_value *field)
{
    field->timestamp = (long long)now_us(CLOCK_REALTIME);
    field->nvmlReturn = SUCCESS;
    field->valueType = UNSIGNED_INT;
    switch (field->fieldId) {
    case MEMORY_TEMPERATURE: field->value.uiVal = CELSIUS; break;
    case NVLINK_COUNT: field->value.uiVal = 0; break;
    case POWER_AVERAGE:
    case POWER_INSTANT: field->value.uiVal = POWER_MW; break;
    case ENERGY:
        field->valueType = UNSIGNED_LONG_LONG;
        field->value.ullVal = energy_mj();
        break;
    default: field->nvmlReturn = NOT_SUPPORTED;
    }
}

EXPORT int nvmlDeviceGetFieldValues(device_t device, int count, struct field_value *fields)
{
    struct call call = DEVICE_CALL(nvmlDeviceGetFieldValues, device);
    for (int i = 0; call.answer == SUCCESS && i < count; i++)
        fill_field(&fields[i]);
    return call_finish(&call);
}
