/* blocks.c -- layers by name, and the residual block of UNet and VAE.
 *
 * Values are [N,H,W,C]; weights are asked for as checkpoints store them: [Co,C,R,R], [Co,C], [C].
 * Source of the residual block: "Deep Residual Learning for Image Recognition" (He et al., 2016) in
 * the pre-activation form of "Denoising Diffusion Probabilistic Models" (Ho et al., 2020); tensor
 * names are diffusers' ResnetBlock2D's.
 *
 * The joined input (x, x2) is never materialised: norm1 and the 1x1 shortcut take both values. The
 * shortcut is recorded right after norm1, so that x and x2 die before conv1's output is made. */
#include "model/blocks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ scopes */

tsr_scope tsr_scope_in(const tsr_scope *s, const char *fmt, ...)
{
    tsr_scope child = *s;
    size_t len = strlen(child.path);
    va_list args;

    if (len > 0 && len + 1 < sizeof child.path) {
        child.path[len++] = '.';
        child.path[len] = '\0';
    }
    va_start(args, fmt);
    vsnprintf(child.path + len, sizeof child.path - len, fmt, args);
    va_end(args);
    return child;
}

void tsr_scope_tap(const tsr_scope *s, const char *leaf, tsr_val v)
{
    tsr_scope module = *leaf ? tsr_scope_in(s, "%s", leaf) : *s;

    for (int32_t i = 0; i < s->n_taps; i++) {
        if (strcmp(s->taps[i].module, module.path) == 0) {
            s->taps[i].value = v;
            tsr_tape_output(s->tape, v, s->taps[i].module);
        }
    }
}

/* Channels of the pair (x, x2). */
static int32_t joined_channels(const tsr_scope *s, tsr_val x, tsr_val x2)
{
    const tsr_value *a = tsr_tape_value(s->tape, x), *b = tsr_tape_value(s->tape, x2);

    return (a ? a->c : 0) + (b ? b->c : 0);
}

static tsr_status matrix(const tsr_scope *layer, int32_t n_dims, const int32_t *dims, tsr_wt *w)
{
    return tsr_component_weight(layer->comp, layer->tape, TSR_WEIGHT_MATRIX, layer->path, "weight",
                                n_dims, dims, w);
}

static tsr_status vector(const tsr_scope *layer, const char *leaf, int32_t c, tsr_wt *w)
{
    return tsr_component_weight(layer->comp, layer->tape, TSR_WEIGHT_VECTOR, layer->path, leaf, 1,
                                &c, w);
}

/* ------------------------------------------------------------------ layers */

tsr_status tsr_block_conv2d(const tsr_scope *s, const char *leaf, int32_t co, int32_t kernel,
                            const tsr_conv_desc *d, tsr_val *out)
{
    tsr_scope layer = tsr_scope_in(s, "%s", leaf);
    int32_t dims[4] = {co, joined_channels(s, d->x, d->x2), kernel, kernel};
    tsr_conv_desc op = *d;

    if (!d->pad_top && !d->pad_left && !d->pad_bottom && !d->pad_right)
        op.pad_top = op.pad_left = op.pad_bottom = op.pad_right = (kernel - 1) / 2;
    TSR_TRY(matrix(&layer, 4, dims, &op.weight));  // [Co,C,R,R]
    TSR_TRY(vector(&layer, "bias", co, &op.bias)); // [Co]
    TSR_TRY(tsr_op_conv2d(s->tape, &op, out));     // [N,H',W',Co]
    tsr_scope_tap(&layer, "", *out);
    return TSR_OK;
}

tsr_status tsr_block_linear(const tsr_scope *s, const char *leaf, int32_t co, bool bias,
                            const tsr_linear_desc *d, tsr_val *out)
{
    tsr_scope layer = tsr_scope_in(s, "%s", leaf);
    int32_t rows = d->geglu ? 2 * co : co;
    int32_t dims[2] = {rows, joined_channels(s, d->x, d->x2)};
    tsr_linear_desc op = *d;

    TSR_TRY(matrix(&layer, 2, dims, &op.weight)); // [Co,C], GEGLU [2*Co,C]
    if (bias)
        TSR_TRY(vector(&layer, "bias", rows, &op.bias)); // [Co], GEGLU [2*Co]
    TSR_TRY(tsr_op_linear(s->tape, &op, out));           // [N,H,W,Co]
    tsr_scope_tap(&layer, "", *out);
    return TSR_OK;
}

tsr_status tsr_block_group_norm(const tsr_scope *s, const char *leaf, const tsr_group_norm_desc *d,
                                tsr_val *out)
{
    tsr_scope layer = tsr_scope_in(s, "%s", leaf);
    int32_t c = joined_channels(s, d->x, d->x2);
    tsr_group_norm_desc op = *d;

    TSR_TRY(vector(&layer, "weight", c, &op.gamma)); // [C]
    TSR_TRY(vector(&layer, "bias", c, &op.beta));    // [C]
    TSR_TRY(tsr_op_group_norm(s->tape, &op, out));   // [N,H,W,C]
    tsr_scope_tap(&layer, "", *out);
    return TSR_OK;
}

tsr_status tsr_block_layer_norm(const tsr_scope *s, const char *leaf, tsr_val x, float eps,
                                tsr_val *out)
{
    tsr_scope layer = tsr_scope_in(s, "%s", leaf);
    int32_t c = joined_channels(s, x, 0);
    tsr_layer_norm_desc op = {.x = x, .eps = eps};

    TSR_TRY(vector(&layer, "weight", c, &op.gamma)); // [C]
    TSR_TRY(vector(&layer, "bias", c, &op.beta));    // [C]
    TSR_TRY(tsr_op_layer_norm(s->tape, &op, out));   // [N,T,1,C]
    tsr_scope_tap(&layer, "", *out);
    return TSR_OK;
}

tsr_status tsr_block_attention(const tsr_scope *s, const tsr_attention_desc *d, tsr_val *out)
{
    TSR_TRY(tsr_tape_set_scope(s->tape, s->path));
    return tsr_op_attention(s->tape, d, out); // [N,T,1,D]
}

/* ---------------------------------------------------------- residual block */

tsr_status tsr_block_resnet(const tsr_scope *s, const tsr_resnet_desc *d, tsr_val *out)
{
    tsr_group_norm_desc norm = {.groups = d->groups, .eps = d->eps, .silu = true};
    bool same_width = !d->x2 && joined_channels(s, d->x, 0) == d->co;
    tsr_val h, skip = d->x;

    norm.x = d->x;
    norm.x2 = d->x2;
    TSR_TRY(tsr_block_group_norm(s, "norm1", &norm, &h)); // [N,H,W,C]
    if (!same_width)
        TSR_TRY(tsr_block_conv2d(s, "conv_shortcut", d->co, 1,
                                 &(tsr_conv_desc){.x = d->x, .x2 = d->x2}, &skip)); // [N,H,W,Co]
    TSR_TRY(tsr_block_conv2d(s, "conv1", d->co, 3,
                             &(tsr_conv_desc){.x = h, .add_channel = d->add_channel},
                             &h)); // [N,H,W,Co]
    norm.x = h;
    norm.x2 = 0;
    TSR_TRY(tsr_block_group_norm(s, "norm2", &norm, &h)); // [N,H,W,Co]
    TSR_TRY(tsr_block_conv2d(s, "conv2", d->co, 3, &(tsr_conv_desc){.x = h, .residual = skip},
                             &h)); // [N,H,W,Co]
    *out = h;
    tsr_scope_tap(s, "", h);
    return TSR_OK;
}
