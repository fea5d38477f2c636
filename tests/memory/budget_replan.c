/* budget_replan.c -- others take memory between the phases of a run under the default budget.
 *
 * What there is comes from a callback of the test: plenty until a phase, then less. The rest of the
 * run is planned again and the picture is the same; where nothing fits, the finished latents are
 * there, and give the picture. A given budget is never asked about. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text_util.h"
#include "memory/budget.h"
#include "tessera.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

#define EMBEDDED TSR_SOURCE_DIR "/assets/model"
#define PLENTY ((size_t)1 << 40)

/* What is there, and from which phase on (as the callback of the progress sees them) less. */
typedef struct supply {
    size_t bytes, less;
    tsr_phase from; /* after its last step */
    int32_t picture;
    int32_t n_asked;
} supply;

enum { LATENTS_ROOM = 64 << 10 };

static char warnings[4096];

static void keep_warning(void *user, tsr_log_level level, const char *line)
{
    (void)user;
    if (level == TSR_LOG_WARNING)
        strncat(warnings, line, sizeof warnings - strlen(warnings) - 1);
}

static size_t ask(void *user)
{
    supply *s = user;

    s->n_asked++;
    return s->bytes;
}

static bool on_progress(void *user, const tsr_progress *p)
{
    supply *s = user;

    if (s->less && p->phase == s->from && p->step == p->n_steps && p->picture == s->picture)
        s->bytes = s->less;
    return true;
}

typedef struct scene {
    tsr_context *ctx;
    tsr_model *model;
    tsr_run *run;
    tsr_picture pic;
} scene;

static tsr_run_desc desc_of(supply *s)
{
    return (tsr_run_desc){.prompt = "a red fox",
                          .steps = 2,
                          .seed = 3,
                          .seed_given = true,
                          .progress = on_progress,
                          .progress_user = s,
                          .default_budget = ask,
                          .default_budget_user = s};
}

static bool open_scene(scene *c, const tsr_run_desc *d)
{
    char why[512] = "";

    *c = (scene){0};
    warnings[0] = 0;
    if (tsr_context_make(&c->ctx, &(tsr_context_desc){.n_threads = 2, .log = keep_warning}, why,
                         sizeof why) == TSR_OK &&
        tsr_model_open(c->ctx, EMBEDDED, &c->model) == TSR_OK &&
        tsr_run_make(c->ctx, c->model, d, &c->run) == TSR_OK)
        return true;
    test_failed(__FILE__, __LINE__, "%s", c->ctx ? tsr_context_error(c->ctx) : why);
    return false;
}

static void close_scene(scene *c)
{
    tsr_run_free(c->run);
    tsr_model_free(c->model);
    tsr_context_free(c->ctx);
}

static uint64_t hash_of(const tsr_picture *p)
{
    return tsr_fnv1a64(p->rgb, 3 * (size_t)p->width * (size_t)p->height, TSR_FNV_SEED);
}

static uint64_t next(scene *c)
{
    tsr_status st = tsr_run_next(c->run, &c->pic);

    CHECK_MSG(st == TSR_OK, "%s", tsr_context_error(c->ctx));
    return st == TSR_OK ? hash_of(&c->pic) : 0;
}

/* Hashes of the first two pictures with plenty; the least budget that makes them. */
static size_t undisturbed(uint64_t hash[2])
{
    supply s = {.bytes = PLENTY};
    tsr_run_desc d = desc_of(&s);
    tsr_run_info info = {0};
    scene c;

    d.n_pictures = 2;
    if (open_scene(&c, &d)) {
        hash[0] = next(&c);
        hash[1] = next(&c);
        tsr_run_get_info(c.run, &info);
        CHECK(info.times_replanned == 0 && !warnings[0] && info.allocations_while_running == 0);
        CHECK_MSG(s.n_asked >= 4, "asked %d times", s.n_asked);
    }
    close_scene(&c);
    return info.minimum_budget_bytes;
}

static void replan__less_from_any_phase_on__is_the_same_picture(void)
{
    static const tsr_phase phases[] = {TSR_PHASE_TEXT, TSR_PHASE_DENOISE, TSR_PHASE_DECODE,
                                       TSR_PHASE_DENOISE, TSR_PHASE_DECODE};
    uint64_t hash[2] = {0};
    size_t least;

    SKIP_IF_SANITIZED();
    least = undisturbed(hash);
    /* The two are denoised together: the second's steps are the first's, and the state has both
     * latents. */
    for (int32_t at = 0; at < 5; at++) { /* three phases of the first picture, two of the second */
        supply s = {.bytes = PLENTY, .less = least + LATENTS_ROOM, .from = phases[at]};
        tsr_run_desc d = desc_of(&s);
        tsr_run_info info;
        scene c;

        s.picture = at / 3;
        d.n_pictures = 2;
        if (open_scene(&c, &d)) {
            CHECK_MSG(next(&c) == hash[0], "case %d: another first picture", at);
            CHECK_MSG(next(&c) == hash[1], "case %d: another second picture", at);
            tsr_run_get_info(c.run, &info);
            /* The last decode of all has nothing after it that is planned. */
            CHECK_MSG(info.batch == 2 && info.times_replanned == (at < 3 ? 1 : 0),
                      "case %d: planned again %d times", at, info.times_replanned);
            CHECK_MSG(!strstr(warnings, "planned again") == (at >= 3), "case %d: \"%s\"", at,
                      warnings);
            CHECK_MSG(info.allocations_while_running == 0, "case %d: %d allocations", at,
                      (int)info.allocations_while_running);
            CHECK_MSG(info.phases[1].seconds > 0 && info.phases[1].measured_bytes > 0 &&
                          info.phases[0].measured_bytes > 0,
                      "case %d: what was measured is lost", at);
        }
        close_scene(&c);
    }
}

/* The memory is really given back: the resident set fits into what there is. */
static void replan__less_before_the_decoder__the_rest_stays_below(void)
{
    uint64_t hash[2] = {0};
    size_t least = undisturbed(hash);
    supply s = {.bytes = PLENTY, .less = least, .from = TSR_PHASE_DENOISE};
    tsr_run_desc d = desc_of(&s);
    size_t now;
    scene c;

    SKIP_IF_SANITIZED();
    if (open_scene(&c, &d)) {
        CHECK(tsr_mem_resident() > s.less);
        CHECK(next(&c) == hash[0]);
        now = tsr_mem_resident();
        CHECK_MSG(now <= s.less, "%zu bytes are resident, and there are %zu", now, s.less);
    }
    close_scene(&c);
}

/* Decodes latents with plenty. */
static uint64_t decode(const float *latents, const int32_t shape[4])
{
    supply s = {.bytes = PLENTY};
    tsr_run_desc d = desc_of(&s);
    uint64_t hash = 0;
    scene c;

    d.task = TSR_TASK_DECODE;
    d.latents = latents;
    memcpy(d.latents_shape, shape, sizeof d.latents_shape);
    if (open_scene(&c, &d))
        hash = next(&c);
    close_scene(&c);
    return hash;
}

static void replan__nothing_fits_the_decoder__has_the_latents_and_can_go_on(void)
{
    uint64_t hash[2] = {0};
    supply s = {.bytes = PLENTY, .less = 1 << 20, .from = TSR_PHASE_DENOISE};
    tsr_run_desc d = desc_of(&s);
    const float *latents = NULL;
    int32_t shape[4];
    scene c;

    (void)undisturbed(hash);
    if (open_scene(&c, &d)) {
        const char *why = tsr_context_error(c.ctx);
        CHECK(!tsr_run_latents(c.run, &latents, shape));
        CHECK(tsr_run_next(c.run, &c.pic) == TSR_E_BUDGET);
        CHECK_MSG(strstr(why, "others have taken memory") && strstr(why, "phase decode"), "\"%s\"",
                  why);
        CHECK(tsr_run_latents(c.run, &latents, shape) && shape[0] == 1 && shape[1] == 16);
        CHECK(latents && decode(latents, shape) == hash[0]);
        CHECK(tsr_run_next(c.run, &c.pic) == TSR_E_BUDGET); /* still */
        s.less = 0;
        s.bytes = PLENTY; /* they gave it back */
        CHECK(next(&c) == hash[0]);
    }
    close_scene(&c);
}

static void replan__nothing_fits_before_the_steps__has_none(void)
{
    supply s = {.bytes = PLENTY, .less = 1 << 20, .from = TSR_PHASE_TEXT};
    tsr_run_desc d = desc_of(&s);
    const float *latents;
    int32_t shape[4];
    scene c;

    if (open_scene(&c, &d)) {
        CHECK(tsr_run_next(c.run, &c.pic) == TSR_E_BUDGET);
        CHECK(!tsr_run_latents(c.run, &latents, shape));
    }
    close_scene(&c);
}

static void replan__a_given_budget__is_never_asked_about(void)
{
    supply s = {.bytes = 1};
    tsr_run_desc d = desc_of(&s);
    scene c;

    d.budget_bytes = PLENTY;
    if (open_scene(&c, &d))
        (void)next(&c);
    CHECK(s.n_asked == 0);
    close_scene(&c);
}

/* In the decoder a caller may stop, and the latents are there; a picture that is whole is handed
 * out. */
static bool stop_in_decoder(void *user, const tsr_progress *p)
{
    return p->phase != TSR_PHASE_DECODE || p->step != *(int32_t *)user;
}

static void latents__stopped_in_the_decoder__are_there_and_go_on(void)
{
    uint64_t hash[2] = {0};
    supply s = {.bytes = PLENTY};
    tsr_run_desc d = desc_of(&s);
    int32_t stop_at = 0, shape[4];
    const float *latents;
    scene c;

    (void)undisturbed(hash);
    d.progress = stop_in_decoder;
    d.progress_user = &stop_at;
    if (open_scene(&c, &d)) {
        CHECK(tsr_run_next(c.run, &c.pic) == TSR_E_CANCELLED);
        CHECK(tsr_run_latents(c.run, &latents, shape) && decode(latents, shape) == hash[0]);
        stop_at = 1; /* when it is done */
        CHECK(next(&c) == hash[0] && !*tsr_context_error(c.ctx));
    }
    close_scene(&c);
}

/* A long decoding asks several times a second: the first time that it does so again, it is stopped.
 */
static bool stop_second_time(void *user, const tsr_progress *p)
{
    return ++*(int32_t *)user < 2 || p->step == p->n_steps;
}

static void decode__slow__can_be_stopped_on_its_way(void)
{
    static const float zeros[16 * 32 * 32];
    int32_t n_said = 0, shape[4];
    tsr_run_desc d = {.task = TSR_TASK_DECODE,
                      .latents = zeros,
                      .latents_shape = {1, 16, 32, 32},
                      .progress = stop_second_time,
                      .progress_user = &n_said};
    const float *latents;
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_picture pic;
    char why[256];

    REQUIRE(tsr_context_make(&ctx,
                             &(tsr_context_desc){.n_threads = 1, .cpu_tier = TSR_TIER_PORTABLE},
                             why, sizeof why) == TSR_OK);
    CHECK(tsr_model_open(ctx, EMBEDDED, &model) == TSR_OK &&
          tsr_run_make(ctx, model, &d, &run) == TSR_OK);
    if (run) {
        CHECK(tsr_run_next(run, &pic) == TSR_E_CANCELLED && n_said == 2);
        CHECK(tsr_run_latents(run, &latents, shape) && shape[3] == 32);
    }
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
}

int main(void)
{
    RUN(replan__less_from_any_phase_on__is_the_same_picture);
    RUN(replan__less_before_the_decoder__the_rest_stays_below);
    RUN(replan__nothing_fits_the_decoder__has_the_latents_and_can_go_on);
    RUN(replan__nothing_fits_before_the_steps__has_none);
    RUN(replan__a_given_budget__is_never_asked_about);
    RUN(decode__slow__can_be_stopped_on_its_way);
    RUN(latents__stopped_in_the_decoder__are_there_and_go_on);
    return test_end();
}
