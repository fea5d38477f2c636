/* tier_body.h -- everything that a vector tier replaces in the table of kernels.
 *
 * A tier's one source file includes its vec_<isa>.h, says whether it packs weights scaled
 * (PACK_SCALED, gemm_pack_body.h), and includes this. Conversions, gathers and time embeddings stay
 * portable: they are a few thousand elements a picture. */
#ifndef TSR_KERNELS_CPU_TIER_BODY_H
#define TSR_KERNELS_CPU_TIER_BODY_H

#include "kernels/cpu/span.h"
#include "kernels/cpu/vec_elems.h"
#include "kernels/cpu/vec_math.h"
#include "kernels/cpu/gemm_tile.h"
#include "kernels/cpu/gemm_pack_body.h"
#include "kernels/cpu/gemm_pack_halves.h"
#include "kernels/cpu/gemm_body.h"
#include "kernels/cpu/winograd_body.h"
#include "kernels/cpu/attention_body.h"
#include "kernels/cpu/norm_body.h"
#include "kernels/cpu/elementwise_body.h"
#include "kernels/cpu/roof_body.h"

static void tier_fill(tsr_cpu_table *t)
{
    t->run[TSR_OP_CONV2D] = conv_run;
    t->run[TSR_OP_LINEAR] = linear_run;
    t->run[TSR_OP_ATTENTION] = attention_run;
    t->run[TSR_OP_GROUP_NORM] = group_norm_run;
    t->run[TSR_OP_LAYER_NORM] = layer_norm_run;
    t->run[TSR_OP_ADD] = add_run;
    t->work[TSR_OP_CONV2D] = conv_work;
    t->work[TSR_OP_LINEAR] = gemm_work;
    t->work[TSR_OP_ATTENTION] = attention_work;
    t->work[TSR_OP_GROUP_NORM] = group_norm_work;
    t->work[TSR_OP_LAYER_NORM] = NULL;
    t->work[TSR_OP_ADD] = NULL;
    t->packed_bytes = gemm_packed_bytes;
    t->panel_rows = gemm_panel_channels;
    t->panel_channels = gemm_panel_channels;
    t->packed_offset = gemm_packed_offset;
    t->pack = gemm_pack;
    t->pack_halves = gemm_pack_halves;
    t->norm_stats = group_norm_stats_run;
    t->kv_block = attention_kv_block;
    t->carry = attention_carry;
    t->all_finite = all_finite;
    t->least_work[TSR_OP_CONV2D] = conv_least_work;
    t->method = conv_method;
    t->row_unit = conv_row_unit;
    t->fma = roof_fma;
}

#endif
