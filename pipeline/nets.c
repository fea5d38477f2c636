/* nets.c -- records and plans every network of a run, before anything is computed.
 *
 * Text encoders take prompt and negative prompt together where both have the same depth: clip skip
 * counts layers from the last one for the prompt only, as in diffusers; the negative prompt always
 * has the model's own depth. SDXL starts at the layer before the last, without the final norm, and
 * pools the second encoder's last layer. */
#include "pipeline/pipeline_internal.h"

#include "base/alloc.h"
#include "base/num.h"

static tsr_status record_text(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                              int32_t encoder, int32_t clip_skip, int32_t half, int32_t n_halves)
{
    tsr_text_net *t = &n->text[n->n_text++];
    tsr_clip_shape shape = {
        .n = n_halves,
        .s = s->context_s,
        .skip = clip_skip + (m->index.is_xl ? 1 : 0),
        .final_norm = !m->index.is_xl,
        .pooled = s->pooled_d > 0 && encoder == m->n_encoders - 1,
    };

    t->encoder = encoder;
    t->half = half;
    t->n_halves = n_halves;
    tsr_tape_init(&t->net.tape, s->dtype, &ctx->err);
    return tsr_clip_build(&t->net.tape, &m->clip[encoder], &m->clip_cfg[encoder], &shape, &t->io,
                          NULL, 0);
}

static tsr_status record_unet(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s)
{
    tsr_unet_shape shape = {
        .pictures = s->batch,
        .prompts = s->entries,
        .h = s->latent_h,
        .w = s->latent_w,
        .s = s->context_s,
        .n_steps = n->n_calls,
    };

    tsr_tape_init(&n->unet.tape, s->dtype, &ctx->err);
    return tsr_unet_build(&n->unet.tape, &m->unet, &m->unet_cfg, &shape, &n->unet_io, NULL, 0);
}

/* What a network has done before it was planned again is part of the report. */
static void keep_counts(tsr_program *p, const tsr_program *before)
{
    p->bytes_read = before->bytes_read;
    p->bytes_streamed = before->bytes_streamed;
    p->bytes_spilled = before->bytes_spilled;
    p->io_core_seconds = before->io_core_seconds;
    p->seconds_waiting = before->seconds_waiting;
}

tsr_status tsr_nets_record_unet(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s)
{
    tsr_program before = n->unet.program;

    if (n->unet.made)
        tsr_program_free(&n->unet.program);
    tsr_tape_free(&n->unet.tape);
    tsr_plan_survey_free(n->unet.survey);
    n->unet = (tsr_net){0};
    keep_counts(&n->unet.program, &before);
    return record_unet(n, ctx, m, s);
}

static tsr_status record_vae(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                             tsr_dtype dtype)
{
    int32_t i = n->n_vae++;

    tsr_tape_init(&n->vae[i].tape, dtype, &ctx->err);
    n->vae[i].tape.direct = s->dtype == TSR_F32; /* float alone does not ask for it */
    if (s->task == TSR_TASK_ENCODE)
        TSR_TRY(tsr_vae_encode_build(&n->vae[i].tape, &m->vae, &m->vae_cfg,
                                     (int32_t[]){1, s->height, s->width}, &n->vae_in[i],
                                     &n->vae_out[i], NULL, 0));
    else
        TSR_TRY(tsr_vae_decode_build(&n->vae[i].tape, &m->vae, &m->vae_cfg,
                                     (int32_t[]){1, s->latent_h, s->latent_w}, true, &n->vae_in[i],
                                     &n->vae_out[i], NULL, 0));
    /* The last op only changes the form; what it reads shows whether the network overflowed. */
    n->vae_raw[i] = n->vae[i].tape.ops[n->vae[i].tape.n_ops - 1].in[0];
    return TSR_OK;
}

/* What makes latents of a prompt. */
static tsr_status record_prompt_nets(tsr_nets *n, tsr_context *ctx, tsr_model *m,
                                     const tsr_settings *s)
{
    bool negative = s->cfg && !s->zero_negative;
    bool together = negative && s->clip_skip == 0;

    for (int32_t e = 0; e < m->n_encoders; e++) {
        TSR_TRY(record_text(n, ctx, m, s, e, s->clip_skip, !together, 1 + together));
        if (negative && !together)
            TSR_TRY(record_text(n, ctx, m, s, e, 0, 0, 1));
    }
    n->has_unet = true;
    return record_unet(n, ctx, m, s);
}

tsr_status tsr_nets_record(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                           int32_t n_calls)
{
    n->n_calls = n_calls;
    if (s->task == TSR_TASK_PICTURE)
        TSR_TRY(record_prompt_nets(n, ctx, m, s));
    TSR_TRY(record_vae(n, ctx, m, s, s->vae_dtype));
    if (s->vae_dtype == TSR_F16)
        TSR_TRY(record_vae(n, ctx, m, s, TSR_F32)); /* for a VAE that overflows in half precision */
    return TSR_OK;
}

/* Net i of them all; NULL past the last. */
static tsr_net *net_at(tsr_nets *n, int32_t i)
{
    if (i < n->n_text)
        return &n->text[i].net;
    i -= n->n_text;
    if (n->has_unet && i-- == 0)
        return &n->unet;
    return i < n->n_vae ? &n->vae[i] : NULL;
}

/* `limit` 0: none. A plan that was there is given back first. */
static tsr_status plan_net(tsr_nets *n, tsr_net *net, tsr_context *ctx, const tsr_settings *s,
                           size_t limit)
{
    bool vae = net >= n->vae && net < n->vae + n->n_vae;
    tsr_plan_options opt = {
        .budget_bytes = limit,
        .offload = s->offload,
        .tile_rows = vae ? s->tile_rows : 0,
        .may_spill = true,
        .survey = &net->survey,
    };
    tsr_program before = net->program;
    tsr_status st;

    if (net->made)
        tsr_program_free(&net->program);
    st = tsr_program_make(&net->program, &net->tape, ctx->backend, ctx->pool, &opt, &ctx->err);
    keep_counts(&net->program, &before);
    net->made = st == TSR_OK;
    net->loaded = false;
    return st;
}

tsr_status tsr_nets_plan_unet(tsr_nets *n, tsr_context *ctx, const tsr_settings *s, size_t limit)
{
    return plan_net(n, &n->unet, ctx, s, limit);
}

/* Every network is tried, so that all minimums are known when one does not fit. */
tsr_status tsr_nets_plan(tsr_nets *n, tsr_context *ctx, const tsr_settings *s, size_t limit,
                         bool least)
{
    tsr_status st = TSR_OK;
    tsr_net *net;

    for (int32_t i = 0; (net = net_at(n, i)); i++) {
        tsr_status one;

        if (net->over)
            continue;
        one = plan_net(n, net, ctx, s, least ? net->program.minimum_bytes : limit);

        if (one != TSR_OK && one != TSR_E_BUDGET)
            return one;
        st = one == TSR_OK ? st : one;
    }
    for (int32_t i = 0; i < n->n_vae && st == TSR_OK; i++)
        tsr_program_watch(&n->vae[i].program, n->vae_raw[i]);
    return st;
}

void tsr_nets_each(tsr_nets *n, void (*fn)(tsr_program *p, void *arg), void *arg)
{
    tsr_net *net;

    for (int32_t i = 0; (net = net_at(n, i)); i++)
        fn(&net->program, arg);
}

void tsr_nets_free(tsr_nets *n)
{
    tsr_net *net;

    for (int32_t i = 0; (net = net_at(n, i)); i++) {
        if (net->made)
            tsr_program_free(&net->program);
        tsr_plan_survey_free(net->survey);
        tsr_tape_free(&net->tape);
    }
    *n = (tsr_nets){0};
}

/* The largest of one figure over all programs that will run. */
typedef struct tsr_most {
    size_t bytes, minimum, spill;
} tsr_most;

static tsr_most most_of(const tsr_nets *n)
{
    tsr_most most = {0};
    const tsr_net *net;

    for (int32_t i = 0; (net = net_at((tsr_nets *)n, i)); i++) {
        const tsr_program *p = &net->program;
        if (net->over)
            continue;
        most.bytes = tsr_max_size(most.bytes, tsr_program_bytes(p));
        most.minimum = tsr_max_size(most.minimum, p->minimum_bytes);
        most.spill = tsr_max_size(most.spill, p->spill_bytes);
    }
    return most;
}

size_t tsr_nets_bytes(const tsr_nets *n)
{
    return most_of(n).bytes;
}
size_t tsr_nets_minimum(const tsr_nets *n)
{
    return most_of(n).minimum;
}
size_t tsr_nets_spill(const tsr_nets *n)
{
    return most_of(n).spill;
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
    if (s->task == TSR_TASK_PICTURE) {
        st->context = take(st, entries * (size_t)s->context_s * (size_t)s->context_d, element);
        st->pooled = take(st, entries * (size_t)s->pooled_d, element);
        st->noise = take(st, n, sizeof(float));
        st->guided = take(st, n, sizeof(float));
        st->row = take(st, (size_t)widest, sizeof(float));
    }
    if (s->task != TSR_TASK_ENCODE)
        st->rgb = take(st, (size_t)s->width * (size_t)s->height, 3);
    st->latents = take(st, n * (size_t)s->batch, sizeof(float)); /* last: it grows with the batch */
}

void tsr_nets_unload(tsr_nets *n)
{
    tsr_net *net;

    for (int32_t i = 0; (net = net_at(n, i)); i++)
        net->loaded = false;
}

tsr_status tsr_net_load(tsr_run *r, tsr_net *net, int32_t phase)
{
    double start = tsr_now();

    if (net->loaded)
        return TSR_OK;
    tsr_nets_unload(&r->nets);
    if (tsr_run_device(r))
        tsr_program_bind(&net->program, &r->device_arena, 0);
    else
        tsr_program_bind(&net->program, &r->arena, r->state.bytes);
    tsr_program_set_io(&net->program, r->io, tsr_nets_spill(&r->nets) ? &r->spill : NULL);
    net->program.between = tsr_run_beat;
    net->program.between_user = r;
    TSR_TRY(tsr_program_load(&net->program));
    net->loaded = true;
    r->seconds_loading[phase] += tsr_now() - start;
    return TSR_OK;
}
