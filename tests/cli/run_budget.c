/* run_budget.c -- what gen does with a budget: the same picture in any that holds it, a refusal one
 * page below, the ladder, where it spills; and plans, their sweep and its drawing.
 *
 * The least budget is what the program's own refusal says. */
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/png.h"
#include "tests/support/gen_run.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

#define EMBEDDED TSR_SOURCE_DIR "/assets/model"
#define PICTURE "--prompt", "a red fox", "--seed", "3", "--steps", "2"

static const char *micro;
static char text[GEN_MAX_OUTPUT];

/* The smallest budget of two steps, by the sentence of the refusal; 0 when there is none. */
static size_t least_budget(const char *model, const char *threads)
{
    static const char words[] = "the smallest budget is ";
    const char *at;

    gen(PICTURE, "--model", model, "--threads", threads, "--strict", "--out", "r.png", "--budget",
        "1000000", NULL);
    at = strstr(gen_result.err, words);
    CHECK_MSG(gen_result.code == 3 && gen_one_sentence() && at && !gen_exists("r.png"), "%d, %s",
              gen_result.code, gen_result.err);
    return at ? (size_t)strtoull(at + strlen(words), NULL, 10) : 0;
}

static double json_number(const char *json, const char *key)
{
    cJSON *all = cJSON_Parse(json);
    double x = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(all, key));

    cJSON_Delete(all);
    return x;
}

static double plan_number(const char *model, const char *key)
{
    gen("plan", PICTURE, "--model", model, "--json", NULL);
    return json_number(gen_result.out, key);
}

static void in_budget(const char *model, const char *threads, size_t budget, bool fits)
{
    char number[32];

    snprintf(number, sizeof number, "%zu", budget);
    gen(PICTURE, "--model", model, "--threads", threads, "--strict", "--out", "b.png", "--budget",
        number, NULL);
    if (!fits) {
        CHECK_MSG(gen_result.code == 3 && gen_one_sentence(), "%s in %s: %d, %s", model, number,
                  gen_result.code, gen_result.err);
        return;
    }
    CHECK_MSG(gen_result.code == 0 && !*gen_result.err, "%s in %s: %d, %s", model, number,
              gen_result.code, gen_result.err);
    CHECK_MSG(gen_same_pixels("plenty.png", "b.png"), "%s in %s: another picture", model, number);
}

static void sweep(const char *model, const char *threads, double fastest)
{
    enum { BUDGETS = 5 };
    size_t least = least_budget(model, threads);

    REQUIRE(least > 0);
    for (int i = 0; i < BUDGETS; i++)
        in_budget(model, threads,
                  (size_t)((double)least * pow(fastest / (double)least, i / (BUDGETS - 1.0)) + 1),
                  true);
    in_budget(model, threads, least, true);
    in_budget(model, threads, least - (size_t)sysconf(_SC_PAGESIZE), false);
}

static void gen__any_budget__gives_the_same_picture(void)
{
    const char *const models[] = {micro, EMBEDDED};

    SKIP_IF_SANITIZED();
    for (int m = 0; m < 2; m++) {
        double fastest = 1.1 * plan_number(models[m], "fastest_budget_bytes");
        gen(PICTURE, "--model", models[m], "--out", "plenty.png", NULL);
        CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
        gen("convert", models[m], "packed.tsr", NULL);
        CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
        sweep(models[m], "1", fastest);
        sweep(models[m], "2", fastest);
        sweep("packed.tsr", "1", fastest);
        sweep("packed.tsr", "2", fastest);
    }
}

static void gen__offload_and_tile__give_the_same_picture(void)
{
    static const char *const rows[][2] = {{"--offload=none", "--tile=auto"},
                                          {"--offload=model", "--tile=8"},
                                          {"--offload=block", "--tile=24"},
                                          {"--offload=stream", "--tile=16384"}};

    gen(PICTURE, "--model", EMBEDDED, "--out", "plenty.png", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gen(PICTURE, "--model", EMBEDDED, "--out", "b.png", "--report", "b.json", rows[i][0],
            rows[i][1], NULL);
        CHECK_MSG(gen_result.code == 0 && gen_same_pixels("plenty.png", "b.png"), "%s: %d, %s",
                  rows[i][0], gen_result.code, gen_result.err);
        gen_read("b.json", text);
        CHECK_MSG(!strstr(text, "\"bytes_streamed\": 0,") == (i >= 2), "%s: %s", rows[i][0], text);
    }
}

static void gen__placement_that_does_not_fit__is_exit_3(void)
{
    char number[32];
    size_t least = least_budget(EMBEDDED, "1");

    SKIP_IF_SANITIZED();
    snprintf(number, sizeof number, "%zu", least);
    gen(PICTURE, "--model", EMBEDDED, "--threads=1", "--strict", "--offload=none", "--out=o.png",
        "--budget", number, NULL);
    CHECK_MSG(gen_result.code == 3 && gen_one_sentence() && !gen_exists("o.png"), "%d, %s",
              gen_result.code, gen_result.err);
}

static void check_record(const char *name)
{
    char path[4096];
    tsr_png_meta meta = {0};

    snprintf(path, sizeof path, "%s/%s", gen_result.dir, name);
    CHECK(tsr_png_read_meta(path, &meta, NULL) == TSR_OK);
    CHECK(meta.record && strstr(meta.record, "\"degradations\":[{\"what\":\"size\",\"from\""));
    tsr_png_meta_free(&meta);
}

static void gen__no_exact_plan__makes_a_smaller_picture_and_says_so(void)
{
    char number[32];
    int width = 0, height = 0;
    size_t least = least_budget(EMBEDDED, "2");
    const char *end;

    SKIP_IF_SANITIZED();
    snprintf(number, sizeof number, "%zu", least - least / 8);
    gen(PICTURE, "--model", EMBEDDED, "--threads=2", "--out=s.png", "--report=s.json", "--budget",
        number, NULL);
    end = strchr(gen_result.err, '\n');
    CHECK_MSG(gen_result.code == 0 && end && !end[1], "%d, %s", gen_result.code, gen_result.err);
    CHECK(strstr(gen_result.err, "gen: warning: made smaller to fit the budget: "));
    free(gen_load("s.png", &width, &height));
    CHECK_MSG(width == height && width >= 128 && width < 512, "%dx%d", width, height);
    gen_read("s.json", text);
    CHECK(strstr(text, "\"degradations\": [{\"what\":\"size\",\"from\":\"512x512\""));
    check_record("s.png");
    gen("replay", "s.png", "--model", EMBEDDED, "--out=s2.png", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("s.png", "s2.png"), "%s", gen_result.err);
    gen(PICTURE, "--model", EMBEDDED, "--threads=2", "--out=s3.png", "--strict", "--budget", number,
        NULL);
    CHECK_MSG(gen_result.code == 3 && gen_one_sentence() &&
                  strstr(gen_result.err, "the largest picture that fits is "),
              "%d, %s", gen_result.code, gen_result.err);
}

static void gen__a_spill_directory_that_is_none__matters_where_it_spills(void)
{
    static const char *const dirs[] = {"--spill-dir=none", "--spill-dir=/proc"};
    char number[32];
    size_t least = least_budget(EMBEDDED, "2");

    SKIP_IF_SANITIZED();
    snprintf(number, sizeof number, "%zu", least);
    for (int i = 0; i < 2; i++) {
        gen(PICTURE, "--model", EMBEDDED, "--threads=2", "--out=d.png", dirs[i], "--budget", number,
            NULL);
        CHECK_MSG(gen_result.code == 5 && gen_one_sentence() && strstr(gen_result.err, "spill"),
                  "%s: %d, %s", dirs[i], gen_result.code, gen_result.err);
        CHECK(!gen_exists("d.png"));
        gen(PICTURE, "--model", EMBEDDED, "--threads=2", "--out=plenty.png", dirs[i], NULL);
        CHECK_MSG(gen_result.code == 0, "%s: %d, %s", dirs[i], gen_result.code, gen_result.err);
    }
    gen(PICTURE, "--model", EMBEDDED, "--threads=2", "--out=d.png", "--spill-dir=.", "--budget",
        number, "--report=d.json", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("plenty.png", "d.png"), "%s", gen_result.err);
    gen_read("d.json", text);
    CHECK(strstr(text, "\"bytes_spilled\": ") && !strstr(text, "\"bytes_spilled\": 0,"));
}

/* ------------------------------------------------------------------ plans */

static double number_of(const cJSON *object, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static void check_rows(const cJSON *sweep_json)
{
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(sweep_json, "sweep"), *row;
    double least = number_of(sweep_json, "minimum_budget_bytes"), budget = 0, seconds = INFINITY;
    double width = number_of(sweep_json, "width");
    int n = 0;

    cJSON_ArrayForEach(row, rows)
    {
        CHECK(number_of(row, "budget_bytes") > budget);
        budget = number_of(row, "budget_bytes");
        CHECK(number_of(row, "predicted_peak_bytes") <= budget);
        CHECK((number_of(row, "width") < width) == (budget < least));
        if (budget >= least) {
            CHECK(number_of(row, "predicted_seconds") <= seconds);
            seconds = number_of(row, "predicted_seconds");
            n++;
        }
        CHECK(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(row, "phases")) == 3);
    }
    CHECK_MSG(n == 12, "%d budgets", n);
    CHECK(budget == number_of(sweep_json, "fastest_budget_bytes"));
}

static void gen_plan__sweep__more_memory_is_never_slower(void)
{
    cJSON *json;

    SKIP_IF_SANITIZED();
    gen("plan", "--model", EMBEDDED, "--sweep", "--json", "--report=w.json", NULL);
    CHECK_MSG(gen_result.code == 0 && !*gen_result.err, "%d, %s", gen_result.code, gen_result.err);
    json = cJSON_Parse(gen_result.out);
    REQUIRE(json != NULL);
    check_rows(json);
    cJSON_Delete(json);
    gen_read("w.json", text);
    CHECK(strcmp(text, gen_result.out) == 0);
}

static void gen_plan__plot__draws_the_sweep(void)
{
    const char *bar = text;
    int bars = 0;

    gen("plan", "--model", EMBEDDED, "--plot", "plots/p.svg", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "streamed"), "%d, %s", gen_result.code,
              gen_result.err);
    gen_read("plots/p.svg", text);
    CHECK(strncmp(text, "<svg ", 5) == 0 && strstr(text, "</svg>\n"));
    CHECK(strstr(text, "prefers-color-scheme:dark") && strstr(text, "seconds a picture"));
    CHECK(!strstr(text, "nan") && !strstr(text, "inf"));
    while ((bar = strstr(bar, " MiB: denoise "))) {
        bars++;
        bar++;
    }
    CHECK_MSG(bars >= 8 || test_sanitized, "%d bars", bars);
    gen("plan", "--model", EMBEDDED, "--plot", "/proc/none/p.svg", NULL);
    CHECK_MSG(gen_result.code == 5 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen_plan__too_small_a_budget__plans_what_would_be_made(void)
{
    char number[32];
    size_t least = least_budget(EMBEDDED, "2");

    SKIP_IF_SANITIZED();
    snprintf(number, sizeof number, "%zu", least - least / 8);
    gen("plan", "--model", EMBEDDED, "--threads=2", "--budget", number, NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "the picture is made smaller"), "%s",
              gen_result.out);
    CHECK(strstr(gen_result.out, "of weights streamed a call"));
    gen("plan", "--model", EMBEDDED, "--budget=1M", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "would be refused"), "%s",
              gen_result.out);
    gen("plan", "--model", EMBEDDED, "--threads=2", "--budget", number, "--strict", NULL);
    CHECK_MSG(gen_result.code == 0 && strstr(gen_result.out, "would be refused"), "%s",
              gen_result.out);
}

static void make_model(void)
{
    static const micro_options options;

    micro = micro_model(&options);
    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), micro);
    REQUIRE(micro != NULL);
}

/* The start noise of --latents is part of the need, and of the plan, which does not read it. */
static void gen_plan__with_latents__counts_them_as_the_run_does(void)
{
    double without, with, run;

    SKIP_IF_SANITIZED();
    gen("--prompt=x", "--model", micro, "--steps=1", "--seed=1", "--width=400", "--height=400",
        "--out=n.png", "--save-latents=n.st", NULL);
    gen("plan", "--prompt=x", "--model", micro, "--steps=1", "--width=400", "--height=400",
        "--budget=1G", "--json", NULL);
    without = json_number(gen_result.out, "predicted_peak_bytes");
    gen("plan", "--prompt=x", "--model", micro, "--steps=1", "--width=400", "--height=400",
        "--budget=1G", "--latents=n.st", "--json", NULL);
    with = json_number(gen_result.out, "predicted_peak_bytes");
    gen("--prompt=x", "--model", micro, "--steps=1", "--seed=1", "--width=400", "--height=400",
        "--budget=1G", "--latents=n.st", "--out=n.png", "--report=n.json", NULL);
    gen_read("n.json", text);
    run = json_number(text, "predicted_peak_bytes");
    CHECK_MSG(with > without + 640e3, "%g without, %g with latents of 640 KB", without, with);
    CHECK_MSG(with == run, "planned %g, the run %g", with, run);
    gen("plan", "--prompt=x", "--model", micro, "--latents=n.st", NULL); /* of another size */
    CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

int main(void)
{
    RUN(make_model);
    if (!micro)
        return test_end();
    RUN(gen__any_budget__gives_the_same_picture);
    RUN(gen__offload_and_tile__give_the_same_picture);
    RUN(gen__placement_that_does_not_fit__is_exit_3);
    RUN(gen__no_exact_plan__makes_a_smaller_picture_and_says_so);
    RUN(gen__a_spill_directory_that_is_none__matters_where_it_spills);
    RUN(gen_plan__sweep__more_memory_is_never_slower);
    RUN(gen_plan__plot__draws_the_sweep);
    RUN(gen_plan__too_small_a_budget__plans_what_would_be_made);
    RUN(gen_plan__with_latents__counts_them_as_the_run_does);
    return test_end();
}
