/* SPDX-License-Identifier: Apache-2.0 */
#include "grants.h"
#include <stdlib.h>
#include <string.h>

/* Microseconds since boot: later than the first, up to the last. */
struct span {
    unsigned long long after, until;
};

static struct span overlap(struct span a, struct span b)
{
    struct span both = {a.after > b.after ? a.after : b.after, a.until < b.until ? a.until : b.until};
    if (both.until < both.after)
        both.until = both.after;
    return both;
}

static unsigned long long ticks(struct span span) { return span.until / TICK_US - span.after / TICK_US; }
static unsigned long long last_tick(struct span span) { return span.until / TICK_US * TICK_US; }
static struct span span_of(const struct grant *grant) { return (struct span){grant->from, grant->until}; }

static void log_stretch(FILE *log, const struct world *world, const struct grant *grant, struct span span)
{
    struct span granted = overlap(span_of(grant), span);
    if (ticks(granted))
        fprintf(log, "%llu %llu %s %u %u\n", (granted.after / TICK_US + 1) * TICK_US, last_tick(granted),
                world->gpus.items[grant->gpu].uuid, grant->pid, grant->sm);
}

void grants_log(const struct world *world)
{
    static char logged_to[4096];
    static unsigned long long logged_until;
    const char *path = getenv("FAKE_NVML_GRANTS");
    if (!path || !world->boottime)
        return;
    if (strncmp(path, logged_to, sizeof logged_to - 1) != 0)
        logged_until = world->boottime;
    strncpy(logged_to, path, sizeof logged_to - 1);
    FILE *log = fopen(path, "ae");
    if (!log)
        return;
    for (int i = 0; i < world->grants.count; i++)
        log_stretch(log, world, &world->grants.items[i], (struct span){logged_until, world->boottime});
    logged_until = world->boottime;
    fclose(log);
}

/* The ticks whose samples are there and unseen; seen is of the clock that the GPU's stamps are of. */
static struct span unseen(const struct call *call, unsigned long long seen)
{
    unsigned long long ahead = now_us(clock_of(call->gpu)) - now_us(CLOCK_BOOTTIME);
    unsigned long long published = now_us(CLOCK_BOOTTIME) - call->gpu->lag;
    struct span held = {(published / TICK_US - SAMPLE_CAPACITY) * TICK_US, published};
    return overlap(held, (struct span){seen > ahead ? seen - ahead : 0, published});
}

/* What one process was granted in the span, as the mean over all ticks of it; 0 ticks where it was granted none. */
static struct share mean(const struct call *call, unsigned pid, struct span span)
{
    struct share share = {.gpu = (int)(call->gpu - call->world->gpus.items), .pid = pid};
    unsigned long long sum = 0;
    for (int i = 0; i < call->world->grants.count; i++) {
        const struct grant *grant = &call->world->grants.items[i];
        struct span granted = overlap(span_of(grant), span);
        if (grant->gpu != share.gpu || grant->pid != pid || !ticks(granted))
            continue;
        sum += ticks(granted) * grant->sm;
        if (last_tick(granted) > share.stamp)
            share.stamp = last_tick(granted);
    }
    share.sm = sum ? (unsigned)((sum + ticks(span) / 2) / ticks(span)) : 0;
    return share;
}

static int is_known(const struct call *call, unsigned pid)
{
    for (int i = 0; i < call->world->shares.count; i++) {
        const struct share *share = &call->world->shares.items[i];
        if (share->stamp && share->gpu == call->gpu - call->world->gpus.items && share->pid == pid)
            return 1;
    }
    return 0;
}

static void forget_shares(const struct call *call)
{
    int kept = 0;
    for (int i = 0; i < call->world->shares.count; i++) {
        struct share share = call->world->shares.items[i];
        if (!share.stamp || share.gpu != call->gpu - call->world->gpus.items)
            call->world->shares.items[kept++] = share;
    }
    call->world->shares.count = kept;
}

void grants_sample(const struct call *call, unsigned long long seen)
{
    unsigned long long ahead = now_us(clock_of(call->gpu)) - now_us(CLOCK_BOOTTIME);
    struct span span = unseen(call, seen);
    forget_shares(call);
    for (int i = 0; i < call->world->grants.count; i++) {
        const struct grant *grant = &call->world->grants.items[i];
        if (grant->gpu != call->gpu - call->world->gpus.items || is_known(call, grant->pid))
            continue;
        struct share share = mean(call, grant->pid, span);
        if (share.stamp) {
            share.stamp += ahead;
            world_add_share(call->world, share);
        }
    }
}
