/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVML's binary interface that the fake serves: own declarations, field names as NVML documents them.
 * tests/contract/test_fake_nvml_abi.py compares sizes, offsets and version words with pynvml and with NVIDIA's header. */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

#define EXPORT __attribute__((visibility("default")))

/* A versioned structure starts with its own size and, in the top byte, its version. */
#define VERSION_WORD(type, version) ((unsigned)(sizeof(type) | ((version) << 24)))

enum answer {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

#define NOT_ON_AN_INSTANCE 0xFFFFFFFFu
#define MEMORY_NOT_AVAILABLE (~0ull)

typedef void *device_t;

union value {
    double dVal;
    int siVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
};

enum value_type { DOUBLE = 0, UNSIGNED_INT, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED_INT, UNSIGNED_SHORT };

struct pci_info {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
};

struct pci_info_ext {
    unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct bar1_memory {
    unsigned long long bar1Total, bar1Free, bar1Used;
};

struct utilization {
    unsigned gpu, memory;
};

struct sample {
    unsigned long long timeStamp;
    union value sampleValue;
};

struct process_info {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
};

struct process_utilization {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
};

struct process_utilization_info {
    unsigned long long timeStamp;
    unsigned pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
};

struct processes_utilization_info {
    unsigned version, processSamplesCount;
    unsigned long long lastSeenTimeStamp;
    struct process_utilization_info *procUtilArray;
};

struct device_attributes {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount;
    unsigned sharedJpegCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
};

#define GPM_METRIC_GRAPHICS_UTIL 1

struct gpm_support {
    unsigned version, isSupportedDevice;
};

struct gpm_metric {
    unsigned metricId;
    int nvmlReturn;
    double value;
    struct {
        char *shortName, *longName, *unit;
    } metricInfo;
};

struct gpm_metrics {
    unsigned version, numMetrics;
    void *sample1, *sample2;
    struct gpm_metric metrics[]; /* of NVML_GPM_METRIC_MAX, which each version has its own of */
};

struct temperature {
    unsigned version, sensorType;
    int temperature;
};

struct field_value {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    int nvmlReturn;
    union value value;
};

#endif
