/* planner.h -- lifetimes to offsets in one arena.
 *
 * A pure function: no I/O, no global state, the same answer for the same question. The kernels
 * layer turns a tape into items (values, weights, scratch) and asks for their places. */
#ifndef TSR_MEMORY_PLANNER_H
#define TSR_MEMORY_PLANNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { TSR_PLAN_ALIGN = 64 };

typedef enum tsr_item_class {
    TSR_ITEM_WEIGHT,
    TSR_ITEM_ACTIVATION,
    TSR_ITEM_WORK,
    TSR_ITEM_STATE,
    TSR_ITEM_CLASSES
} tsr_item_class;

typedef struct tsr_item {
    size_t bytes;        /* 0 is allowed */
    int32_t first, last; /* inclusive times at which it must keep its content; first <= last */
    tsr_item_class cls;
    size_t offset; /* out: multiple of TSR_PLAN_ALIGN */
} tsr_item;

typedef struct tsr_layout {
    size_t peak_bytes; /* arena bytes needed */
    size_t
        class_bytes[TSR_ITEM_CLASSES]; /* live bytes by class at the time of the largest live sum */
    int32_t peak_time;                 /* that time */
} tsr_layout;

/* Places every item so that no two that are live at the same time overlap: greedy best fit,
 * larger items first, ties by index. Errors: TSR_E_BUDGET when sizes overflow, TSR_E_OOM. */
tsr_status tsr_plan_offsets(tsr_item *items, size_t n_items, tsr_layout *layout, tsr_err *err);

/* Items overlap in time and in space: the index pair, or false. Used by tests and debug builds. */
bool tsr_plan_find_overlap(const tsr_item *items, size_t n_items, size_t *a, size_t *b);

#endif
