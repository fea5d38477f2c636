/* sim_tile.h -- tile instructions of a warp. See sim_tile.c. */
#ifndef TSR_TESTS_SIM_TILE_H
#define TSR_TESTS_SIM_TILE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sim_operands {
    uint32_t a[4], b[2], r[4];
    float d[4];
    const unsigned char *row; /* ldmatrix */
    int n_matrices;
} sim_operands;

/* `w` are the 32 lanes'. */
void sim_tile_mma(sim_operands *w, bool brain); /* bfloat16 */
void sim_tile_ldmatrix(sim_operands *w, bool transposed);

#endif
