/* sim_tile.c -- what a warp's tile instructions do, with the operands of its 32 lanes side by side.
 *
 * Fragments are laid out as device.cuh says. A product sums in the order of the reduction, in
 * float; the device's order inside of an instruction is its own secret. */
#include "tests/cuda_sim/sim_tile.h"

#include <string.h>

#include "base/half.h"

enum { LANES = 32 };

static float halves[1 << 16]; /* every half as a float, filled by the first product */

static void fill_halves(void)
{
    for (uint32_t i = 0; halves[1] == 0 && i < 1 << 16; i++)
        halves[(1 << 16) - 1 - i] = tsr_f16_to_f32((uint16_t)((1 << 16) - 1 - i));
}

static float half_of(uint32_t reg, int i, bool brain)
{
    uint16_t h = (uint16_t)(reg >> (16 * i));

    return brain ? tsr_bf16_to_f32(h) : halves[h];
}

/* Fragments as device.cuh says; sums in the order of the reduction. */
void sim_tile_mma(sim_operands *w, bool brain)
{
    float a[16][16], b[16][8], d[16][8];

    fill_halves();
    for (int i = 0; i < LANES; i++) {
        int g = i / 4, t = i % 4 * 2;
        for (int k = 0; k < 2; k++) {
            for (int j = 0; j < 4; j++)
                a[g + j % 2 * 8][t + j / 2 * 8 + k] = half_of(w[i].a[j], k, brain);
            for (int j = 0; j < 2; j++)
                b[t + j * 8 + k][g] = half_of(w[i].b[j], k, brain);
        }
        for (int j = 0; j < 4; j++)
            d[g + j / 2 * 8][t + j % 2] = w[i].d[j];
    }
    for (int m = 0; m < 16; m++) {
        float row[8];
        memcpy(row, d[m], sizeof row);
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                row[n] += a[m][k] * b[k][n];
        memcpy(d[m], row, sizeof row);
    }
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 4; j++)
            w[i].d[j] = d[i / 4 + j / 2 * 8][i % 4 * 2 + j % 2];
}

void sim_tile_ldmatrix(sim_operands *w, bool transposed)
{
    uint16_t matrix[4][8][8];
    int n = w[0].n_matrices;

    for (int i = 0; i < 8 * n; i++)
        memcpy(matrix[i / 8][i % 8], w[i].row, 16);
    for (int i = 0; i < LANES; i++) {
        int g = i / 4, t = i % 4 * 2;
        for (int m = 0; m < n; m++) {
            uint16_t low = transposed ? matrix[m][t][g] : matrix[m][g][t];
            uint16_t high = transposed ? matrix[m][t + 1][g] : matrix[m][g][t + 1];
            w[i].r[m] = (uint32_t)low | (uint32_t)high << 16;
        }
    }
}
