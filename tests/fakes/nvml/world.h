/* SPDX-License-Identifier: Apache-2.0 */
/* What the fake driver sees: flat lists, each entry naming its GPU by index. The text form is described in world.c. */
#ifndef FAKE_NVML_WORLD_H
#define FAKE_NVML_WORLD_H

#include "abi.h"
#include <stdio.h>

#define TEXT_SIZE 96
#define EVERY_GPU (-1)
#define SAMPLE_CAPACITY 100
#define LIST(type) struct { type *items; int count; }

struct memory_use {
    unsigned long long total, used, reserved;
};

struct gpu {
    char uuid[TEXT_SIZE], name[TEXT_SIZE], serial[TEXT_SIZE], bus[TEXT_SIZE];
    unsigned minor, capability_major, capability_minor;
    struct memory_use memory;
    unsigned busy, memory_busy, encoder_busy, decoder_busy;
    int boottime_stamps; /* stamps count from boot instead of from 1970 */
    int value_type, sample_count;
    int recorded; /* samples were taken before the world was written; else one more is made every tick */
    double sample_values[SAMPLE_CAPACITY];
    unsigned long long sample_ages[SAMPLE_CAPACITY];
    int mig_capable, mig_on, mig_pending;
    unsigned mig_slots;
    unsigned long long lag; /* microseconds after which the samples of grants are there */
};

enum process_kind { COMPUTE, GRAPHICS, MPS };

struct process {
    int gpu;
    enum process_kind kind;
    struct process_info info;
};

struct share {
    int gpu;
    unsigned pid, sm, memory, encoder, decoder;
    unsigned long long age;
    unsigned long long stamp; /* of the last tick, in a share made from grants; else 0 */
};

/* What a process is given of the multiprocessors, in percent, while the time since boot is later than from, up to until. */
struct grant {
    int gpu;
    unsigned pid, sm;
    unsigned long long from, until;
};

struct instance {
    int gpu;
    unsigned slot, gi, ci, slices, compute_slices;
    unsigned made; /* tells an instance from an earlier one that had the same place and so the same UUID */
    struct memory_use memory;
    double busy;
    char uuid[TEXT_SIZE], profile[TEXT_SIZE];
};

enum rule_kind { FAIL, DELAY, HANG };

struct rule {
    int gpu;
    enum rule_kind kind;
    char pattern[TEXT_SIZE], uuid[TEXT_SIZE]; /* without a UUID: of all the GPU's calls, and its instances' */
    unsigned value, after, met;
};

struct world {
    int present, broken;
    char driver[TEXT_SIZE], nvml[TEXT_SIZE];
    int cuda;
    unsigned long long epoch, boottime; /* what time it is, in microseconds of either clock; 0: what the kernel says */
    unsigned long long written_epoch, written_boottime; /* when the file was written, in microseconds of either clock */
    LIST(struct gpu) gpus;
    LIST(struct process) processes;
    LIST(struct share) shares;
    LIST(struct grant) grants;
    LIST(struct instance) instances;
    LIST(struct rule) rules;
};

/* Fill a zeroed world from text; a line that cannot be read is told on stderr and breaks the world. */
void world_parse(struct world *world, FILE *text, const char *path);
void world_free(struct world *world);
void world_add_share(struct world *world, struct share share);

/* The world that FAKE_NVML_FILE holds at this moment; the caller holds the lock of call.c. */
struct world *world_current(void);

#endif
