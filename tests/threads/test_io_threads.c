/* test_io_threads.c -- the I/O thread reads a packed file into slots while the pool computes on
 * what is there already; for TSAN, and for the bytes. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/pool.h"
#include "model/packed.h"
#include "tests/support/micro_model.h"
#include "tests/support/packed_model.h"
#include "tests/support/test.h"

enum { SLOTS = 4, SLOT_BYTES = 1 << 16, ROUNDS = 3, TASKS = 3 };

typedef struct ring {
    const tsr_packed *p;
    const tsr_packed_part *part;
    uint8_t slot[SLOTS][SLOT_BYTES];
    uint64_t sums[TASKS];
    int32_t current;
} ring;

static size_t bytes_of(const ring *r, uint64_t i)
{
    size_t bytes = r->p->forms[r->part->first + (int32_t)i][TSR_FORM_F32].bytes;

    return bytes < SLOT_BYTES ? bytes : SLOT_BYTES;
}

static tsr_status load(void *arg, uint64_t i, uint64_t slot, tsr_err *err)
{
    ring *r = arg;

    return tsr_packed_read(r->p, r->part->first + (int32_t)i, TSR_FORM_F32, 0, r->slot[slot],
                           bytes_of(r, i), err);
}

/* Each thread sums all bytes of the current slot into its own task's sum. */
static void use(void *arg, int32_t task, int32_t thread)
{
    ring *r = arg;

    (void)thread;
    r->sums[task] =
        tsr_fnv1a64(r->slot[r->current % SLOTS], bytes_of(r, (uint64_t)r->current), r->sums[task]);
}

static void run_ahead(ring *r, tsr_io *io, tsr_pool *pool)
{
    uint64_t tickets[SLOTS];
    int32_t n = r->part->n_tensors;

    for (int32_t i = 0; i < n + SLOTS - 1; i++) {
        int32_t now = i - (SLOTS - 1);
        if (now >= 0) {
            CHECK(tsr_io_wait(io, tickets[now % SLOTS], NULL, NULL) == TSR_OK);
            r->current = now;
            tsr_pool_run(pool, TASKS, use, r);
        }
        if (i < n)
            tickets[i % SLOTS] = tsr_io_submit(io, load, r, (uint64_t)i, (uint64_t)(i % SLOTS));
    }
}

static void io__slots_are_filled_while_others_are_used__right_bytes(void)
{
    static ring r, alone;
    const char *dir = micro_model(&(micro_options){0});
    char path[4096], why[512] = "";
    tsr_packed p;
    tsr_io *io = NULL;
    tsr_pool *pool = NULL;
    tsr_err err = {0};

    REQUIRE(dir);
    snprintf(path, sizeof path, "%s/m.tsr", test_temp_dir());
    CHECK_MSG(packed_model_make(dir, path, TSR_TIER_PORTABLE, TSR_PRECISION_FP32, why) == TSR_OK,
              "%s", why);
    REQUIRE(tsr_packed_open(&p, path, tsr_cpu_backend(TSR_TIER_PORTABLE), &err) == TSR_OK);
    REQUIRE(tsr_io_make(&io, &err) == TSR_OK && tsr_pool_make(&pool, TASKS, &err) == TSR_OK);
    r = (ring){.p = &p, .part = tsr_packed_find_part(&p, "unet")};
    alone = r;
    for (int32_t round = 0; round < ROUNDS; round++)
        run_ahead(&r, io, pool);
    for (int32_t round = 0; round < ROUNDS; round++)
        for (alone.current = 0; alone.current < alone.part->n_tensors; alone.current++) {
            CHECK(load(&alone, (uint64_t)alone.current, (uint64_t)(alone.current % SLOTS), &err) ==
                  TSR_OK);
            for (int32_t task = 0; task < TASKS; task++)
                use(&alone, task, 0);
        }
    CHECK(memcmp(r.sums, alone.sums, sizeof r.sums) == 0 && r.sums[0] == r.sums[TASKS - 1]);
    tsr_pool_free(pool);
    tsr_io_free(io);
    tsr_packed_close(&p);
}

int main(void)
{
    RUN(io__slots_are_filled_while_others_are_used__right_bytes);
    return test_end();
}
