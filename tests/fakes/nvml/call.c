/* SPDX-License-Identifier: Apache-2.0 */
#include "call.h"
#include "counts.h"
#include <fnmatch.h>
#include <pthread.h>
#include <string.h>

#define HANDLE_COUNT 4096
#define HANG_NAP_US 5000

#define NO_SLOT (-1)

struct handle {
    unsigned generation;
    char gpu[TEXT_SIZE], uuid[TEXT_SIZE];
    int slot; /* NO_SLOT for a GPU */
    unsigned made;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int in_flight; /* atomic, of this process; the counts file may be shared by several */
static int references;
static unsigned generation, handles_used, generation_start;
static struct handle handles[HANDLE_COUNT];

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

/* NVML's state does not survive a fork: the child has to initialise anew. */
static void in_child(void)
{
    references = 0;
    in_flight = 0;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(before_fork, after_fork, in_child); }

static void nap(unsigned us)
{
    struct timespec time = {us / 1000000, (long)(us % 1000000) * 1000};
    nanosleep(&time, NULL);
}

void library_acquire(void)
{
    if (references++ == 0) {
        generation++;
        generation_start = handles_used;
    }
    count_add(REFERENCES, 1);
}

void library_release(void)
{
    if (__atomic_load_n(&in_flight, __ATOMIC_SEQ_CST) > 1)
        count_add(SHUTDOWN_WHILE_IN_FLIGHT, 1);
    references--;
    count_add(REFERENCES, -1);
}

static struct handle *handle_at(const char *gpu, int slot)
{
    for (unsigned i = generation_start; i != handles_used; i++) {
        struct handle *handle = &handles[i % HANDLE_COUNT];
        if (strcmp(handle->gpu, gpu) == 0 && handle->slot == slot)
            return handle;
    }
    return &handles[handles_used++ % HANDLE_COUNT];
}

device_t handle_of(const struct gpu *gpu, const struct instance *instance)
{
    int slot = instance ? (int)instance->slot : NO_SLOT;
    struct handle *handle = handle_at(gpu->uuid, slot);
    handle->generation = generation;
    handle->slot = slot;
    handle->made = instance ? instance->made : 0;
    strcpy(handle->gpu, gpu->uuid);
    strcpy(handle->uuid, instance ? instance->uuid : gpu->uuid);
    return handle;
}

static const struct handle *valid_handle(const void *key)
{
    for (unsigned i = generation_start; i != handles_used; i++)
        if (key == &handles[i % HANDLE_COUNT])
            return key;
    return NULL;
}

static int locate_index(struct call *call, unsigned index)
{
    if (index >= (unsigned)call->world->gpus.count)
        return INVALID_ARGUMENT;
    call->gpu = &call->world->gpus.items[index];
    return SUCCESS;
}

static int locate_uuid(struct call *call, const char *uuid)
{
    for (int i = 0; i < call->world->gpus.count; i++)
        if (strcmp(call->world->gpus.items[i].uuid, uuid) == 0)
            return locate_index(call, (unsigned)i);
    for (int i = 0; i < call->world->instances.count; i++)
        if (strcmp(call->world->instances.items[i].uuid, uuid) == 0) {
            call->instance = &call->world->instances.items[i];
            return locate_index(call, (unsigned)call->instance->gpu);
        }
    return NOT_FOUND;
}

static int locate_bus(struct call *call, const char *wanted)
{
    unsigned domain, bus, device, other_domain, other_bus, other_device;
    if (sscanf(wanted, "%x:%x:%x", &domain, &bus, &device) != 3)
        return INVALID_ARGUMENT;
    for (int i = 0; i < call->world->gpus.count; i++)
        if (sscanf(call->world->gpus.items[i].bus, "%x:%x:%x", &other_domain, &other_bus, &other_device) == 3
            && domain == other_domain && bus == other_bus && device == other_device)
            return locate_index(call, (unsigned)i);
    return NOT_FOUND;
}

/* A handle whose GPU left the world is lost; one whose instance was destroyed, even if an equal one was made since, or
 * of an earlier initialisation, is invalid. */
static int locate_handle(struct call *call, const void *key)
{
    const struct handle *handle = valid_handle(key);
    if (!handle)
        return INVALID_ARGUMENT;
    int located = locate_uuid(call, handle->uuid);
    if (located == SUCCESS && (!call->instance || call->instance->made == handle->made))
        return SUCCESS;
    call->instance = NULL;
    call->gpu = NULL;
    return handle->slot != NO_SLOT ? INVALID_ARGUMENT : GPU_IS_LOST;
}

static int locate(struct call *call, struct target target)
{
    call->gpu = NULL;
    call->instance = NULL;
    switch (target.how) {
    case BY_HANDLE: return locate_handle(call, target.key);
    case BY_INDEX: return locate_index(call, target.index);
    case BY_UUID: return locate_uuid(call, target.key);
    case BY_BUS: return locate_bus(call, target.key);
    default: return SUCCESS;
    }
}

static int is_about(const struct rule *rule, const struct call *call)
{
    if (rule->uuid[0] == '\0')
        return 1;
    const char *uuid = call->instance ? call->instance->uuid : call->gpu ? call->gpu->uuid : "";
    return strcmp(rule->uuid, uuid) == 0;
}

static struct rule *next_rule(const struct call *call, enum rule_kind kind, struct rule *after)
{
    struct world *world = call->world;
    struct rule *rule = after ? after + 1 : world->rules.items;
    int gpu = call->gpu ? (int)(call->gpu - world->gpus.items) : EVERY_GPU;
    for (; rule < world->rules.items + world->rules.count; rule++)
        if (rule->kind == kind && (rule->gpu == EVERY_GPU || rule->gpu == gpu) && is_about(rule, call)
            && fnmatch(rule->pattern, function_names[call->function], 0) == 0)
            return rule;
    return NULL;
}

static int initialises(enum function function) { return function == FN_nvmlInitWithFlags || function == FN_nvmlInit_v2; }

int ruled_error(const struct call *call)
{
    for (struct rule *rule = next_rule(call, FAIL, NULL); rule; rule = next_rule(call, FAIL, rule))
        if (rule->met++ >= rule->after)
            return (int)rule->value;
    return SUCCESS;
}

/* What the call answers before it looks at the world's numbers. */
static int obstacle(const struct call *call, int located)
{
    if (!initialises(call->function) && references == 0)
        return UNINITIALIZED;
    int error = ruled_error(call);
    if (error != SUCCESS)
        return error;
    if (call->world->broken || (!call->world->present && !initialises(call->function)))
        return UNKNOWN;
    return call->world->present ? located : DRIVER_NOT_LOADED;
}

static unsigned ruled_delay(const struct call *call)
{
    unsigned delay = 0;
    for (struct rule *rule = next_rule(call, DELAY, NULL); rule; rule = next_rule(call, DELAY, rule))
        delay += rule->value;
    return delay;
}

/* How long to sleep before looking again; 0 once the call may be answered. An uninitialised library never makes wait. */
static unsigned pause_before(const struct call *call, int *delayed)
{
    if (!initialises(call->function) && references == 0)
        return 0;
    if (next_rule(call, HANG, NULL))
        return HANG_NAP_US;
    unsigned delay = *delayed ? 0 : ruled_delay(call);
    *delayed = 1;
    return delay;
}

struct call call_begin(enum function function, struct target target)
{
    struct call call = {.function = function};
    int located, delayed = 0;
    count_add((int)function, 1);
    count_add(IN_FLIGHT, 1);
    __atomic_add_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
    for (;;) {
        pthread_mutex_lock(&lock);
        call.world = world_current();
        located = locate(&call, target);
        unsigned us = pause_before(&call, &delayed);
        if (us == 0)
            break;
        pthread_mutex_unlock(&lock);
        nap(us);
    }
    call.answer = obstacle(&call, located);
    return call;
}

int call_finish(struct call *call)
{
    pthread_mutex_unlock(&lock);
    __atomic_sub_fetch(&in_flight, 1, __ATOMIC_SEQ_CST);
    count_add(IN_FLIGHT, -1);
    return call->answer;
}

int copy_text(const char *text, char *out, unsigned size)
{
    if (!out)
        return INVALID_ARGUMENT;
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}
