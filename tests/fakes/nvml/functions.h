/* SPDX-License-Identifier: Apache-2.0 */
/* The table of functions: one line here gives a function its number, its name in the rules of the world file and its
 * record in the counts file. Append only a line here and a body elsewhere to serve one more. */
#ifndef FAKE_NVML_FUNCTIONS_H
#define FAKE_NVML_FUNCTIONS_H

#define FUNCTIONS(X)                                \
    X(nvmlInitWithFlags)                            \
    X(nvmlInit_v2)                                  \
    X(nvmlShutdown)                                 \
    X(nvmlErrorString)                              \
    X(nvmlSystemGetDriverVersion)                   \
    X(nvmlSystemGetNVMLVersion)                     \
    X(nvmlSystemGetCudaDriverVersion)               \
    X(nvmlSystemGetCudaDriverVersion_v2)            \
    X(nvmlSystemGetProcessName)                     \
    X(nvmlDeviceGetCount_v2)                        \
    X(nvmlDeviceGetHandleByIndex_v2)                \
    X(nvmlDeviceGetHandleByUUID)                    \
    X(nvmlDeviceGetHandleByPciBusId_v2)             \
    X(nvmlDeviceGetPciInfo_v3)                      \
    X(nvmlDeviceGetPciInfoExt)                      \
    X(nvmlDeviceGetName)                            \
    X(nvmlDeviceGetUUID)                            \
    X(nvmlDeviceGetSerial)                          \
    X(nvmlDeviceGetMinorNumber)                     \
    X(nvmlDeviceGetIndex)                           \
    X(nvmlDeviceGetBrand)                           \
    X(nvmlDeviceGetArchitecture)                    \
    X(nvmlDeviceGetCudaComputeCapability)           \
    X(nvmlDeviceGetMemoryInfo)                      \
    X(nvmlDeviceGetMemoryInfo_v2)                   \
    X(nvmlDeviceGetBAR1MemoryInfo)                  \
    X(nvmlDeviceGetUtilizationRates)                \
    X(nvmlDeviceGetSamples)                         \
    X(nvmlDeviceGetEncoderUtilization)              \
    X(nvmlDeviceGetDecoderUtilization)              \
    X(nvmlDeviceGetComputeRunningProcesses_v2)      \
    X(nvmlDeviceGetComputeRunningProcesses_v3)      \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2)     \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3)     \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2)   \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3)   \
    X(nvmlDeviceGetProcessUtilization)              \
    X(nvmlDeviceGetProcessesUtilizationInfo)        \
    X(nvmlDeviceGetMigMode)                         \
    X(nvmlDeviceGetMaxMigDeviceCount)               \
    X(nvmlDeviceGetMigDeviceHandleByIndex)          \
    X(nvmlDeviceIsMigDeviceHandle)                  \
    X(nvmlDeviceGetGpuInstanceId)                   \
    X(nvmlDeviceGetComputeInstanceId)               \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
    X(nvmlDeviceGetAttributes_v2)                   \
    X(nvmlDeviceGetPowerUsage)                      \
    X(nvmlDeviceGetPowerManagementLimit)            \
    X(nvmlDeviceGetEnforcedPowerLimit)              \
    X(nvmlDeviceGetTotalEnergyConsumption)          \
    X(nvmlDeviceGetTemperature)                     \
    X(nvmlDeviceGetTemperatureV)                    \
    X(nvmlDeviceGetClockInfo)                       \
    X(nvmlDeviceGetMaxClockInfo)                    \
    X(nvmlDeviceGetFanSpeed)                        \
    X(nvmlDeviceGetDriverModel)                     \
    X(nvmlDeviceGetDriverModel_v2)                  \
    X(nvmlDeviceGetPerformanceState)                \
    X(nvmlDeviceGetPcieThroughput)                  \
    X(nvmlDeviceGetPersistenceMode)                 \
    X(nvmlDeviceGetComputeMode)                     \
    X(nvmlDeviceGetDisplayMode)                     \
    X(nvmlDeviceGetDisplayActive)                   \
    X(nvmlDeviceGetTotalEccErrors)                  \
    X(nvmlDeviceGetCurrentClocksEventReasons)       \
    X(nvmlDeviceGetFieldValues)                     \
    X(nvmlGpmQueryDeviceSupport)                    \
    X(nvmlGpmSampleAlloc)                           \
    X(nvmlGpmSampleFree)                            \
    X(nvmlGpmSampleGet)                             \
    X(nvmlGpmMigSampleGet)                          \
    X(nvmlGpmMetricsGet)

#define FUNCTION_NUMBER(name) FN_##name,
enum function { FUNCTIONS(FUNCTION_NUMBER) FUNCTION_COUNT };

extern const char *const function_names[FUNCTION_COUNT];

#endif
