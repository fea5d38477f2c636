/* example.c -- the library in one page: a prompt in, a PPM picture out.
 *
 *     cc docs/example.c -Iinclude -ltessera -lcjson -lpthread -lm -o example
 *     ./example assets/model "a red fox on a blue background" fox.ppm
 *
 * Built and run by the tests. */
#include <stdio.h>

#include <tessera.h>

static bool show(void *user, const tsr_progress *p)
{
    (void)user;
    if (p->phase == TSR_PHASE_DENOISE)
        fprintf(stderr, "step %d of %d\n", p->step, p->n_steps);
    return true; /* false would stop the run */
}

static int write_ppm(const char *path, const tsr_picture *pic)
{
    FILE *f = fopen(path, "wb");
    size_t bytes = 3 * (size_t)pic->width * (size_t)pic->height;
    int bad;

    if (!f)
        return 1;
    fprintf(f, "P6\n%d %d\n255\n", pic->width, pic->height);
    bad = fwrite(pic->rgb, 1, bytes, f) != bytes;
    return fclose(f) != 0 || bad;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    tsr_context *ctx = NULL;
    tsr_model *model = NULL;
    tsr_run *run = NULL;
    tsr_run_info info;
    tsr_picture pic;
    int failed = 1;

    if (argc != 4) {
        fprintf(stderr, "usage: example MODEL PROMPT OUT.ppm\n");
        return 2;
    }
    if (tsr_context_make(&ctx, &(tsr_context_desc){0}, why, sizeof why) != TSR_OK) {
        fprintf(stderr, "example: %s\n", why);
        return 1;
    }
    tsr_run_desc desc = {
        .prompt = argv[2],
        .seed = 1,
        .seed_given = true,
        .budget_bytes = (size_t)512
                        << 20, /* never more than this, or refused before the first step */
        .progress = show,
    };
    if (tsr_model_open(ctx, argv[1], &model) == TSR_OK &&
        tsr_run_make(ctx, model, &desc, &run) == TSR_OK) {
        tsr_run_get_info(run, &info);
        fprintf(stderr, "this will need %zu MiB\n", info.predicted_peak_bytes >> 20);
        if (tsr_run_next(run, &pic) == TSR_OK)
            failed = write_ppm(argv[3], &pic);
    }
    if (failed)
        fprintf(stderr, "example: %s\n", tsr_context_error(ctx));
    tsr_run_free(run);
    tsr_model_free(model);
    tsr_context_free(ctx);
    return failed;
}
