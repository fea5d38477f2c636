/* plan_internal.h -- what the planner's files share. Private to kernels/.
 *
 * Lowering: a candidate's knobs and the tape become a plan's actions, in time order; items get
 * their lifetimes as they are touched. The first error sticks, as in a recorder: helpers return 0
 * after it. */
#ifndef TSR_KERNELS_PLAN_INTERNAL_H
#define TSR_KERNELS_PLAN_INTERNAL_H

#include "base/num.h"
#include "kernels/plan.h"

enum { TSR_TO_THE_END = INT32_MAX, TSR_MAX_CHAIN = 12 };

/* One candidate configuration. Sizes: SIZE_MAX where the mechanism is off. */
typedef struct tsr_knobs {
    bool all_resident;   /* every weight is loaded before the run */
    size_t window_bytes; /* values inside a chain take at most this together */
    size_t hold_bytes;   /* streamed weights that a chain may hold through its windows */
    size_t piece_bytes;  /* a piece of a streamed weight */
    size_t ahead_bytes;  /* streamed and not yet needed, at most */
    size_t ahead_room;   /* and this much above what is needed anyway */
    int32_t gap_ops;     /* a value that rests for more ops is spilled meanwhile; 0: never */
    size_t gap_bytes;    /* a smaller one rests where it is */
    bool spill_prologue; /* what the prologue made for the loop is read back when needed */
    bool stream_vectors; /* biases and norms, too, are not resident */
    size_t strip_above;  /* larger values exist in strips only */
    size_t strip_bytes;  /* of one strip */
    bool strip_keys;     /* attention's keys and values, too */
    bool least_work;     /* ops do with little scratch */
} tsr_knobs;

typedef struct tsr_rows {
    int32_t begin, end;
} tsr_rows;

/* How an op reads an operand, seen from a window of its output rows. */
typedef enum tsr_reach { TSR_REACH_SAME, TSR_REACH_HALO, TSR_REACH_WHOLE } tsr_reach;
tsr_reach tsr_plan_reach(const tsr_tape *t, const tsr_op *op, int32_t k);
/* The rows of operand k that the rows `out` need. */
tsr_rows tsr_plan_rows_read(const tsr_backend *b, const tsr_tape *t, const tsr_op *op, int32_t k,
                            tsr_rows out);
int32_t tsr_plan_row_unit(const tsr_backend *b, const tsr_tape *t, const tsr_op *op);
tsr_rows tsr_plan_whole_units(tsr_rows r, int32_t unit);
bool tsr_plan_has_windows(const tsr_op *op); /* its output can be made by rows */
size_t tsr_plan_rows_bytes(const tsr_value *v, int32_t n_rows);

typedef enum tsr_value_mode {
    TSR_MODE_WHOLE,
    TSR_MODE_WINDOW, /* inside a chain */
    TSR_MODE_STRIP   /* in the spill file */
} tsr_value_mode;

typedef struct tsr_value_state {
    tsr_value_mode mode;
    bool kept;            /* to the end */
    bool across;          /* made before the loop, spilled, read back in every step */
    int32_t item;         /* that holds it, or a part of it, now */
    int32_t row0, n_rows; /* the part */
    int32_t strip[2];     /* the two buffers of a chain that reads or writes it */
    int32_t store[2];     /* job + 1 that still reads the buffer */
    int32_t window;       /* number + 1 of the window whose rows are loaded */
    int32_t last_op, last_time;
    int32_t region, stored_at; /* in the spill file, completely from this time on */
    int32_t norm;              /* op + 1 of the group_norm over it alone */
} tsr_value_state;

/* Consecutive ops that are run window by window. */
typedef struct tsr_chain {
    int32_t a, b;           /* ops [a,b] */
    int32_t h;              /* rows of what it exports */
    int32_t rows;           /* a window's */
    bool windowed;          /* more than one window */
    bool stats;             /* only the statistics of the group_norm a */
    int32_t work;           /* item */
    int32_t window_time[2]; /* first action of the window before, and of this one */
    int32_t n;              /* number of this window */
    tsr_rows need[TSR_MAX_CHAIN];
    tsr_rows part;
} tsr_chain;

/* Room for lowering one candidate after the other. */
typedef struct tsr_lower_tables {
    uint8_t *resident;       /* [n_weights] */
    tsr_value_state *values; /* [n_values] */
    int32_t *held;           /* [n_weights] item of a streamed weight in the running chain */
    int32_t *stats;          /* [n_ops + 1] item */
    size_t *live, *early;    /* [n_actions + 4]: live bytes; of those, read and not needed yet */
    int32_t *time;           /* [n_actions + 4]: see plan_merge.c */
    int32_t *into;           /* [n_items]: the same */
    size_t cap_times, cap_into;
} tsr_lower_tables;
void tsr_lower_tables_free(tsr_lower_tables *x);

typedef struct tsr_lower {
    const tsr_tape *t;
    const tsr_backend *b;
    int32_t n_threads, tile_rows;
    const tsr_knobs *k;
    tsr_plan *plan;
    tsr_lower_tables *tables;
    const uint8_t *resident; /* the tables' */
    tsr_value_state *values;
    int32_t *held, *stats;
    int32_t section_time; /* of the section's first action */
    bool in_loop;
    tsr_err *err;
    tsr_status st;
} tsr_lower;

/* plan_items.c */
int32_t tsr_lower_now(const tsr_lower *l); /* time of the action that is being made */
int32_t tsr_lower_item(tsr_lower *l, size_t bytes, tsr_item_class cls);
void tsr_lower_touch(tsr_lower *l, int32_t item);
void tsr_lower_grow(tsr_lower *l, int32_t item, size_t bytes);
int32_t tsr_lower_job(tsr_lower *l, const tsr_job *job); /* its index, -1 on failure */
int32_t tsr_lower_region(tsr_lower *l, tsr_val v);
void tsr_lower_action(tsr_lower *l, const tsr_action *a);

/* plan_values.c */
void tsr_lower_values(tsr_lower *l); /* modes and inputs */
void tsr_lower_begin_loop(tsr_lower *l);
tsr_operand tsr_lower_read(tsr_lower *l, int32_t op, int32_t k);
tsr_operand tsr_lower_write(tsr_lower *l, const tsr_chain *c, int32_t op);
void tsr_lower_written(tsr_lower *l, const tsr_chain *c, int32_t op); /* stores the strip */
void tsr_lower_load_strips(tsr_lower *l, const tsr_chain *c);
void tsr_lower_end_strips(tsr_lower *l, const tsr_chain *c);

/* plan_chains.c */
tsr_chain tsr_lower_next_chain(const tsr_lower *l, int32_t a);
void tsr_chain_needs(const tsr_lower *l, tsr_chain *c, tsr_rows part);
bool tsr_chain_reads_exactly(const tsr_lower *l, const tsr_chain *c, tsr_val v);
bool tsr_chain_internal(const tsr_lower *l, const tsr_chain *c, tsr_val v);
bool tsr_lower_keys_in_strips(const tsr_lower *l, const tsr_op *op);
bool tsr_lower_is_kept(const tsr_tape *t, tsr_val v);

/* plan_actions.c */
tsr_status tsr_lower_all(tsr_lower *l);

/* plan_merge.c */
void tsr_lower_merge(const tsr_lower *l, size_t ceiling); /* live bytes at most */

/* plan_io.c */
tsr_status tsr_lower_finish(tsr_lower *l); /* read-ahead, order of jobs, waits, spill offsets */
tsr_status tsr_plan_order_jobs(tsr_plan *p, tsr_err *err); /* by issue, and who waits for what */

/* plan_cost.c */
void tsr_plan_costs(tsr_plan *p, const tsr_plan_question *q);
double tsr_plan_read_seconds(double bytes, bool packed); /* I/O time of streaming a weight */
double tsr_plan_file_bytes(const tsr_weight *w, size_t packed_bytes); /* that are read for it */
int32_t tsr_plan_steps(const tsr_tape *t);

/* plan_candidates.c */
extern const tsr_knobs tsr_candidates[];
extern const int32_t tsr_n_candidates;

/* plan_lower.c: lowers one candidate, costs included, offsets not. `p` may hold an earlier one,
 * whose tables are used again; after a failure its content is undefined, and it is still to be
 * freed. */
tsr_status tsr_plan_lower(tsr_plan *p, tsr_lower_tables *tables, const tsr_plan_question *q,
                          const tsr_knobs *k, tsr_err *err);
size_t tsr_plan_packed(const tsr_plan_question *q, size_t w); /* bytes in the arena */

#endif
