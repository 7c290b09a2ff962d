/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of the world, one fact a line: a keyword and its fields, separated by one space.
 *
 *   driver TEXT | nvml TEXT | cuda NUMBER                     versions
 *   now EPOCH BOOTTIME                                        stops the clocks at these microseconds
 *   gpu UUID                                                  begins a GPU; its index is its place in the file
 *   name TEXT | serial TEXT | bus DOMAIN:BUS:DEVICE.0 | minor N | capability MAJOR MINOR
 *   memory TOTAL USED RESERVED                                bytes; USED without RESERVED, as in NVML's version 2
 *   utilization GPU MEMORY ENCODER DECODER                    percent
 *   clock epoch|boottime                                      what time stamps count from
 *   value_type N                                              NVML's nvmlValueType_t of the samples
 *   samples every VALUE...                                    6 a second for ever, taking the values in turn
 *   samples at AGE:VALUE...                                   taken AGE microseconds before the file was written
 *   process compute|graphics|mps PID MEMORY|- GI|- CI|-       - is NVML's "not available"
 *   share PID SM MEMORY ENCODER DECODER AGE                   a process's utilization, AGE microseconds old when read
 *   grant PID SM FROM UNTIL                                   what a process is given, in microseconds since boot; with
 *                                                             grants, utilization is the mean of those not seen yet
 *   lag MICROSECONDS                                          after which the samples of grants are there
 *   mig off | mig on SLOTS                                    without it the GPU knows no MIG
 *   mig_change                                                the other mode is pending
 *   instance SLOT GI CI SLICES COMPUTE_SLICES MADE TOTAL USED RESERVED BUSY UUID PROFILE
 *   error PATTERN CODE AFTER [UUID]                           answer CODE once AFTER such calls were let through
 *   latency PATTERN MICROSECONDS                              sleep before answering; several rules add up
 *   hang PATTERN                                              answer only once a newer file no longer says so
 *
 * The last three are rules: of every call before the first gpu line, of this GPU's (and its instances') calls after it,
 * of the calls about one of them alone where its UUID is given.
 * PATTERN is fnmatch(3) on the function's name, so nvmlDeviceGet* works. The count of AFTER starts anew with each file.
 * TEXT, UUID and PROFILE are percent-encoded; a line that starts with # is a comment. */
#include "world.h"
#include <stdlib.h>
#include <string.h>

static void *grow(void *items, int count, size_t size)
{
    char *grown = realloc(items, (size_t)(count + 1) * size);
    if (!grown)
        abort();
    memset(grown + (size_t)count * size, 0, size);
    return grown;
}

#define APPEND(list) \
    ((list).items = grow((list).items, (list).count, sizeof *(list).items), &(list).items[(list).count++])

static struct gpu *last_gpu(struct world *world)
{
    return &world->gpus.items[world->gpus.count - 1];
}

static int parse_text(const char *text, char *out)
{
    unsigned byte;
    for (int length = 0; length < TEXT_SIZE - 1; length++) {
        if (*text == '\0')
            return out[length] = '\0', 1;
        if (*text != '%')
            out[length] = *text++;
        else if (sscanf(text, "%%%2x", &byte) == 1)
            out[length] = (char)byte, text += 3;
        else
            return 0;
    }
    return 0;
}

static int parse_gpu(struct world *world, const char *fields)
{
    struct gpu *gpu = APPEND(world->gpus);
    gpu->value_type = UNSIGNED_INT;
    return parse_text(fields, gpu->uuid);
}

static int parse_driver(struct world *world, const char *fields) { return parse_text(fields, world->driver); }
static int parse_nvml(struct world *world, const char *fields) { return parse_text(fields, world->nvml); }
static int parse_cuda(struct world *world, const char *fields) { return sscanf(fields, "%d", &world->cuda) == 1; }

static int parse_now(struct world *world, const char *fields)
{
    return sscanf(fields, "%llu %llu", &world->epoch, &world->boottime) == 2;
}

static int parse_name(struct world *world, const char *fields) { return parse_text(fields, last_gpu(world)->name); }
static int parse_serial(struct world *world, const char *fields) { return parse_text(fields, last_gpu(world)->serial); }
static int parse_bus(struct world *world, const char *fields) { return parse_text(fields, last_gpu(world)->bus); }

static int parse_minor(struct world *world, const char *fields)
{
    return sscanf(fields, "%u", &last_gpu(world)->minor) == 1;
}

static int parse_capability(struct world *world, const char *fields)
{
    struct gpu *gpu = last_gpu(world);
    return sscanf(fields, "%u %u", &gpu->capability_major, &gpu->capability_minor) == 2;
}

static int parse_memory(struct world *world, const char *fields)
{
    struct memory_use *memory = &last_gpu(world)->memory;
    return sscanf(fields, "%llu %llu %llu", &memory->total, &memory->used, &memory->reserved) == 3;
}

static int parse_utilization(struct world *world, const char *fields)
{
    struct gpu *gpu = last_gpu(world);
    return sscanf(fields, "%u %u %u %u", &gpu->busy, &gpu->memory_busy, &gpu->encoder_busy, &gpu->decoder_busy) == 4;
}

static int parse_clock(struct world *world, const char *fields)
{
    last_gpu(world)->boottime_stamps = strcmp(fields, "boottime") == 0;
    return last_gpu(world)->boottime_stamps || strcmp(fields, "epoch") == 0;
}

static int parse_value_type(struct world *world, const char *fields)
{
    return sscanf(fields, "%d", &last_gpu(world)->value_type) == 1;
}

static int parse_samples(struct world *world, const char *fields)
{
    struct gpu *gpu = last_gpu(world);
    char mode[6];
    int read = 0;
    if (sscanf(fields, "%5s%n", mode, &read) != 1)
        return 0;
    gpu->recorded = strcmp(mode, "at") == 0;
    for (fields += read; *fields != '\0'; fields += read, gpu->sample_count++) {
        if (gpu->sample_count == SAMPLE_CAPACITY)
            return 0;
        unsigned long long *age = &gpu->sample_ages[gpu->sample_count];
        double *value = &gpu->sample_values[gpu->sample_count];
        if (gpu->recorded ? sscanf(fields, " %llu:%lf%n", age, value, &read) != 2
                          : sscanf(fields, " %lf%n", value, &read) != 1)
            return 0;
    }
    return gpu->recorded || strcmp(mode, "every") == 0;
}

static unsigned long long number_or(const char *field, unsigned long long without)
{
    return strcmp(field, "-") == 0 ? without : strtoull(field, NULL, 10);
}

static int parse_process(struct world *world, const char *fields)
{
    static const char *const kinds[] = {[COMPUTE] = "compute", [GRAPHICS] = "graphics", [MPS] = "mps"};
    struct process *process = APPEND(world->processes);
    char kind[16], memory[24], gi[16], ci[16];
    process->gpu = world->gpus.count - 1;
    if (sscanf(fields, "%15s %u %23s %15s %15s", kind, &process->info.pid, memory, gi, ci) != 5)
        return 0;
    process->info.usedGpuMemory = number_or(memory, MEMORY_NOT_AVAILABLE);
    process->info.gpuInstanceId = (unsigned)number_or(gi, NOT_ON_AN_INSTANCE);
    process->info.computeInstanceId = (unsigned)number_or(ci, NOT_ON_AN_INSTANCE);
    for (process->kind = COMPUTE; process->kind <= MPS; process->kind++)
        if (strcmp(kind, kinds[process->kind]) == 0)
            return 1;
    return 0;
}

static int parse_share(struct world *world, const char *fields)
{
    struct share *share = APPEND(world->shares);
    share->gpu = world->gpus.count - 1;
    return sscanf(fields, "%u %u %u %u %u %llu", &share->pid, &share->sm, &share->memory, &share->encoder,
                  &share->decoder, &share->age) == 6;
}

void world_add_share(struct world *world, struct share share) { *APPEND(world->shares) = share; }

static int parse_grant(struct world *world, const char *fields)
{
    struct grant *grant = APPEND(world->grants);
    grant->gpu = world->gpus.count - 1;
    return sscanf(fields, "%u %u %llu %llu", &grant->pid, &grant->sm, &grant->from, &grant->until) == 4;
}

static int parse_lag(struct world *world, const char *fields)
{
    return sscanf(fields, "%llu", &last_gpu(world)->lag) == 1;
}

static int parse_mig(struct world *world, const char *fields)
{
    struct gpu *gpu = last_gpu(world);
    gpu->mig_capable = 1;
    gpu->mig_on = sscanf(fields, "on %u", &gpu->mig_slots) == 1;
    return gpu->mig_on || strcmp(fields, "off") == 0;
}

static int parse_mig_change(struct world *world, const char *fields)
{
    return last_gpu(world)->mig_pending = *fields == '\0';
}

static int parse_instance(struct world *world, const char *fields)
{
    struct instance *it = APPEND(world->instances);
    char uuid[3 * TEXT_SIZE], profile[3 * TEXT_SIZE];
    it->gpu = world->gpus.count - 1;
    return sscanf(fields, "%u %u %u %u %u %u %llu %llu %llu %lf %287s %287s", &it->slot, &it->gi, &it->ci, &it->slices,
                  &it->compute_slices, &it->made, &it->memory.total, &it->memory.used, &it->memory.reserved, &it->busy,
                  uuid, profile) == 12
           && parse_text(uuid, it->uuid) && parse_text(profile, it->profile);
}

static struct rule *new_rule(struct world *world, enum rule_kind kind)
{
    struct rule *rule = APPEND(world->rules);
    rule->kind = kind;
    rule->gpu = world->gpus.count ? world->gpus.count - 1 : EVERY_GPU;
    return rule;
}

static int parse_error(struct world *world, const char *fields)
{
    struct rule *rule = new_rule(world, FAIL);
    char uuid[3 * TEXT_SIZE] = "";
    return sscanf(fields, "%95s %u %u %287s", rule->pattern, &rule->value, &rule->after, uuid) >= 3
           && parse_text(uuid, rule->uuid);
}

static int parse_latency(struct world *world, const char *fields)
{
    struct rule *rule = new_rule(world, DELAY);
    return sscanf(fields, "%95s %u", rule->pattern, &rule->value) == 2;
}

static int parse_hang(struct world *world, const char *fields)
{
    return sscanf(fields, "%95s", new_rule(world, HANG)->pattern) == 1;
}

static const struct keyword {
    const char *word;
    int of_a_gpu;
    int (*parse)(struct world *world, const char *fields);
} keywords[] = {
    {"driver", 0, parse_driver},
    {"nvml", 0, parse_nvml},
    {"cuda", 0, parse_cuda},
    {"now", 0, parse_now},
    {"error", 0, parse_error},
    {"latency", 0, parse_latency},
    {"hang", 0, parse_hang},
    {"gpu", 0, parse_gpu},
    {"name", 1, parse_name},
    {"serial", 1, parse_serial},
    {"bus", 1, parse_bus},
    {"minor", 1, parse_minor},
    {"capability", 1, parse_capability},
    {"memory", 1, parse_memory},
    {"utilization", 1, parse_utilization},
    {"clock", 1, parse_clock},
    {"value_type", 1, parse_value_type},
    {"samples", 1, parse_samples},
    {"process", 1, parse_process},
    {"share", 1, parse_share},
    {"grant", 1, parse_grant},
    {"lag", 1, parse_lag},
    {"mig", 1, parse_mig},
    {"mig_change", 1, parse_mig_change},
    {"instance", 1, parse_instance},
};

static int parse_line(struct world *world, const char *line)
{
    size_t length = strcspn(line, " ");
    const char *fields = line[length] == ' ' ? line + length + 1 : line + length;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        const struct keyword *keyword = &keywords[i];
        if (strlen(keyword->word) == length && strncmp(keyword->word, line, length) == 0)
            return (world->gpus.count || !keyword->of_a_gpu) && keyword->parse(world, fields);
    }
    return 0;
}

void world_parse(struct world *world, FILE *text, const char *path)
{
    char *line = NULL;
    size_t size = 0;
    world->present = 1;
    for (int number = 1; getline(&line, &size, text) != -1; number++) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '\0' || line[0] == '#' || parse_line(world, line))
            continue;
        fprintf(stderr, "fake nvml: %s:%d: cannot read '%s'; see tests/fakes/nvml/world.c\n", path, number, line);
        world->broken = 1;
    }
    free(line);
}

void world_free(struct world *world)
{
    free(world->gpus.items);
    free(world->processes.items);
    free(world->shares.items);
    free(world->grants.items);
    free(world->instances.items);
    free(world->rules.items);
    memset(world, 0, sizeof *world);
}
