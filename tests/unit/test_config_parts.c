/* test_config_parts.c -- the configs of whole models: do the parts fit, and failing on the way. */
#include "model/config.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "tests/support/test.h"

typedef struct model_parts {
    tsr_model_index index;
    tsr_unet_config unet;
    tsr_vae_config vae;
    tsr_clip_config te1, te2;
} model_parts;

static bool load_parts(const char *dir, model_parts *p, tsr_err *err)
{
    char path[4096];
    bool ok;

    snprintf(path, sizeof path, "%s/unet/config.json", dir);
    ok = tsr_model_index_load(dir, &p->index, NULL, err) == TSR_OK &&
         tsr_unet_config_load(path, &p->unet, NULL, err) == TSR_OK;
    snprintf(path, sizeof path, "%s/vae/config.json", dir);
    ok = ok && tsr_vae_config_load(path, &p->vae, NULL, err) == TSR_OK;
    snprintf(path, sizeof path, "%s/text_encoder/config.json", dir);
    ok = ok && tsr_clip_config_load(path, &p->te1, NULL, err) == TSR_OK;
    snprintf(path, sizeof path, "%s/text_encoder_2/config.json", dir);
    if (ok && p->index.has_text_encoder_2)
        ok = tsr_clip_config_load(path, &p->te2, NULL, err) == TSR_OK;
    p->te2.with_projection = true; /* as model_index.json says */
    return ok;
}

static tsr_status check_parts(const model_parts *p, tsr_err *err)
{
    return tsr_model_check_parts(&p->unet, &p->vae, &p->te1,
                                 p->index.has_text_encoder_2 ? &p->te2 : NULL, &p->index, err);
}

static void check_parts__full_models__fit(void)
{
    model_parts sd = {0}, xl = {0};
    tsr_err err = {0};

    CHECK_MSG(load_parts(TSR_TEST_DATA "/full/sd15", &sd, &err), "%s", err.msg);
    CHECK_MSG(check_parts(&sd, &err) == TSR_OK, "%s", err.msg);
    CHECK(sd.vae.factor == 8 && sd.te1.width == 768 && sd.te1.eos_token_id == 2);
    CHECK_MSG(load_parts(TSR_TEST_DATA "/full/sdxl", &xl, &err), "%s", err.msg);
    CHECK_MSG(check_parts(&xl, &err) == TSR_OK, "%s", err.msg);
    CHECK(xl.index.is_xl && xl.index.force_zeros_for_empty_prompt && xl.te2.with_projection);
    CHECK(xl.unet.text_time && xl.unet.projection_input_dim == 2816 && xl.unet.n_heads[2] == 20);
    CHECK(xl.unet.transformer_layers[2] == 10 && xl.unet.sample_size[0] == 128);
    CHECK(!xl.te2.quick_gelu && xl.te2.projection_dim == 1280);
}

static void check_parts__one_number_changed__refused_with_the_reason(void)
{
    model_parts sd = {0}, xl = {0}, p;
    tsr_err err = {0};

    REQUIRE(load_parts(TSR_TEST_DATA "/full/sd15", &sd, &err));
    REQUIRE(load_parts(TSR_TEST_DATA "/full/sdxl", &xl, &err));
#define REFUSED(base, change, reason)                                                              \
    do {                                                                                           \
        p = base;                                                                                  \
        p.change;                                                                                  \
        CHECK(check_parts(&p, &err) == TSR_E_MODEL);                                               \
        CHECK_MSG(strstr(err.msg, reason), "%s", err.msg);                                         \
    } while (0)
    REFUSED(sd, unet.in_channels = 9, "inpainting model, which is not there yet");
    REFUSED(sd, unet.in_channels = 8, "image editing model, which is not there yet");
    REFUSED(sd, unet.in_channels = 5, "in_channels 5");
    REFUSED(sd, unet.out_channels = 8, "out_channels 8");
    REFUSED(sd, vae.latent_channels = 16, "latent_channels 16");
    REFUSED(sd, te1.width = 1024, "cross_attention_dim 768");
    REFUSED(sd, unet.text_time = true, "addition_embed_type");
    REFUSED(xl, unet.text_time = false, "addition_embed_type");
    REFUSED(xl, te2.width = 1024, "1792 wide");
    REFUSED(xl, te2.projection_dim = 1024, "projection_dim is 2560");
    REFUSED(xl, te2.with_projection = false, "CLIPTextModelWithProjection");
    REFUSED(xl, te2.positions = 64, "max_position_embeddings");
#undef REFUSED
    p = sd; /* as many channels as an editing model, but of latents */
    p.unet.in_channels = p.unet.out_channels = p.vae.latent_channels = 8;
    CHECK_MSG(check_parts(&p, &err) == TSR_OK, "%s", err.msg);
}

static void check_parts__reference_models__fit(void)
{
    static const char *const models[] = {"sd1-tiny", "sd1-odd", "sd2-tiny", "sdxl-tiny"};

    if (!test_reference_dir())
        SKIP("no reference data on this machine");
    for (size_t i = 0; i < 4; i++) {
        model_parts p = {0};
        tsr_err err = {0};
        char dir[4096];
        snprintf(dir, sizeof dir, "%s/models/%s", test_reference_dir(), models[i]);
        CHECK_MSG(load_parts(dir, &p, &err), "%s", err.msg);
        CHECK_MSG(check_parts(&p, &err) == TSR_OK, "%s", err.msg);
    }
}

static void config__any_failing_allocation_or_read__clean_error(void)
{
    uint64_t n_failures = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint64_t n = 1;; n++) {
            model_parts p = {0};
            tsr_err err = {0};
            bool ok;
            (pass ? tsr_io_fail_at : tsr_alloc_fail_at)(n);
            ok = load_parts(TSR_TEST_DATA "/full/sdxl", &p, &err);
            (pass ? tsr_io_fail_at : tsr_alloc_fail_at)(0);
            if (ok)
                break;
            CHECK_MSG(err.code == (pass ? TSR_E_IO : TSR_E_OOM), "%s", err.msg);
            n_failures++;
        }
    CHECK(n_failures > 100);
}

int main(void)
{
    RUN(check_parts__full_models__fit);
    RUN(check_parts__one_number_changed__refused_with_the_reason);
    RUN(check_parts__reference_models__fit);
    RUN(config__any_failing_allocation_or_read__clean_error);
    return test_end();
}
