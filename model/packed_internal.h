/* packed_internal.h -- what reader and writer of packed checkpoints share. */
#ifndef TSR_MODEL_PACKED_INTERNAL_H
#define TSR_MODEL_PACKED_INTERNAL_H

#include "model/packed.h"

#define TSR_PACKED_MAGIC "TESSERA\x1A"
#define TSR_PACKED_MAX_TABLE ((size_t)64 << 20)
enum { TSR_PACKED_MAGIC_BYTES = 8, TSR_PACKED_ALIGN = 4096, TSR_PACKED_TIER_BYTES = 36 };

typedef struct tsr_packed_footer {
    uint64_t file_bytes, table_bytes, table_sum, layout;
    uint32_t dtype; /* tsr_dtype */
    char tier[TSR_PACKED_TIER_BYTES];
    uint64_t sum; /* of the bytes before */
} tsr_packed_footer;
_Static_assert(sizeof(tsr_packed_footer) == 80, "the footer has no gaps");

#endif
