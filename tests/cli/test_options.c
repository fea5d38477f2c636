/* test_options.c -- command lines and what is made of them. */
#include "cli/options.h"

#include <stdio.h>
#include <string.h>

#include "cli/options_internal.h"
#include "scheduler/scheduler.h"
#include "tests/support/test.h"

enum { MAX_ARGS = 12 };

/* A command line in one string, its arguments separated by '|'. */
static tsr_status parse(const char *line, tsr_options *o, tsr_err *err)
{
    static char words[1024];
    char *argv[MAX_ARGS + 1] = {NULL};
    int argc = 0;

    snprintf(words, sizeof words, "gen|%s", line);
    for (char *p = words; p && argc < MAX_ARGS; argc++) {
        argv[argc] = p;
        p = strchr(p, '|');
        if (p)
            *p++ = 0;
    }
    *err = (tsr_err){0};
    return tsr_options_parse(o, argc, argv, err);
}

static void options__wrong_lines__are_usage_errors_that_name_it(void)
{
    static const struct {
        const char *line, *want;
    } rows[] = {
        {"--prompt|x|--stepz|3", "unknown option --stepz; did you mean --steps?"},
        {"--prompt|x|--guidence=3", "did you mean --guidance?"},
        {"--promt|x", "did you mean --prompt?"},
        {"--xyzzyplugh", "unknown option --xyzzyplugh; gen --help"},
        {"-p|x", "unknown option -p"},
        {"--prompt", "--prompt needs a value (TEXT)"},
        {"--prompt|x|--steps", "--steps needs a value (N)"},
        {"--prompt|--steps|3", "--prompt needs a value (TEXT) before --steps"},
        {"--prompt|x|--steps=", "--steps \"\" is not a number from 1 to 1000"},
        {"--prompt|x|--steps|0", "--steps \"0\" is not a number from 1 to 1000"},
        {"--prompt|x|--steps|1001", "--steps \"1001\""},
        {"--prompt|x|--steps|-3", "--steps \"-3\""},
        {"--prompt|x|--steps|2.5", "--steps \"2.5\""},
        {"--prompt|x|--steps|99999999999999999999999", "--steps \"9999"},
        {"--prompt|x|--width|7", "--width \"7\" is not a number from 8 to 16384"},
        {"--prompt|x|--height|16385", "--height \"16385\""},
        {"--prompt|x|--guidance|nan", "--guidance \"nan\" is not a number from 0 to 1000"},
        {"--prompt|x|--guidance|inf", "--guidance \"inf\""},
        {"--prompt|x|--guidance|1e60", "--guidance \"1e60\""},
        {"--prompt|x|--guidance|0x7", "--guidance \"0x7\""},
        {"--prompt|x|--guidance|7.5x", "--guidance \"7.5x\""},
        {"--prompt|x|--cfg-scale| 7", "--cfg-scale \" 7\""},
        {"--prompt|x|--eta|-0.1", "--eta \"-0.1\" is not a number from 0 to 1"},
        {"--prompt|x|--guidance-rescale|1.1", "--guidance-rescale \"1.1\""},
        {"--prompt|x|--seed|-1", "--seed \"-1\" is not a number from 0 to 18446744073709551615"},
        {"--prompt|x|--seed|18446744073709551616", "--seed \"18446744073709551616\""},
        {"--prompt|x|--seed|0x10", "--seed \"0x10\""},
        {"--prompt|x|--num|0", "--num \"0\""},
        {"--prompt|x|--threads|257", "--threads \"257\" is not a number from 1 to 256"},
        {"--prompt|x|--scheduler|eulr", "did you mean euler?"},
        {"--prompt|x|--scheduler|EULER", "is not one of ddim ddpm"},
        {"--prompt|x|--sigmas|karas", "did you mean karras?"},
        {"--prompt|x|--precision|fp8", "is not one of auto fp16 bf16 fp32"},
        {"--prompt|x|--rng|numpy", "--rng \"numpy\""},
        {"--prompt|x|--cpu-tier|avx3", "did you mean avx2?"},
        {"--prompt|x|--prediction-type|eps", "--prediction-type \"eps\""},
        {"--prompt|x|--backend|metal", "--backend \"metal\" is not auto, cpu"},
        {"--prompt|x|--backend|cuda:x", "--backend \"cuda:x\""},
        {"--prompt|x|--original-size|512", "--original-size \"512\" is not WxH"},
        {"--prompt|x|--original-size|512x", "--original-size \"512x\""},
        {"--prompt|x|--original-size|0x512", "--original-size \"0x512\""},
        {"--prompt|x|--crop|1x2", "--crop \"1x2\" is not X,Y"},
        {"--prompt|x|--budget|12Q", "--budget"},
        {"--prompt|x|--budget|0", "--budget"},
        {"--prompt|x|--strict=yes", "--strict takes no value"},
        {"--prompt|x|--offload|sequential", "is not one of auto none model block stream"},
        {"--prompt|x|--tile|0", "--tile \"0\" is not auto or a number from 1 to 16384"},
        {"--prompt|x|--prompt-file|f", "--prompt and --prompt-file exclude each other"},
        {"plan|--sweep|--budget|1G", "--sweep and --budget exclude each other"},
        {"--prompt|x|--quiet|--verbose", "--quiet and --verbose exclude each other"},
        {"--steps|3", "what to draw is missing: --prompt"},
        {"--prompt|x|apple", "unexpected argument \"apple\""},
        {"--prompt|x|--json", "--json is no option of gen; it belongs to gen plan, gen info"},
        {"plam|--prompt|x", "unknown command \"plam\"; did you mean gen plan?"},
        {"a red apple", "to make a picture write --prompt \"a red apple\""},
        {"tokenize", "gen tokenize needs a text"},
        {"replay", "gen replay needs the picture"},
        {"decode", "gen decode needs the file with the latents"},
        {"decode|f.safetensors|--steps|3", "--steps is no option of gen decode"},
        {"encode|--save-latents|l", "gen encode needs the picture"},
        {"replay|a.png|b.png", "unexpected argument \"b.png\""},
        {"tokenize|--steps|3|x", "--steps is no option of gen tokenize"},
    };
    tsr_options o;
    tsr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_status st = parse(rows[i].line, &o, &err);
        CHECK_MSG(st == TSR_E_USAGE, "%s: status %d", rows[i].line, st);
        CHECK_MSG(strstr(err.msg, rows[i].want), "%s: \"%s\"", rows[i].line, err.msg);
        tsr_options_free(&o);
    }
}

static void options__what_comes_later__is_refused_by_name(void)
{
    static const struct {
        const char *line, *want;
    } rows[] = {
        {"--prompt|x|--frames|16", "--frames 16 is not there yet"},
        {"--prompt|x|--init-image|a.png", "--init-image is not there yet"},
        {"--prompt|x|--strength|0.5", "--strength is not there yet"},
        {"--prompt|x|--mask=m.png", "--mask is not there yet"},
        {"--prompt|x|--vae|v", "--vae is not there yet"},
        {"--prompt|x|--precision|bf16", "--precision bf16 is not there yet"},
        {"batch|f.jsonl", "gen batch is not there yet"},
    };
    tsr_options o;
    tsr_err err;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tsr_status st = parse(rows[i].line, &o, &err);
        CHECK_MSG(st == TSR_E_USAGE, "%s: status %d", rows[i].line, st);
        CHECK_MSG(strstr(err.msg, rows[i].want), "%s: \"%s\"", rows[i].line, err.msg);
        tsr_options_free(&o);
    }
}

static void options__good_lines__fill_every_kind_of_value(void)
{
    tsr_options o;
    tsr_err err;

    CHECK(parse("--prompt=a=b|--width|512|--seed=18446744073709551615|--cfg-scale|1.5|--eta=.25|"
                "--original-size=640x480",
                &o, &err) == TSR_OK);
    CHECK(o.command == TSR_COMMAND_MAKE);
    CHECK(o.prompt && strcmp(o.prompt, "a=b") == 0);
    CHECK(o.width == 512 && o.seed == UINT64_MAX && o.given[TSR_OPT_SEED]);
    CHECK(o.guidance == 1.5f && o.given[TSR_OPT_GUIDANCE] && o.eta == 0.25f);
    CHECK(o.original_size[0] == 640 && o.original_size[1] == 480);
    CHECK(!o.given[TSR_OPT_STEPS] && o.steps == 0);
    tsr_options_free(&o);

    CHECK(parse("--prompt|x|--crop=3,4|--cpu-tier|avx2|--precision|fp32|--rng|torch-cuda|"
                "--budget|1.5G",
                &o, &err) == TSR_OK);
    CHECK(o.crop[0] == 3 && o.crop[1] == 4);
    CHECK(o.cpu_tier == TSR_TIER_AVX2 && o.precision == TSR_PRECISION_FP32);
    CHECK(o.rng == TSR_RNG_TORCH_CUDA && o.budget == (size_t)3 << 29);
    tsr_options_free(&o);

    CHECK(parse("plan|--scheduler|dpmpp_2m_sde|--json|--backend|cuda:1|--tile|auto|--frames|1", &o,
                &err) == TSR_OK);
    CHECK(o.command == TSR_COMMAND_PLAN && o.json && strcmp(o.backend, "cuda:1") == 0);
    CHECK(strcmp(tsr_options_choice(&o, TSR_OPT_SCHEDULER), "dpmpp_2m_sde") == 0);
    CHECK(tsr_options_choice(&o, TSR_OPT_SIGMAS) == NULL);
    tsr_options_free(&o);

    CHECK(parse("--prompt|x|--offload|stream|--tile=64|--spill-dir|/var/tmp", &o, &err) == TSR_OK);
    CHECK(o.offload == TSR_OFFLOAD_STREAM && strcmp(o.tile, "64") == 0);
    CHECK(strcmp(o.spill_dir, "/var/tmp") == 0);
    tsr_options_free(&o);
}

static void options__gnu_habits__are_kept(void)
{
    tsr_options o;
    tsr_err err;

    CHECK(parse("--prompt|one|--steps|3|--prompt|two|--steps=4", &o, &err) == TSR_OK);
    CHECK(strcmp(o.prompt, "two") == 0 && o.steps == 4); /* the last counts */
    tsr_options_free(&o);
    CHECK(parse("tokenize|--json|a|-|--|--json|-x", &o, &err) == TSR_OK);
    CHECK(o.json && o.n_args == 4 && strcmp(o.args[1], "-") == 0);
    CHECK(strcmp(o.args[2], "--json") == 0 && strcmp(o.args[3], "-x") == 0);
    tsr_options_free(&o);
    CHECK(parse("--prompt=--steps", &o, &err) == TSR_OK);
    CHECK(strcmp(o.prompt, "--steps") == 0);
    tsr_options_free(&o);
    CHECK(parse("--prompt|-1|--negative-prompt|", &o, &err) == TSR_OK);
    CHECK(strcmp(o.prompt, "-1") == 0 && o.given[TSR_OPT_NEGATIVE_PROMPT]);
    CHECK(o.negative_prompt && !*o.negative_prompt); /* empty is not the same as not given */
    tsr_options_free(&o);
    CHECK(parse("--guidance|2|--cfg-scale|3|--prompt|x", &o, &err) == TSR_OK);
    CHECK(o.guidance == 3);
    tsr_options_free(&o);
    CHECK(parse("plan|--help|--nonsense", &o, &err) == TSR_OK);
    CHECK(o.help && o.command == TSR_COMMAND_PLAN);
    tsr_options_free(&o);
    CHECK(parse("--version", &o, &err) == TSR_OK && o.version);
    tsr_options_free(&o);
}

static void options__help__has_every_option_and_command(void)
{
    tsr_buf help = {0};

    tsr_options_help(TSR_COMMAND_MAKE, &help);
    REQUIRE(tsr_buf_ok(&help));
    for (int i = 0; i < TSR_OPT_COUNT; i++) {
        REQUIRE(tsr_option_table[i].name != NULL);
        CHECK_MSG(strstr(help.data, tsr_option_table[i].name), "%s", tsr_option_table[i].name);
    }
    for (int i = 0; i < TSR_COMMAND_COUNT; i++)
        CHECK_MSG(strstr(help.data, tsr_command_table[i].name), "%s", tsr_command_table[i].name);
    for (const char *line = help.data; line && *line;) {
        size_t n = strcspn(line, "\n");
        CHECK_MSG(n < 80, "a line of %zu columns: %.*s", n, (int)n, line);
        line += n + (line[n] == '\n');
    }
    tsr_buf_free(&help);
    tsr_options_help(TSR_COMMAND_TOKENIZE, &help);
    CHECK(strstr(help.data, "--json") && !strstr(help.data, "--steps"));
    tsr_buf_free(&help);
}

static void options__schedulers__are_those_of_the_library(void)
{
    const char *const *ours = tsr_option_table[TSR_OPT_SCHEDULER].choices;
    const char *const *theirs = tsr_sched_names();

    for (; *ours; ours++) {
        const char *const *name = theirs;
        while (*name && strcmp(*name, *ours) != 0)
            name++;
        CHECK_MSG(*name != NULL, "%s", *ours);
    }
}

int main(void)
{
    RUN(options__wrong_lines__are_usage_errors_that_name_it);
    RUN(options__what_comes_later__is_refused_by_name);
    RUN(options__good_lines__fill_every_kind_of_value);
    RUN(options__gnu_habits__are_kept);
    RUN(options__help__has_every_option_and_command);
    RUN(options__schedulers__are_those_of_the_library);
    return test_end();
}
