/* tessera.h -- Tessera: diffusion image generation inside the memory that it is given.
 *
 * The budget is a guarantee, and the picture does not depend on it. A run is planned
 * completely before its first step: what it will need is known, and either it fits or it is
 * refused with the smallest budget that would do.
 *
 *     #include <tessera.h>
 *
 *     char why[256];
 *     tsr_context *ctx = NULL;
 *     tsr_model *model = NULL;
 *     tsr_run *run = NULL;
 *     tsr_picture pic;
 *     if (tsr_context_make(&ctx, &(tsr_context_desc){ 0 }, why, sizeof why) != TSR_OK)
 *         die(why);
 *     if (tsr_model_open(ctx, "path/to/diffusers-directory", &model) != TSR_OK ||
 *         tsr_run_make(ctx, model, &(tsr_run_desc){ .prompt = "a red apple", .seed = 1,
 *                      .seed_given = true, .budget_bytes = (size_t)1 << 30 }, &run) != TSR_OK ||
 *         tsr_run_next(run, &pic) != TSR_OK)
 *         die(tsr_context_error(ctx));
 *     write_rgb(pic.rgb, pic.width, pic.height);
 *     tsr_run_free(run); tsr_model_free(model); tsr_context_free(ctx);
 *
 * Descriptors are zero-initialised structs; zero means the documented default.
 *
 * Ownership: what a _make or _open function returns is freed with the _free function of its
 * type (which accepts NULL); free runs before their model, models before their context.
 * Strings and arrays in results belong to the object that they were asked from and live as
 * long as it does, unless said otherwise. Descriptors and their strings are copied.
 *
 * Threads: a context, its models and its runs are used by one thread at a time. Any number of
 * contexts may be used at once from different threads; they share nothing that changes a bit.
 *
 * Errors: functions return a tsr_status; results are untouched on failure. tsr_context_error
 * gives the sentence. The library never prints, exits or aborts.
 *
 * Budget: `budget_bytes` bounds the peak resident set of the process as the kernel counts it
 * (VmHWM): code, tables, heap and the arena that the network runs in. It is refused (TSR_E_BUDGET)
 * where planning has taken more by itself; with glibc, a program that fixes M_MMAP_THRESHOLD
 * (mallopt), as gen does, keeps that least. */
#ifndef TESSERA_H
#define TESSERA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_VERSION_MAJOR 0
#define TSR_VERSION_MINOR 1
#define TSR_VERSION_PATCH 0
const char *tsr_version(void); /* "0.1.0" */

/* ------------------------------------------------------------------ status */

typedef enum tsr_status {
    TSR_OK = 0,
    TSR_E_INTERNAL = 1, /* a bug: a promise of this library did not hold */
    TSR_E_USAGE = 2,    /* an option or argument is wrong */
    TSR_E_BUDGET =
        3,           /* the run cannot be planned within the budget; the sentence has the minimum */
    TSR_E_MODEL = 4, /* a model or input file is broken, or something in it is not supported */
    TSR_E_IO = 5,    /* reading or writing failed */
    TSR_E_DEVICE = 6,   /* the backend or CPU tier asked for is not there, or failed */
    TSR_E_OOM = 7,      /* the system refused memory that the plan counts on */
    TSR_E_CANCELLED = 8 /* a progress callback asked to stop */
} tsr_status;

const char *tsr_status_name(tsr_status s); /* "budget" for TSR_E_BUDGET */

typedef enum tsr_log_level { TSR_LOG_WARNING, TSR_LOG_INFO, TSR_LOG_DEBUG } tsr_log_level;
typedef void (*tsr_log_fn)(void *user, tsr_log_level level, const char *line);

/* ----------------------------------------------------------------- context */

typedef struct tsr_context tsr_context;

typedef enum tsr_backend_kind {
    TSR_BACKEND_AUTO,
    TSR_BACKEND_CPU,
    TSR_BACKEND_CUDA
} tsr_backend_kind;

typedef enum tsr_cpu_tier {
    TSR_TIER_AUTO,      /* the fastest that this machine has */
    TSR_TIER_PORTABLE,  /* plain C: the oracle */
    TSR_TIER_AVX2,      /* AVX2, FMA, F16C */
    TSR_TIER_AVX512,    /* AVX-512 F, BW, DQ, VL */
    TSR_TIER_AVX512FP16 /* and arithmetic in halves, for linear layers in fp16 */
} tsr_cpu_tier;

typedef struct tsr_context_desc {
    tsr_backend_kind backend; /* AUTO */
    tsr_cpu_tier cpu_tier;    /* AUTO; a tier that the machine lacks is TSR_E_DEVICE */
    int32_t n_threads;        /* 0: as many as there are CPUs for this process; at most 256 */
    tsr_log_fn log;           /* NULL: messages are dropped */
    void *log_user;
} tsr_context_desc;

/* Opens a context and its thread pool. On failure *why (if `why_bytes` > 0) gets the sentence.
 * Errors: TSR_E_USAGE, TSR_E_DEVICE, TSR_E_OOM. */
tsr_status tsr_context_make(tsr_context **ctx, const tsr_context_desc *desc, char *why,
                            size_t why_bytes);
void tsr_context_free(tsr_context *ctx);
/* The sentence of the last failure in this context; "" when there was none. */
const char *tsr_context_error(const tsr_context *ctx);
/* What was resolved: "cpu", the tier's name ("avx2"), the number of threads. */
const char *tsr_context_backend(const tsr_context *ctx);
const char *tsr_context_tier(const tsr_context *ctx);
int32_t tsr_context_threads(const tsr_context *ctx);

/* ------------------------------------------------------------------- model */

typedef struct tsr_model tsr_model;

/* Opens a diffusers directory, or a file that tsr_model_convert made of one: configs, tensor
 * headers and tokenizers; no tensor data. Missing tensors and unsupported configs fail here, by
 * name (TSR_E_MODEL); unused tensors are warnings. Errors: TSR_E_MODEL, TSR_E_IO, TSR_E_OOM. */
tsr_status tsr_model_open(tsr_context *ctx, const char *path, tsr_model **model);
void tsr_model_free(tsr_model *model);

/* What the checkpoint is and what is wrong with it, as JSON (family, parts, sizes, dtypes,
 * prediction type, native size, problems). Unlike tsr_model_open it goes on after problems and
 * lists them all; it fails only when there is nothing to describe (no such path: TSR_E_IO).
 * *n_problems counts what would make tsr_model_open fail. Free *json with tsr_string_free. */
tsr_status tsr_model_inspect(tsr_context *ctx, const char *path, char **json, int32_t *n_problems);
void tsr_string_free(char *s);

/* Token ids of a text, with begin and end tokens, not cut and not padded. `encoder` is 0 for the
 * model's first tokenizer, 1 for its second (SDXL). `text` has `text_bytes` bytes and may hold
 * zero bytes. *ids belongs to the model until the next call. */
tsr_status tsr_model_tokenize(tsr_model *model, int32_t encoder, const char *text,
                              size_t text_bytes, const int32_t **ids, int32_t *n_ids);

typedef enum tsr_precision {
    TSR_PRECISION_AUTO,
    TSR_PRECISION_FP16,
    TSR_PRECISION_BF16,
    TSR_PRECISION_FP32
} tsr_precision;

typedef struct tsr_convert_desc {
    tsr_precision precision; /* AUTO: FP16. Runs of the file have this precision */
    /* Called with the bytes written so far and about how many there will be; return false to stop
     * (TSR_E_CANCELLED). May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *progress_user;
} tsr_convert_desc;

/* Writes the model to one file whose weights lie as the context's backend computes with them, so
 * that streaming them is a plain read: the fastest way to run in little memory. Pictures are the
 * same, bit for bit. The file holds everything (configs and tokenizers too) and is opened as the
 * model is; a backend whose weights lie otherwise refuses it. It appears when it is whole. Memory
 * is a few mebibytes. Errors: TSR_E_USAGE, TSR_E_MODEL, TSR_E_IO (the disk has not the space),
 * TSR_E_OOM, TSR_E_CANCELLED. */
tsr_status tsr_model_convert(tsr_model *model, const char *path, const tsr_convert_desc *desc);

/* --------------------------------------------------------------------- run */

typedef struct tsr_run tsr_run;

/* Where weights may be while a phase runs. */
typedef enum tsr_offload {
    TSR_OFFLOAD_AUTO,  /* the fastest that fits */
    TSR_OFFLOAD_NONE,  /* all of them in the arena */
    TSR_OFFLOAD_MODEL, /* the same: text encoder, UNet and VAE take each other's place anyway */
    TSR_OFFLOAD_BLOCK, /* each is read, whole, when its layer's turn comes */
    TSR_OFFLOAD_STREAM /* the same in pieces of a few MB */
} tsr_offload;

typedef enum tsr_rng_kind { TSR_RNG_TORCH_CPU, TSR_RNG_TORCH_CUDA } tsr_rng_kind;

/* What a run is for. */
typedef enum tsr_task {
    TSR_TASK_PICTURE, /* pictures from a prompt */
    TSR_TASK_DECODE,  /* pictures from final latents: the VAE decoder alone */
    TSR_TASK_ENCODE   /* the latents of a picture: the VAE encoder alone */
} tsr_task;

typedef enum tsr_phase {
    TSR_PHASE_LOAD,
    TSR_PHASE_TEXT,
    TSR_PHASE_DENOISE,
    TSR_PHASE_DECODE,
    TSR_PHASE_ENCODE
} tsr_phase;

typedef struct tsr_progress {
    tsr_phase phase;
    int32_t step, n_steps;       /* done so far in this phase; a Heun step counts each model call */
    int32_t picture, n_pictures; /* index of the picture being made */
    int32_t n_together;          /* so many from `picture` on are denoised together; else 1 */
    double seconds;              /* since this phase began */
    size_t resident_bytes, peak_bytes;
} tsr_progress;

/* Called on the thread that runs, after each step and several times a second in between (the same
 * step again); return false to stop (TSR_E_CANCELLED). A picture that is whole (decode, 1 of 1) is
 * handed out all the same. */
typedef bool (*tsr_progress_fn)(void *user, const tsr_progress *p);

typedef struct tsr_run_desc {
    tsr_task task; /* DECODE and ENCODE take sizes, precision, latents or image, and "where" */
    /* what to draw; strings are UTF-8 and may be NULL */
    const char *prompt;
    const char *negative_prompt; /* NULL (not given) is not the same as "" for SDXL */
    const char *prompt_2;        /* second text encoder; NULL: the first's */
    const char *negative_prompt_2;
    int32_t width, height; /* 0: the model's own; else 8 .. 16384, any value */
    /* how */
    int32_t steps;               /* 0: the model card's, or 25 (LCM 4) */
    float guidance;              /* 0: the model card's, or 7.5 (SDXL 5, LCM 1); 1 turns it off */
    float guidance_rescale;      /* 0 .. 1 */
    const char *scheduler;       /* NULL: the model's; else a name of cli.md ("euler_a") */
    const char *sigmas;          /* NULL: the model's; "default", "karras", "exponential", "beta" */
    const char *prediction_type; /* NULL: the model's */
    float eta;                   /* ddim */
    int32_t clip_skip;           /* 0: none, as in diffusers */
    uint64_t seed;               /* of the first picture, used when seed_given */
    bool seed_given;
    tsr_rng_kind rng;
    int32_t n_pictures; /* 0: 1. Picture i is drawn from seed + i, as if made alone; as many as is
                         * fastest within the budget are denoised together */
    tsr_precision precision;
    /* SDXL's size conditions; zero width: the picture's size */
    int32_t original_width, original_height, crop_x, crop_y, target_width, target_height;
    /* start noise as drawn, fp32 [n_pictures,C,h,w], instead of the generator's; copied.
     * DECODE: final latents, as tsr_picture has them; their number is that of the pictures, and
     * width and height (0: all of it) say what is cut out of the middle */
    const float *latents;
    int32_t latents_shape[4];
    const uint8_t *image; /* ENCODE: [height,width,3]; not copied, it outlives tsr_run_next */
    /* where */
    /* 0: what is free, less a margin. That is asked again before each phase: where others have
     * taken memory since, the rest of the run is planned again (the same picture), and if nothing
     * fits any more, that is TSR_E_BUDGET, and tsr_run_latents has what is finished. A given budget
     * stays. */
    size_t budget_bytes;
    /* Who says what there is where budget_bytes is 0 (the whole process's share, as budget_bytes
     * is); NULL: the system and its control group do */
    size_t (*default_budget)(void *user);
    void *default_budget_user;
    tsr_offload offload; /* AUTO */
    int32_t tile_rows; /* output rows that the decoder computes at once; 0: the planner's choice */
    const char *spill_dir; /* where activations go that do not fit; NULL: the cache directory */
    bool strict;           /* refuse rather than degrade */
    bool plan_only; /* tsr_run_next will not be called: reserve nothing, and refuse nothing: what
                     * does not fit is planned at its least, predicted above its budget */
    bool time_ops;  /* time every op: tsr_run_get_ops */
    /* who listens */
    tsr_progress_fn progress;
    void *progress_user;
} tsr_run_desc;

/* Resolves every setting, draws the random seed if none is given, plans all phases, reserves the
 * memory. After it succeeds no further memory is allocated by tsr_run_next.
 * Errors: TSR_E_USAGE, TSR_E_BUDGET (with the minimum), TSR_E_MODEL, TSR_E_IO, TSR_E_OOM. */
tsr_status tsr_run_make(tsr_context *ctx, tsr_model *model, const tsr_run_desc *desc,
                        tsr_run **run);
void tsr_run_free(tsr_run *run);

typedef struct tsr_picture {
    int32_t index; /* 0 .. n_pictures-1 */
    uint64_t seed;
    int32_t width, height;
    const uint8_t *rgb; /* [height,width,3]; ENCODE: NULL */
    /* Final latents, fp32 [C,h,w], not divided by the scaling factor. ENCODE: the mean of the
     * distribution that the encoder finds, multiplied by the scaling factor (where the config has
     * statistics of the latents: less their mean, over their deviation, times the factor), so that
     * DECODE gives the picture back. h and w are those of the picture over the VAE's factor,
     * rounded down. */
    const float *latents;
    int32_t latents_shape[3];
    const char *parameters; /* A1111's "parameters" text; NULL without a prompt */
    const char *record;     /* JSON: everything needed to make it again; ENCODE: NULL */
} tsr_picture;

/* Makes the next picture; everything in *pic is valid until the next call on this run.
 * TSR_E_USAGE after the last one. TSR_E_CANCELLED, TSR_E_IO, TSR_E_MODEL (an overflow in the
 * network, with the layer's name), TSR_E_BUDGET (see budget_bytes), TSR_E_INTERNAL (measured memory
 * above the budget; *pic is filled in all the same). After a failure it may be called again: the
 * same picture is begun again, or, where its latents are finished, only decoded. */
tsr_status tsr_run_next(tsr_run *run, tsr_picture *pic);

/* The latents that the run has finished last, fp32 [N,C,h,w] as tsr_picture has them: those of the
 * picture that was handed out, or, after a failure of tsr_run_next, of the one that could not be
 * decoded; and of those after it that were denoised with it. TSR_TASK_DECODE makes the picture of
 * them, whenever, and in whatever budget. False when there are none: the steps are not done. Valid
 * as long as a picture. */
bool tsr_run_latents(const tsr_run *run, const float **latents, int32_t shape[4]);

typedef struct tsr_phase_info {
    const char *name;                       /* "text", "denoise", "decode", "image", "encode" */
    size_t predicted_bytes, measured_bytes; /* peak resident set; measured is 0 before it ran */
    size_t weight_bytes, activation_bytes, work_bytes, state_bytes; /* the arena by class */
    double seconds, seconds_waiting_for_weights, predicted_seconds;
    double flops;    /* counted, one picture */
    int32_t n_calls; /* of the networks, one picture; 0: the task has no such phase */
    /* as planned, one picture (its share of a batch): weights read while it runs, activations
     * written and read */
    uint64_t streamed_bytes, spilled_bytes;
} tsr_phase_info;

typedef struct tsr_run_info {
    int32_t width, height, frames, steps, n_pictures;
    int32_t batch; /* pictures that are denoised together, at most */
    uint64_t seed;
    float guidance;
    const char *scheduler, *sigmas, *precision, *model_hash, *plan_hash;
    size_t budget_bytes, predicted_peak_bytes, measured_peak_bytes;
    size_t arena_bytes, arena_high_water_bytes;
    size_t minimum_budget_bytes; /* of the picture that was asked for */
    size_t fastest_budget_bytes;
    uint64_t bytes_streamed, bytes_spilled; /* weights read while running; activations, both ways */
    double io_core_seconds;                 /* of processor time that these two took */
    double seconds_total, steps_per_second;
    uint64_t allocations_while_running; /* 0, or a promise is broken; planning again has its own */
    int32_t times_replanned;            /* others took memory between phases */
    int32_t n_phases;
    const tsr_phase_info *phases;
} tsr_run_info;

/* One kind of work in one network: ops of the same kind and shape, together. */
typedef struct tsr_op_info {
    const char *phase; /* "text", "denoise", "decode" */
    bool once;         /* before the first step; else in every call (text: a prompt; decode: one) */
    const char *what;  /* "conv2d 3x3, 2x64x64, 320 to 320" */
    const char *method; /* "": the plain sum; "winograd", whose flops are those of the plain sum */
    bool matrix;        /* convolution, linear or attention */
    int32_t n_ops;
    double flops, bytes; /* of one call; operands, weights and results count once */
    double seconds;      /* of one call: the mean of all that were made */
} tsr_op_info;

/* What the ops of a run with `time_ops` took, phase by phase, the longest first, after its
 * pictures. A row whose `what` is "all of it" has the whole call, waiting for weights included.
 * *ops lives until the next call or the end of the run. TSR_E_USAGE without `time_ops`, TSR_E_OOM.
 */
tsr_status tsr_run_get_ops(tsr_run *run, const tsr_op_info **ops, int32_t *n);

typedef struct tsr_roof {
    int32_t n_threads;
    double flops; /* multiply-adds in registers, counted twice, a second; 0: unknown */
    double bytes; /* read from memory a second */
} tsr_roof;

/* Measures what `n_threads` of the context's threads can do at most: half a second and 128 MiB.
 * Errors: TSR_E_USAGE, TSR_E_OOM. */
tsr_status tsr_context_roof(tsr_context *ctx, int32_t n_threads, tsr_roof *roof);

/* What was resolved and planned, and what was measured so far. Strings live as long as the run. */
void tsr_run_get_info(const tsr_run *run, tsr_run_info *info);
/* The same as JSON with the keys of cli.md; `measured` adds those of a finished run. Without it
 * `largest_width` and `largest_height` are there. Free with tsr_string_free. */
tsr_status tsr_run_report(const tsr_run *run, bool measured, char **json);

#ifdef __cplusplus
}
#endif
#endif
