/* test_meta.c -- what pictures say of themselves, turned back into options. */
#include "cli/meta.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/support/test.h"

static const char record[] =
    "{\"tessera\":\"0.1.0\",\"prompt\":\"a \\\"red\\\" apple\\n\xe7\x8c\xab\",\"negative_prompt\":"
    "\"\",\"width\":515,\"height\":384,\"frames\":1,\"steps\":7,\"guidance\":6.5,"
    "\"guidance_rescale\":0.25,\"scheduler\":\"euler_a\",\"sigmas\":\"karras\",\"prediction_type\":"
    "\"epsilon\",\"eta\":0,\"clip_skip\":1,\"seed\":18446744073709551615,\"index\":3,\"rng\":"
    "\"torch-cuda\",\"own_latents\":false,\"precision\":\"fp32\",\"vae_precision\":\"fp32\","
    "\"original_size\":[515,384],\"crop\":[1,2],\"target_size\":[600,400],\"model\":\"sd15\","
    "\"model_hash\":\"00ff\",\"tier\":\"avx2\",\"threads\":2,\"degradations\":[{\"what\":\"size\"}]"
    "}";

static char warnings[4096];

static void keep_warning(void *user, tsr_log_level level, const char *line)
{
    size_t n = strlen(warnings);

    (void)user;
    (void)level;
    snprintf(warnings + n, sizeof warnings - n, "%s\n", line);
}

static const tsr_log log_to_warnings = {keep_warning, NULL};

static bool is(const char *a, const char *b)
{
    return a && strcmp(a, b) == 0;
}

static void meta__a_record__fills_the_options(void)
{
    tsr_meta m = {0};
    tsr_options o = {0};

    REQUIRE(tsr_meta_from_record(&m, record, strlen(record), NULL) == TSR_OK);
    CHECK(is(m.model, "sd15") && is(m.model_hash, "00ff") && !m.own_latents);
    REQUIRE(tsr_meta_apply(&m, &o, NULL) == TSR_OK);
    CHECK(is(o.prompt, "a \"red\" apple\n\xe7\x8c\xab"));
    CHECK(o.given[TSR_OPT_NEGATIVE_PROMPT] && is(o.negative_prompt, ""));
    CHECK(!o.given[TSR_OPT_PROMPT_2]);
    CHECK(o.width == 515 && o.height == 384 && o.steps == 7);
    CHECK(o.guidance == 6.5f && o.guidance_rescale == 0.25f && o.clip_skip == 1);
    CHECK(is(tsr_options_choice(&o, TSR_OPT_SCHEDULER), "euler_a"));
    CHECK(is(tsr_options_choice(&o, TSR_OPT_SIGMAS), "karras"));
    CHECK(o.seed == UINT64_MAX && o.given[TSR_OPT_SEED]);
    CHECK(o.rng == TSR_RNG_TORCH_CUDA && o.precision == TSR_PRECISION_FP32);
    CHECK(o.cpu_tier == TSR_TIER_AVX2);
    CHECK(!o.given[TSR_OPT_ORIGINAL_SIZE]); /* repeats the picture's size: the default */
    CHECK(o.crop[0] == 1 && o.crop[1] == 2);
    CHECK(o.target_size[0] == 600 && o.target_size[1] == 400);
    tsr_options_free(&o);
    tsr_meta_free(&m);
}

static void meta__the_command_line__comes_before_the_record(void)
{
    tsr_meta m = {0};
    tsr_options o = {0};

    REQUIRE(tsr_meta_from_record(&m, record, strlen(record), NULL) == TSR_OK);
    CHECK(tsr_options_set(&o, TSR_OPT_STEPS, "30", NULL) == TSR_OK);
    CHECK(tsr_options_set(&o, TSR_OPT_CFG_SCALE, "3", NULL) == TSR_OK);
    CHECK(tsr_options_set(&o, TSR_OPT_PROMPT_FILE, "f", NULL) == TSR_OK);
    CHECK(tsr_meta_apply(&m, &o, NULL) == TSR_OK);
    CHECK(o.steps == 30 && o.guidance == 3 && !o.prompt && o.width == 515);
    tsr_options_free(&o);
    tsr_meta_free(&m);
}

static void meta__broken_records__are_refused_with_a_sentence(void)
{
    static const char *const rows[] = {
        "",
        "[]",
        "7",
        "{",
        "{}",
        "{\"prompt\":\"x\"}",
        "{\"prompt\":\"x\",\"seed\":1",
        "{\"prompt\":\"x\",\"seed\":1}x",
        "{\"prompt\":7,\"seed\":1}",
        "{\"prompt\":\"x\",\"seed\":\"1\"}",
        "{\"prompt\":\"x\\u0000y\",\"seed\":1}",
        "{\"prompt\":\"\xff\",\"seed\":1}",
        "{\"prompt\":\"x\",\"seed\":1,\"crop\":[1]}",
        "{\"prompt\":\"x\",\"seed\":1,\"crop\":[1,2,3]}",
        "{\"prompt\":\"x\",\"seed\":1,\"crop\":{\"x\":1}}",
        "{\"prompt\":\"x\",\"seed\":1,\"own_latents\":1}",
        "{\"prompt\":\"x\",\"seed\":1,\"model_hash\":null}",
        "{\"prompt\":\"x\",\"seed\":1,\"deep\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]"
        "]]]"
        "]]]]]]]]]]]]]]]]]]]]]]}",
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_meta m = {0};
        tsr_err err = {0};
        tsr_status st = tsr_meta_from_record(&m, rows[i], strlen(rows[i]), &err);
        CHECK_MSG(st == TSR_E_MODEL && *err.msg, "%s: status %d", rows[i], st);
        tsr_meta_free(&m);
    }
}

static void meta__values_that_no_option_takes__are_refused_by_name(void)
{
    static const struct {
        const char *json, *want;
    } rows[] = {
        {"\"steps\":1e9", "--steps"},           {"\"steps\":2.5", "--steps"},
        {"\"width\":-512", "--width"},          {"\"width\":4", "--width"},
        {"\"scheduler\":\"x\"", "--scheduler"}, {"\"guidance\":1e99", "--guidance"},
        {"\"crop\":[1.5,2]", "--crop"},         {"\"frames\":16", "--frames 16 is not there yet"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[256];
        tsr_meta m = {0};
        tsr_options o = {0};
        tsr_err err = {0};
        snprintf(json, sizeof json, "{\"prompt\":\"x\",\"seed\":1,%s}", rows[i].json);
        REQUIRE(tsr_meta_from_record(&m, json, strlen(json), &err) == TSR_OK);
        CHECK(tsr_meta_apply(&m, &o, &err) == TSR_E_MODEL);
        CHECK_MSG(strstr(err.msg, rows[i].want), "%s: \"%s\"", json, err.msg);
        tsr_options_free(&o);
        tsr_meta_free(&m);
    }
}

/* The value of an option that a text gives, or "" where it gives none. */
static const char *value(const tsr_meta *m, tsr_option_id id)
{
    return m->value[id] ? m->value[id] : "";
}

static tsr_status from_text(tsr_meta *m, const char *text, tsr_err *err)
{
    *m = (tsr_meta){0};
    *err = (tsr_err){0};
    warnings[0] = 0;
    return tsr_meta_from_a1111(m, text, &log_to_warnings, err);
}

static void meta__a1111_text__fills_the_options(void)
{
    tsr_meta m;
    tsr_err err;

    CHECK(from_text(&m,
                    "a cat,\nsoft light\nNegative prompt: blurry,\ngrey\nSteps: 20, Sampler: DPM++ "
                    "2M Karras, CFG scale: 7.5, Seed: 4294967296, Size: 512x768, Model hash: "
                    "6ce0161689, Model: v1-5, Clip skip: 2, Version: v1.6.0\n",
                    &err) == TSR_OK);
    CHECK(is(value(&m, TSR_OPT_PROMPT), "a cat,\nsoft light"));
    CHECK(is(value(&m, TSR_OPT_NEGATIVE_PROMPT), "blurry,\ngrey"));
    CHECK(is(value(&m, TSR_OPT_STEPS), "20") && is(value(&m, TSR_OPT_GUIDANCE), "7.5"));
    CHECK(is(value(&m, TSR_OPT_SCHEDULER), "dpmpp_2m") && is(value(&m, TSR_OPT_SIGMAS), "karras"));
    CHECK(is(value(&m, TSR_OPT_SEED), "4294967296") && is(value(&m, TSR_OPT_CLIP_SKIP), "1"));
    CHECK(is(value(&m, TSR_OPT_WIDTH), "512") && is(value(&m, TSR_OPT_HEIGHT), "768"));
    CHECK(is(value(&m, TSR_OPT_RNG), "torch-cuda") && is(m.model, "v1-5") && !m.model_hash);
    CHECK_MSG(!*warnings, "%s", warnings);
    tsr_meta_free(&m);
}

static void meta__a1111_samplers__have_our_names(void)
{
    static const struct {
        const char *text, *scheduler, *sigmas;
    } rows[] = {
        {"Sampler: Euler a", "euler_a", "default"},
        {"Sampler: Euler", "euler", "default"},
        {"Sampler: PLMS", "pndm", "default"},
        {"Sampler: UniPC, Schedule type: Automatic", "unipc", "default"},
        {"Sampler: DPM++ 2M, Schedule type: Automatic", "dpmpp_2m", "karras"},
        {"Sampler: DPM++ 2M, Schedule type: Karras", "dpmpp_2m", "karras"},
        {"Sampler: DPM++ 2M, Schedule type: Uniform", "dpmpp_2m", "default"},
        {"Sampler: DPM++ 2M SDE Exponential", "dpmpp_2m_sde", "exponential"},
        {"Sampler: DPM++ 2M SDE", "dpmpp_2m_sde", "default"},
        {"Sampler: dpmpp_2m, Schedule type: karras", "dpmpp_2m", "karras"},
        {"Sampler: LCM", "lcm", "default"},
        {"CFG scale: 7", "", ""},
    };
    tsr_meta m;
    tsr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        snprintf(text, sizeof text, "x\nSteps: 5, %s", rows[i].text);
        CHECK(from_text(&m, text, &err) == TSR_OK);
        CHECK_MSG(is(value(&m, TSR_OPT_SCHEDULER), rows[i].scheduler) &&
                      is(value(&m, TSR_OPT_SIGMAS), rows[i].sigmas) && !*warnings,
                  "%s: %s, %s; %s", rows[i].text, value(&m, TSR_OPT_SCHEDULER),
                  value(&m, TSR_OPT_SIGMAS), warnings);
        tsr_meta_free(&m);
    }
}

static void meta__a1111_what_is_not_understood__is_a_warning(void)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"x\nSteps: 5, Sampler: DPM++ 3M SDE", "sampler \"DPM++ 3M SDE\""},
        {"x\nSteps: 5, Sampler: DPM++ 2M, Schedule type: Turbo", "schedule type \"Turbo\""},
        {"x\nSteps: 5, Hires upscale: 2, Denoising strength: 0.5", "\"Hires upscale: 2\""},
        {"x\nSteps: 5, Clip skip: 0", "Clip skip: 0"},
        {"<lora:a:1>\nSteps: 5", "LoRA"},
        {"x\nSteps: 5, Lora: \"a: b, \\\"c\\\"\", Seed: 3", "\"Lora: a: b, \"c\"\""},
    };
    tsr_meta m;
    tsr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK(from_text(&m, rows[i].text, &err) == TSR_OK);
        CHECK_MSG(strstr(warnings, rows[i].want), "%s: %s", rows[i].text, warnings);
        CHECK(is(value(&m, TSR_OPT_STEPS), "5"));
        tsr_meta_free(&m);
    }
    CHECK(from_text(&m, rows[5].text, &err) == TSR_OK && is(value(&m, TSR_OPT_SEED), "3"));
    tsr_meta_free(&m);
}

static void meta__a1111_odd_texts__are_read_or_refused(void)
{
    static const struct {
        const char *text;
        tsr_status want;
        const char *prompt, *negative;
    } rows[] = {
        {"Steps: 5", TSR_OK, "", NULL},
        {"\nNegative prompt:\nSteps: 5", TSR_OK, "", ""},
        {"Negative prompt: a\nSteps: 5", TSR_OK, "", "a"},
        {"a Negative prompt: b\nSteps: 5", TSR_OK, "a Negative prompt: b", NULL},
        {"a\r\nSteps: 5, Seed: 1\r\n", TSR_OK, "a", NULL},
        {"a\nSteps: 5, Seed", TSR_OK, "a", NULL},
        {"a\nSteps: 5, Seed:", TSR_OK, "a", NULL},
        {"a\nSteps: 5, Model: \"never ends, Seed: 1", TSR_OK, "a", NULL},
        {"", TSR_E_MODEL, NULL, NULL},
        {"only a prompt", TSR_E_MODEL, NULL, NULL},
        {"a\nSteps: 5, Size: large", TSR_E_MODEL, NULL, NULL},
    };
    tsr_meta m;
    tsr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_status st = from_text(&m, rows[i].text, &err);
        const char *negative = m.value[TSR_OPT_NEGATIVE_PROMPT];
        CHECK_MSG(st == rows[i].want, "row %zu: status %d", i, st);
        CHECK_MSG(st == TSR_OK || *err.msg, "row %zu", i);
        if (rows[i].prompt)
            CHECK_MSG(is(value(&m, TSR_OPT_PROMPT), rows[i].prompt), "row %zu: \"%s\"", i,
                      value(&m, TSR_OPT_PROMPT));
        CHECK_MSG(rows[i].negative ? is(negative, rows[i].negative) : !negative, "row %zu", i);
        tsr_meta_free(&m);
    }
}

static void meta__out_of_memory__is_a_clean_error(void)
{
    static const char text[] = "a\nNegative prompt: b\nSteps: 5, Sampler: Euler, Seed: 1";

    for (uint64_t n = 1; n < 500; n++) {
        tsr_meta m = {0}, a = {0};
        tsr_options o = {0};
        tsr_err err = {0};
        tsr_status st;
        tsr_alloc_fail_at(n);
        st = tsr_meta_from_record(&m, record, strlen(record), &err);
        if (st == TSR_OK)
            st = tsr_meta_from_a1111(&a, text, &log_to_warnings, &err);
        if (st == TSR_OK)
            st = tsr_meta_apply(&m, &o, &err);
        tsr_options_free(&o);
        tsr_meta_free(&m);
        tsr_meta_free(&a);
        if (!tsr_alloc_failed()) {
            CHECK(st == TSR_OK && n > 20);
            break;
        }
        CHECK_MSG(st == TSR_E_OOM && *err.msg, "allocation %llu: status %d", (unsigned long long)n,
                  st);
    }
    tsr_alloc_fail_at(0);
}

int main(void)
{
    RUN(meta__a_record__fills_the_options);
    RUN(meta__the_command_line__comes_before_the_record);
    RUN(meta__broken_records__are_refused_with_a_sentence);
    RUN(meta__values_that_no_option_takes__are_refused_by_name);
    RUN(meta__a1111_text__fills_the_options);
    RUN(meta__a1111_samplers__have_our_names);
    RUN(meta__a1111_what_is_not_understood__is_a_warning);
    RUN(meta__a1111_odd_texts__are_read_or_refused);
    RUN(meta__out_of_memory__is_a_clean_error);
    return test_end();
}
