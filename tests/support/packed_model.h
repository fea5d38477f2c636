/* packed_model.h -- packed checkpoints for tests, and small pictures to compare. */
#ifndef TSR_TESTS_PACKED_MODEL_H
#define TSR_TESTS_PACKED_MODEL_H

#include "tessera.h"

typedef struct small_picture {
    tsr_status st;
    char why[512]; /* the sentence, when it failed */
    char model_hash[20];
    size_t minimum_budget;
    uint64_t bytes_streamed;
    int32_t side;
    uint8_t rgb[3 * 64 * 64];
    float latents[4096];
    size_t latent_bytes;
} small_picture;

/* The model `from` in one file at `to`; the sentence is in why[512] when that failed. */
tsr_status packed_model_make(const char *from, const char *to, tsr_cpu_tier tier,
                             tsr_precision precision, char *why);
/* One picture of side x side (at most 64) pixels in two steps. */
void small_picture_make(small_picture *p, const char *model, tsr_cpu_tier tier,
                        tsr_precision precision, int32_t side);
/* The same within a budget (0: plenty), in a process of its own, whose peak is its own. */
void small_picture_make_within(small_picture *p, const char *model, tsr_cpu_tier tier, int32_t side,
                               size_t budget);
bool small_picture_same(const small_picture *a, const small_picture *b);

#endif
