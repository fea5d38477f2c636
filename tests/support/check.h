/* check.h -- one op, its data, and what every kernel of every tier has to keep.
 *
 * A check is a tape with one op, made with random operands, and a function that computes the op in
 * double with plain loops. check_all then demands, of each tier that this machine has:
 *
 *   - the error against double is small: the portable kernel's under a limit, any other tier's
 *     at most twice the portable one's plus a floor (its largest single error three times); the
 *     floor is 2e-3 (4e-3) where the tier avx512fp16 sums up in halves, and 2e-5 (4e-5) higher by
 *     Winograd;
 *   - the same bits for 1, 2 and 3 threads, for windows of 1, 2, 3 and 5 rows in either order, and
 *     for an entry computed alone;
 *   - packing panel by panel, backwards, gives the packed weight of one call;
 *   - no byte is written beside the output, the scratch or the packed weight; operands do not
 *     change; what lies beside them (NaN patterns) does not leak into the result.
 *
 * With --bench on the command line a check program prints GFLOP/s instead (check_bench). */
#ifndef TSR_TESTS_CHECK_H
#define TSR_TESTS_CHECK_H

#include "kernels/backend.h"
#include "tests/support/test.h"

typedef enum check_fill {
    CHECK_UNIFORM,  /* [-1,1) */
    CHECK_SMALL,    /* uniform / 64, so that long sums stay near one */
    CHECK_DENORMAL, /* denormal halves (or floats near 1e-40) */
    CHECK_LARGE,    /* +-65504, the largest half */
    CHECK_NEAR_ONE, /* 1 + uniform / 8: norm weights */
    CHECK_OFFSET,   /* 1000 + uniform: a mean far above the deviation */
    CHECK_LOGITS,   /* uniform * 16: peaky softmax */
    CHECK_BYTES     /* 0 .. 255 */
} check_fill;

enum { CHECK_MAX = 8 };

typedef struct check {
    tsr_err err;
    tsr_tape tape;
    char label[160];
    uint64_t random;
    float *value_data[CHECK_MAX];  /* [n_values] inputs as float32, rounded to their dtype */
    float *weight_data[CHECK_MAX]; /* [n_weights] in file order, rounded to their dtype */
} check;

/* Limits of the portable kernel's error: relative L2, and the largest difference relative to the
 * largest value. Half outputs are allowed their rounding on top. */
typedef struct check_limits {
    double l2, max;
} check_limits;

typedef void (*check_reference)(const check *c, double *want);

void check_begin(check *c, tsr_dtype dtype, const char *label_format, ...) TEST_PRINTF(3, 4);
void check_end(check *c);
tsr_val check_input(check *c, const int32_t shape[4], tsr_dtype dtype, check_fill fill);
tsr_wt check_matrix(check *c, int32_t n_dims, const int32_t *dims, tsr_dtype dtype,
                    check_fill fill);
tsr_wt check_vector(check *c, int32_t n_dims, const int32_t *dims, check_fill fill);
/* CHECKs that recording worked. */
bool check_recorded(check *c, tsr_status st);

/* Element (n, pixel, channel) of an input; the operands of the op joined by channels. */
double check_at(const check *c, tsr_val v, int32_t n, int32_t p, int32_t ch);
double check_joined(const check *c, const tsr_op *op, int32_t n, int32_t p, int32_t ch);

/* Everything above for the recorded op. Frees the check. */
void check_all(check *c, check_reference reference, check_limits limits);
/* The op's output as float32 on the portable tier (heap array, freed with free). */
float *check_portable_output(check *c);

bool check_bench_asked(int argc, char **argv);
/* Prints ms, GFLOP/s and GB/s for every tier, on one thread and on all. Frees the check. */
void check_bench(check *c);

#endif
