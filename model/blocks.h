/* blocks.h -- layers by name: the weights of a checkpoint and the op that uses them in one call.
 *
 * A scope is a place in a checkpoint's tree of modules, "down_blocks.0.resnets.1", together with
 * the tape that is recorded on and the component that has the tensors. A layer "conv1" recorded in
 * it asks for the tensors "down_blocks.0.resnets.1.conv1.weight" and ".bias" with the shapes that
 * follow from its input and the given output width, so a checkpoint that differs is refused by
 * name. unet/ and vae/ say in these words what their papers say; the residual block that both have
 * is here, too. */
#ifndef TSR_MODEL_BLOCKS_H
#define TSR_MODEL_BLOCKS_H

#include "model/component.h"

/* A test's wish for the output of one module; recording it makes the value an output of the tape.
 */
typedef struct tsr_tap {
    const char *module; /* "mid_block.attentions.0"; lives as long as the tape */
    tsr_val value;      /* 0 until the module was recorded */
} tsr_tap;

typedef struct tsr_scope {
    tsr_tape *tape;
    tsr_component *comp;
    tsr_tap *taps; /* may be NULL */
    int32_t n_taps;
    char path[128]; /* "" at the root */
} tsr_scope;

/* The scope `fmt` inside `s`. */
tsr_scope tsr_scope_in(const tsr_scope *s, const char *fmt, ...) TSR_PRINTF(2, 3);
/* Gives `v` to the tap of module `leaf` in `s` (of `s` itself when leaf is ""), if there is one.
 * Layers recorded by the functions below do it themselves. */
void tsr_scope_tap(const tsr_scope *s, const char *leaf, tsr_val v);

/* Each fills in the weights of the descriptor; all else is the caller's. Convolutions are square;
 * one without any padding in its descriptor gets (kernel - 1) / 2 on every side. Convolutions and
 * norms have biases. */
tsr_status tsr_block_conv2d(const tsr_scope *s, const char *leaf, int32_t co, int32_t kernel,
                            const tsr_conv_desc *d, tsr_val *out);
tsr_status tsr_block_linear(const tsr_scope *s, const char *leaf, int32_t co, bool bias,
                            const tsr_linear_desc *d, tsr_val *out);
tsr_status tsr_block_group_norm(const tsr_scope *s, const char *leaf, const tsr_group_norm_desc *d,
                                tsr_val *out);
tsr_status tsr_block_layer_norm(const tsr_scope *s, const char *leaf, tsr_val x, float eps,
                                tsr_val *out);
/* No weights: the op is named after the scope. */
tsr_status tsr_block_attention(const tsr_scope *s, const tsr_attention_desc *d, tsr_val *out);

/* The residual block of scope `s`:
 *   h   = conv1(silu(norm1(x))) + add_channel
 *   out = conv2(silu(norm2(h))) + (conv_shortcut(x), or x where the width stays)
 * The UNet adds its time embedding by channels and joins a skip as x2; the VAE does neither. */
typedef struct tsr_resnet_desc {
    tsr_val x, x2;       /* [N,H,W,C]: x, or the channels of x and x2 joined */
    tsr_val add_channel; /* [N or 1,1,1,Co]; 0: none */
    int32_t co, groups;
    float eps;
} tsr_resnet_desc;
tsr_status tsr_block_resnet(const tsr_scope *s, const tsr_resnet_desc *d, tsr_val *out);

#endif
