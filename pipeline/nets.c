/* nets.c -- records and plans every network of a run, before anything is computed.
 *
 * Text encoders run one prompt at a time (they are a small part of a picture), at the depth that
 * diffusers takes: clip skip counts layers from the last one for the prompt only; the negative
 * prompt always has the model's own depth. SDXL starts at the layer before the last, without the
 * final norm, and pools the second encoder's last layer. */
#include "pipeline/pipeline_internal.h"

#include "base/alloc.h"
#include "base/num.h"

static tsr_status plan_net(tsr_net *net, tsr_context *ctx)
{
    TSR_TRY(tsr_program_make(&net->program, &net->tape, ctx->backend, ctx->pool, NULL, &ctx->err));
    net->made = true;
    return TSR_OK;
}

static tsr_status make_text_net(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                                int32_t encoder, int32_t clip_skip)
{
    tsr_text_net *t = &n->text[n->n_text++];
    tsr_clip_shape shape = {
        .n = 1,
        .s = s->context_s,
        .skip = clip_skip + (m->index.is_xl ? 1 : 0),
        .final_norm = !m->index.is_xl,
        .pooled = s->pooled_d > 0 && encoder == m->n_encoders - 1,
    };

    t->encoder = encoder;
    t->skip = clip_skip;
    tsr_tape_init(&t->net.tape, s->dtype, &ctx->err);
    TSR_TRY(tsr_clip_build(&t->net.tape, &m->clip[encoder], &m->clip_cfg[encoder], &shape, &t->io,
                           NULL, 0));
    return plan_net(&t->net, ctx);
}

static tsr_status make_unet(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s)
{
    tsr_unet_shape shape = {
        .n = s->entries,
        .latent_n = 1,
        .h = s->latent_h,
        .w = s->latent_w,
        .s = s->context_s,
        .n_steps = n->n_calls,
        .t_rows = m->unet_cfg.text_time ? s->entries : 1,
    };

    tsr_tape_init(&n->unet.tape, s->dtype, &ctx->err);
    TSR_TRY(tsr_unet_build(&n->unet.tape, &m->unet, &m->unet_cfg, &shape, &n->unet_io, NULL, 0));
    return plan_net(&n->unet, ctx);
}

static tsr_status make_vae(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                           tsr_dtype dtype)
{
    int32_t i = n->n_vae++;

    tsr_tape_init(&n->vae[i].tape, dtype, &ctx->err);
    TSR_TRY(tsr_vae_decode_build(&n->vae[i].tape, &m->vae, &m->vae_cfg,
                                 (int32_t[]){1, s->latent_h, s->latent_w}, true, &n->vae_in[i],
                                 &n->vae_out[i], NULL, 0));
    /* The last op rounds the image to bytes; what it reads is kept, to see whether it is finite. */
    n->vae_image[i] = n->vae[i].tape.ops[n->vae[i].tape.n_ops - 1].in[0];
    tsr_tape_output(&n->vae[i].tape, n->vae_image[i], "image");
    return plan_net(&n->vae[i], ctx);
}

tsr_status tsr_nets_make(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                         int32_t n_calls)
{
    bool negative = s->cfg && !s->zero_negative;

    n->n_calls = n_calls;
    for (int32_t e = 0; e < m->n_encoders; e++) {
        TSR_TRY(make_text_net(n, ctx, m, s, e, s->clip_skip));
        if (negative && s->clip_skip > 0)
            TSR_TRY(make_text_net(n, ctx, m, s, e, 0));
    }
    TSR_TRY(make_unet(n, ctx, m, s));
    TSR_TRY(make_vae(n, ctx, m, s, s->vae_dtype));
    if (s->vae_dtype == TSR_F16)
        TSR_TRY(
            make_vae(n, ctx, m, s, TSR_F32)); /* for a decoder that overflows in half precision */
    return TSR_OK;
}

static void free_net(tsr_net *net)
{
    if (net->made)
        tsr_program_free(&net->program);
    tsr_tape_free(&net->tape);
}

void tsr_nets_free(tsr_nets *n)
{
    for (int32_t i = 0; i < n->n_text; i++)
        free_net(&n->text[i].net);
    free_net(&n->unet);
    for (int32_t i = 0; i < n->n_vae; i++)
        free_net(&n->vae[i]);
}

size_t tsr_nets_bytes(const tsr_nets *n)
{
    size_t most = tsr_program_bytes(&n->unet.program);

    for (int32_t i = 0; i < n->n_text; i++)
        most = tsr_max_size(most, tsr_program_bytes(&n->text[i].net.program));
    for (int32_t i = 0; i < n->n_vae; i++)
        most = tsr_max_size(most, tsr_program_bytes(&n->vae[i].program));
    return most;
}

size_t tsr_latent_count(const tsr_settings *s)
{
    return (size_t)s->latent_c * (size_t)s->latent_h * (size_t)s->latent_w;
}

/* Takes `count` elements of `size` bytes at the end of the state. */
static size_t take(tsr_state *st, size_t count, size_t size)
{
    size_t at = st->bytes;

    st->bytes = tsr_align_up(at + count * size, TSR_PLAN_ALIGN);
    return at;
}

void tsr_state_layout(tsr_state *st, const tsr_model *m, const tsr_settings *s)
{
    size_t n = tsr_latent_count(s), entries = (size_t)s->entries,
           element = tsr_dtype_size(s->dtype);
    int32_t widest = 0;

    /* Sizes are bounded by TSR_MAX_SIZE and the configs' checks: no product here can overflow. */
    for (int32_t e = 0; e < m->n_encoders; e++)
        widest = tsr_max_i32(widest, m->clip_cfg[e].width);
    *st = (tsr_state){0};
    st->context = take(st, entries * (size_t)s->context_s * (size_t)s->context_d, element);
    st->pooled = take(st, entries * (size_t)s->pooled_d, element);
    st->latents = take(st, n, sizeof(float));
    st->noise = take(st, n, sizeof(float));
    st->guided = take(st, n, sizeof(float));
    st->rgb = take(st, (size_t)s->width * (size_t)s->height, 3);
    st->row = take(st, (size_t)widest, sizeof(float));
}

void tsr_nets_unload(tsr_nets *n)
{
    for (int32_t i = 0; i < n->n_text; i++)
        n->text[i].net.loaded = false;
    n->unet.loaded = false;
    for (int32_t i = 0; i < n->n_vae; i++)
        n->vae[i].loaded = false;
}

tsr_status tsr_net_load(tsr_run *r, tsr_net *net, int32_t phase)
{
    double start = tsr_now();

    if (net->loaded)
        return TSR_OK;
    tsr_nets_unload(&r->nets);
    tsr_program_bind(&net->program, &r->arena, r->state.bytes);
    TSR_TRY(tsr_program_load(&net->program));
    net->loaded = true;
    r->phases[phase].seconds_waiting_for_weights += tsr_now() - start;
    return TSR_OK;
}
