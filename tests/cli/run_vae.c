/* run_vae.c -- gen decode and gen encode: saved latents give the picture again, bit for bit; a
 * picture's latents are those of the verified encoder, bit for bit, and close to the reference's;
 * no budget changes a bit; hostile pictures are refused. */
#include <libdeflate.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/latents_file.h"
#include "cli/png.h"
#include "tests/support/gen_run.h"
#include "tests/support/golden_nets.h"
#include "tests/support/micro_model.h"
#include "tests/support/test.h"

#define EMBEDDED TSR_SOURCE_DIR "/assets/model"

static const double LIMIT = 3e-2; /* the golden's picture is rounded to bytes first */

static char path[4096];

static const char *in_dir(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", gen_result.dir, name);
    return path;
}

/* The smallest budget by the refusal's sentence, as text; the command line ends in --budget. */
static char *least(char number[32])
{
    static const char words[] = "the smallest budget is ";
    const char *at = strstr(gen_result.err, words);

    CHECK_MSG(gen_result.code == 3 && gen_one_sentence() && at, "%d, %s", gen_result.code,
              gen_result.err);
    snprintf(number, 32, "%llu", at ? strtoull(at + strlen(words), NULL, 10) : 1);
    return number;
}

/* ----------------------------------------------------------------- decode */

static void gen_decode__saved_latents__give_the_picture_again(void)
{
    char number[32];

    gen("--prompt=a red fox", "--model", EMBEDDED, "--seed=3", "--steps=2", "--num=2",
        "--out=a.png", "--save-latents=a.st", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    gen("decode", "a.st", "--model", EMBEDDED, "--out=d{index}.png", "--report=d.json", NULL);
    CHECK_MSG(gen_result.code == 0 && !*gen_result.err, "%d, %s", gen_result.code, gen_result.err);
    CHECK(strncmp(gen_result.out, "d0.png  512x512  ", 17) == 0);
    CHECK(gen_same_pixels("a-0.png", "d0.png") && gen_same_pixels("a-1.png", "d1.png"));
    gen("decode", "a.st", "--model", EMBEDDED, "--threads=1", "--budget=1000000", NULL);
    if (!test_sanitized) {
        least(number);
        gen("decode", "a.st", "--model", EMBEDDED, "--threads=1", "--out=l{index}.png", "--budget",
            number, NULL);
        CHECK_MSG(gen_result.code == 0 && gen_same_pixels("a-1.png", "l1.png"), "%d, %s",
                  gen_result.code, gen_result.err);
    }
    gen("decode", "a.st", "--model", EMBEDDED, "--offload=stream", "--tile=16", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("a-1.png", "out/decoded-1.png"), "%d, %s",
              gen_result.code, gen_result.err);
    gen("replay", "d0.png", "--model", EMBEDDED, NULL); /* it does not know the prompt */
    CHECK_MSG(gen_result.code == 4 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen_decode__an_odd_size__is_cut_out_of_the_middle(void)
{
    gen("--prompt=x", "--model", "MODEL", "--seed=1", "--steps=1", "--width=19", "--height=22",
        "--out=o.png", "--save-latents=o.st", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    gen("decode", "o.st", "--model", "MODEL", "--width=19", "--height=22", "--out=p.png", NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_pixels("o.png", "p.png"), "%d, %s", gen_result.code,
              gen_result.err);
}

static void gen_decode__what_does_not_fit__is_refused(void)
{
    gen("decode", "o.st", "--model", "MODEL", "--width=64", NULL);
    CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("decode", "o.png", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 4 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("decode", "none.st", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 5 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("decode", "o.st", "--model", "MODEL", "--out={seed}.png", NULL);
    CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

/* ----------------------------------------------------------------- encode */

/* The golden's picture [1,3,H,W] rounded to bytes: as such, and as what the encoder then sees. */
static uint8_t *round_picture(const golden_tensor *in, float *seen)
{
    size_t n = in->n / 3;
    uint8_t *rgb = malloc(in->n); // [H,W,3]

    for (size_t i = 0; rgb && i < in->n; i++) {
        float x = fminf(fmaxf(in->data[i], -1), 1);
        uint8_t b = (uint8_t)nearbyintf((x + 1) * 127.5f);
        rgb[3 * (i % n) + i / n] = b;
        seen[i] = 2.0f * ((float)b / 255.0f) - 1.0f;
    }
    return rgb;
}

static void check_latents(golden *g, golden_vae *vae, const char *name, golden_tensor seen,
                          tsr_dtype dtype, bool upcast)
{
    golden_job job = golden_job_best(upcast ? TSR_F32 : dtype);
    const golden_tensor *mean = golden_need(g, "%s.mean", name);
    golden_net net = {0};
    tsr_val out;
    float *latents = NULL, *moments = NULL;
    int32_t shape[4];
    size_t n, same = 0;

    job.upcast = upcast;
    REQUIRE(mean != NULL);
    CHECK(tsr_latents_read(in_dir("e.st"), &latents, shape, NULL) == TSR_OK);
    if (latents && golden_vae_encode(&net, vae, &job, &seen, &out))
        moments = golden_net_get(&net, out, &n);
    if (latents && moments && n == 2 * mean->n &&
        (size_t)shape[1] * (size_t)shape[2] * (size_t)shape[3] == mean->n) {
        for (size_t i = 0; i < mean->n; i++) {
            same += latents[i] == moments[i] * vae->cfg.scaling_factor;
            latents[i] /= vae->cfg.scaling_factor;
        }
        CHECK_MSG(same == mean->n, "%s: %zu of %zu latents", name, same, mean->n);
        golden_compare(name, golden_precision(&job), "", latents, mean->n, mean, LIMIT);
    } else {
        CHECK_MSG(false, "%s: no latents of that size", name);
    }
    tsr_free(latents);
    free(moments);
    golden_net_free(&net);
}

static void check_encoding(const char *model, golden *g, golden_vae *vae, const char *name)
{
    const golden_tensor *in = golden_need(g, "%s.in", name);
    golden_tensor seen;
    uint8_t *rgb;
    static const char *const precisions[] = {"fp32", "fp16"};

    REQUIRE(in != NULL);
    seen = *in;
    seen.data = malloc(in->n * sizeof(float));
    REQUIRE(seen.data != NULL);
    rgb = round_picture(in, seen.data);
    CHECK(rgb &&
          tsr_png_write(in_dir("e.png"), rgb, in->dims[3], in->dims[2], NULL, 0, NULL) == TSR_OK);
    for (int i = 0; i < 2; i++) {
        gen("encode", "e.png", "--model", model, "--save-latents=e.st", "--precision",
            precisions[i], NULL);
        CHECK_MSG(gen_result.code == 0 && !*gen_result.err, "%s: %d, %s", name, gen_result.code,
                  gen_result.err);
        check_latents(g, vae, name, seen, i ? TSR_F16 : TSR_F32,
                      i && strstr(model, "/sdxl")); /* which is run in float32 in any case */
    }
    free(rgb);
    free(seen.data);
}

/* Every case of one entry that a whole model of the root has. */
static void check_models(const char *root)
{
    for (int32_t m = 0; golden_model(m); m++) {
        char model[4096], file[128], vae_dir[4200], name[128];
        golden g;
        golden_vae vae;
        int32_t pos = 0;

        snprintf(model, sizeof model, "%s/models/%s", root, golden_model(m));
        snprintf(file, sizeof file, "golden/vae-%s.safetensors", golden_model(m));
        snprintf(vae_dir, sizeof vae_dir, "models/%s/model_index.json", golden_model(m));
        if (!golden_has(root, file) || !golden_has(root, vae_dir))
            continue;
        snprintf(vae_dir, sizeof vae_dir, "%s/vae", model);
        snprintf(file, sizeof file, "vae-%s", golden_model(m));
        if (golden_open(&g, root, file) && golden_vae_open(&vae, vae_dir)) {
            while (golden_next_case(&g, ".mean", &pos, name, sizeof name))
                if (golden_need(&g, "%s.in", name)->dims[0] == 1)
                    check_encoding(model, &g, &vae, name);
            golden_vae_close(&vae);
        }
        golden_close(&g);
    }
}

static void gen_encode__small_models__are_the_verified_encoder(void)
{
    check_models(golden_root(0));
}

static void gen_encode__all_cases__are_the_verified_encoder(void)
{
    if (!golden_root(1))
        SKIP("the reference data");
    check_models(golden_root(1));
}

static void gen_encode__any_budget__gives_the_same_latents(void)
{
    char number[32];

    SKIP_IF_SANITIZED();
    gen("encode", "a-0.png", "--model", EMBEDDED, "--save-latents=plenty.st", NULL);
    CHECK_MSG(gen_result.code == 0, "%s", gen_result.err);
    CHECK(strstr(gen_result.out, "plenty.st  [1,16,16,16] of 512x512  "));
    gen("encode", "a-0.png", "--model", EMBEDDED, "--threads=1", "--save-latents=no.st",
        "--budget=1000000", NULL);
    least(number);
    CHECK(!gen_exists("no.st"));
    gen("encode", "a-0.png", "--model", EMBEDDED, "--threads=1", "--save-latents=least.st",
        "--report=e.json", "--budget", number, NULL);
    CHECK_MSG(gen_result.code == 0 && gen_same_bytes("plenty.st", "least.st"), "%d, %s",
              gen_result.code, gen_result.err);
}

/* Mean difference of two pictures' bytes. */
static double difference(const char *a, const char *b)
{
    int w = 0, h = 0, w2 = 1, h2 = 1;
    uint8_t *x = gen_load(a, &w, &h), *y = gen_load(b, &w2, &h2);
    double sum = 0;

    CHECK(x && y && w == w2 && h == h2);
    for (size_t i = 0; x && y && w == w2 && h == h2 && i < (size_t)w * (size_t)h * 3; i++)
        sum += abs(x[i] - y[i]);
    free(x);
    free(y);
    return sum / (3.0 * w * h);
}

static void gen_encode__then_decode__gives_the_picture_back(void)
{
    gen("--prompt=a red apple", "--model", EMBEDDED, "--seed=1", "--out=apple.png", NULL);
    gen("encode", "apple.png", "--model", EMBEDDED, "--save-latents=apple.st", NULL);
    gen("decode", "apple.st", "--model", EMBEDDED, "--out=again.png", NULL);
    CHECK_MSG(gen_result.code == 0 && difference("apple.png", "again.png") < 8, "%d, %s, %g",
              gen_result.code, gen_result.err, difference("apple.png", "again.png"));
}

/* ------------------------------------------------------------- bad pictures */

static void put_chunk(FILE *f, const char *type, const uint8_t *data, uint32_t n)
{
    uint8_t be[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
    uint32_t crc = libdeflate_crc32(libdeflate_crc32(0, type, 4), data, n);

    fwrite(be, 1, 4, f);
    fwrite(type, 1, 4, f);
    fwrite(data, 1, n, f);
    for (int i = 0; i < 4; i++)
        fputc((int)(crc >> (24 - 8 * i) & 255), f);
}

/* A PNG that says it has this side (a byte of 16) and unpacks to 64 MiB. */
static void write_zeros(const char *name, uint8_t high, uint8_t low)
{
    enum { UNPACKED = 64 << 20 };
    const uint8_t header[13] = {0, 0, high, low, 0, 0, high, low, 8, 2};
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(6);
    uint8_t *zeros = calloc(UNPACKED, 1), *packed = malloc(1 << 20);
    FILE *f = fopen(in_dir(name), "wb");
    size_t n = c && zeros && packed
                   ? libdeflate_zlib_compress(c, zeros, UNPACKED, packed, (size_t)1 << 20)
                   : 0;

    CHECK(n > 0 && f);
    if (f) {
        fwrite("\x89PNG\r\n\x1a\n", 1, 8, f);
        put_chunk(f, "IHDR", header, sizeof header);
        put_chunk(f, "IDAT", packed, (uint32_t)n);
        put_chunk(f, "IEND", packed, 0);
        fclose(f);
    }
    free(zeros);
    free(packed);
    libdeflate_free_compressor(c);
}

static void write_half(const char *from, const char *to)
{
    char *bytes = NULL;
    size_t n = 0;
    FILE *f;

    CHECK(tsr_file_slurp(in_dir(from), (size_t)1 << 20, &bytes, &n, NULL) == TSR_OK);
    f = fopen(in_dir(to), "wb");
    CHECK(f && fwrite(bytes, 1, n / 2, f) == n / 2);
    if (f)
        fclose(f);
    tsr_free(bytes);
}

static void gen_encode__bad_pictures__are_refused(void)
{
    static const char *const names[] = {"text.png", "bomb.png", "large.png",
                                        "cut.png",  "tiny.png", "empty.png"};

    write_zeros("bomb.png", 0, 16);
    write_zeros("large.png", 100, 0);
    write_zeros("tiny.png", 0, 4);
    gen_write("text.png", "this is no picture\n");
    write_half("apple.png", "cut.png");
    gen_write("empty.png", "");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        gen("encode", names[i], "--model", "MODEL", "--save-latents=bad.st", NULL);
        CHECK_MSG(gen_result.code == 4 && gen_one_sentence() && !gen_exists("bad.st"), "%s: %d, %s",
                  names[i], gen_result.code, gen_result.err);
    }
    CHECK(strstr(gen_result.err, "empty.png"));
    gen("encode", "none.png", "--model", "MODEL", "--save-latents=bad.st", NULL);
    CHECK_MSG(gen_result.code == 5 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("encode", "o.png", "--model", "MODEL", NULL);
    CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
    gen("encode", "o.png", "--model", "MODEL", "--save-latents=o.png", NULL);
    CHECK_MSG(gen_result.code == 2 && gen_one_sentence(), "%d, %s", gen_result.code,
              gen_result.err);
}

static void make_model(void)
{
    static const micro_options options;

    gen_setup(TSR_BINARY_DIR "/gen", test_temp_dir(), micro_model(&options));
    REQUIRE(gen_result.model != NULL);
}

int main(void)
{
    RUN(make_model);
    if (!gen_result.model)
        return test_end();
    RUN(gen_decode__saved_latents__give_the_picture_again);
    RUN(gen_decode__an_odd_size__is_cut_out_of_the_middle);
    RUN(gen_decode__what_does_not_fit__is_refused);
    RUN(gen_encode__small_models__are_the_verified_encoder);
    RUN(gen_encode__all_cases__are_the_verified_encoder);
    RUN(gen_encode__any_budget__gives_the_same_latents);
    RUN(gen_encode__then_decode__gives_the_picture_back);
    RUN(gen_encode__bad_pictures__are_refused);
    return test_end();
}
