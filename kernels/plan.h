/* plan.h -- what a program does, decided before it does anything.
 *
 * A plan is a list of actions and a list of jobs. The compute threads execute the actions in order:
 * each is one window of one op (entries, output rows, output channels) with the place of every
 * operand. One I/O thread executes the jobs in order: a piece of a weight read and packed into its
 * place, rows of a value written to the spill file or read back. Everything that needs memory is an
 * item: a value, a window of one, a weight or a piece of one, scratch. Planner time is
 * the action's number plus one (0: loading), so lifetimes to offsets (memory/planner) cover all of
 * it, what is on its way included.
 *
 * The plan is a pure function of tape, backend facts, threads and options. Source of the idea:
 * design.md, "One idea: tape, plan, arena". */
#ifndef TSR_KERNELS_PLAN_H
#define TSR_KERNELS_PLAN_H

#include "kernels/backend.h"
#include "memory/planner.h"

/* What is known of every candidate: the same for any budget. Kept by who plans a tape several times
 * with the same backend, threads and options but the budget. */
typedef struct tsr_plan_survey tsr_plan_survey;
void tsr_plan_survey_free(tsr_plan_survey *s); /* accepts NULL */

typedef struct tsr_plan_options {
    size_t budget_bytes; /* arena bytes this program may take; 0: no limit */
    tsr_offload offload;
    int32_t tile_rows;             /* output rows an action at most; 0: the planner's choice */
    bool may_spill;                /* values may go to the spill file */
    size_t read_ahead_bytes;       /* weights on their way at most; 0: the planner's choice */
    tsr_plan_survey **survey;      /* used and filled; NULL: nothing is kept */
    const struct tsr_knobs *knobs; /* tests: this candidate alone; NULL: the planner's list */
} tsr_plan_options;

typedef struct tsr_operand {
    int32_t item;         /* 0: no operand */
    int32_t row0, n_rows; /* rows of the value that the item holds */
    bool of_step;         /* the item holds all steps: entries step * n on */
} tsr_operand;

typedef struct tsr_action {
    int32_t op;
    bool stats_only; /* group_norm: the window's rows into the statistics, nothing else */
    tsr_window window;
    tsr_operand out, in[4];
    int32_t w[2];               /* items; of a matrix the piece from window.c0 on */
    int32_t work, stats, carry; /* items */
    int32_t kv0, kv1;           /* attention with carry: these keys */
    int32_t n_free;             /* jobs that are done before jobs are issued for this action */
    int32_t n_issued;           /* jobs that are issued before it */
    int32_t n_needed;           /* jobs that are done before it runs */
} tsr_action;

typedef enum tsr_job_kind {
    TSR_JOB_WEIGHT, /* output channels [a,b) of a weight into the item */
    TSR_JOB_LOAD,   /* rows [a,b) of every entry of a value into the item */
    TSR_JOB_STORE   /* and back */
} tsr_job_kind;

typedef struct tsr_job {
    tsr_job_kind kind;
    int32_t index; /* of the weight or value; a view: the entries of the step */
    int32_t item;
    int32_t a, b;
    int32_t issue;    /* before the action of this time */
    int32_t due;      /* load: the first time that needs it. Store: the last at which the item
                         must not change */
    int32_t earliest; /* a load may be issued from this time on */
    int32_t region;   /* of the spill file; 0: none */
    bool in_loop;     /* else of the prologue */
} tsr_job;

/* Of one run of a section. */
typedef struct tsr_plan_cost {
    double seconds;
    double compute_seconds, io_seconds; /* alone */
    double flops;
    double bytes_streamed, bytes_spilled;
} tsr_plan_cost;

/* Of one run of a section whose I/O is `saved` seconds less. */
double tsr_plan_cost_seconds(const tsr_plan_cost *c, double saved, int32_t n_threads);

typedef struct tsr_plan {
    tsr_action *actions;
    size_t n_actions, cap_actions;
    tsr_item *items; /* [0] is none */
    size_t n_items, cap_items;
    tsr_job *jobs; /* in order of issue: the prologue's, then the loop's */
    size_t n_jobs, cap_jobs;
    tsr_item *regions; /* [0] is none; of the spill file, in planner time */
    size_t n_regions, cap_regions;
    int32_t *value_item;  /* [n_values] its first place; 0: it is never whole */
    int32_t *weight_item; /* [n_weights] of a resident weight, else 0 */
    int32_t staging_item; /* where weights are read before they are packed; on the host */
    size_t staging_bytes; /* that much of the heap takes its place, for a device */
    int32_t loop_action;  /* first action of the loop section */
    int32_t loop_job;
    tsr_layout layout;
    size_t live_bytes; /* the largest live sum: no layout is smaller */
    size_t spill_bytes;
    tsr_plan_cost prologue, loop;
    double seconds;        /* of prologue and all steps, as far as the tape knows how many */
    double load_seconds;   /* once: reading what is resident, making the spill file */
    int32_t candidate;     /* which of the list it was */
    size_t resident_bytes; /* of streamable weights that stay */
} tsr_plan;

typedef struct tsr_plan_question {
    const tsr_tape *tape;
    const tsr_backend *backend;
    int32_t n_threads;
    tsr_plan_options options;
} tsr_plan_question;

typedef struct tsr_plan_sizes {
    size_t minimum_bytes; /* arena bytes of the smallest candidate */
    size_t fastest_bytes; /* of the fastest one */
} tsr_plan_sizes;

/* The fastest plan that fits. TSR_E_BUDGET when none does (sizes are told then, too), TSR_E_OOM. */
tsr_status tsr_plan_make(tsr_plan *p, tsr_plan_sizes *sizes, const tsr_plan_question *q,
                         tsr_err *err);
void tsr_plan_free(tsr_plan *p); /* accepts a zeroed one */

/* How a weight is read: rows at a time, and where in the staging place. */
typedef struct tsr_panels {
    int32_t n_rows;      /* dims[0] */
    int32_t panel_rows;  /* the backend's */
    int32_t rows_a_read; /* a multiple of panel_rows */
    size_t row_elements;
    size_t raw_bytes;     /* of one read, in the file's type; 0: read in place as float32 */
    size_t staging_bytes; /* raw, then float32 */
} tsr_panels;
tsr_panels tsr_plan_panels(const tsr_tape *t, const tsr_backend *b, const tsr_weight *w);

#endif
