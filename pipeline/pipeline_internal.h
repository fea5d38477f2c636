/* pipeline_internal.h -- the objects behind tessera.h, private to this folder.
 *
 * A run has three networks to execute, in this order: text encoders, UNet, VAE decoder. Each is a
 * tsr_net: a tape, its program (plan), and its tensor source. All are recorded and planned before
 * the first step; all live in one arena, one after the other, behind the state that outlives them:
 *
 *     arena:  | state: context, latents, noise, sampler history, picture | the running net |
 *
 * On a device the running net has an arena there, and the state stays on the host.
 */
#ifndef TSR_PIPELINE_PIPELINE_INTERNAL_H
#define TSR_PIPELINE_PIPELINE_INTERNAL_H

#include "base/folder.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/rng.h"
#include "base/text_util.h"
#include "kernels/plugin.h"
#include "kernels/program.h"
#include "model/component.h"
#include "model/config.h"
#include "model/packed.h"
#include "scheduler/scheduler.h"
#include "text/clip.h"
#include "text/tokenizer.h"
#include "unet/unet.h"
#include "vae/vae.h"

#ifndef TSR_SANITIZED
#define TSR_SANITIZED                                                                              \
    0 /* 1 in sanitizer builds, whose shadow memory breaks every memory figure                     \
       */
#endif

enum {
    TSR_MAX_ENCODERS = 2,
    TSR_MAX_PHASES = 4,
    TSR_MAX_SIZE = 16384,
    TSR_MAX_STEPS = 1000,
    TSR_OP_TEXT = 96
};

struct tsr_context {
    tsr_err err;
    tsr_log log;
    tsr_pool *pool;
    const tsr_backend *backend;
    const tsr_plugin *plugin; /* that the backend is from; NULL on a CPU */
    void *plugin_handle;
    size_t library_bytes; /* of the device: what libraries have loaded while running */
};

struct tsr_model {
    tsr_context *ctx;
    char *path;
    tsr_packed packed; /* open when the model is a packed checkpoint */
    bool is_packed;
    tsr_folder folder; /* its small files, wherever they are */
    tsr_model_index index;
    tsr_unet_config unet_cfg;
    tsr_vae_config vae_cfg;
    tsr_clip_config clip_cfg[TSR_MAX_ENCODERS];
    int32_t n_encoders;
    tsr_component unet, vae, clip[TSR_MAX_ENCODERS];
    tsr_tokenizer *tokenizer[TSR_MAX_ENCODERS];
    char *scheduler_json;
};

/* Everything that a run was asked for, resolved: nothing below asks "was it given?" again. */
typedef struct tsr_settings {
    tsr_task task;
    char *prompt[TSR_MAX_ENCODERS], *negative[TSR_MAX_ENCODERS]; /* owned */
    bool negative_given, prompt_2_given, negative_2_given;
    bool zero_negative;            /* SDXL without a negative prompt: zeros, not an empty prompt */
    bool cfg;                      /* classifier-free guidance: two entries a step */
    int32_t width, height;         /* of the picture */
    int32_t net_width, net_height; /* multiples of the VAE's factor */
    int32_t latent_c, latent_h, latent_w;
    int32_t entries;              /* of a picture in a UNet call: 2 with guidance */
    int32_t context_s, context_d; /* tokens and width of the prompt's embedding */
    int32_t pooled_d;             /* width of the pooled embedding; 0: none (not SDXL) */
    int32_t steps, n_pictures, clip_skip;
    int32_t batch; /* pictures that go through the UNet together, at most: the plan's choice */
    float guidance, guidance_rescale, eta;
    uint64_t seed;
    tsr_rng_kind rng;
    tsr_dtype dtype, vae_dtype;
    int32_t original[2], crop[2], target[2]; /* h, w as the network takes them */
    tsr_sched_config *sched_cfg;
    size_t budget_bytes;
    size_t host_budget_bytes; /* of a run on a device; 0: what is free */
    bool budget_given, strict;
    tsr_offload offload;
    int32_t tile_rows;                 /* of the decoder; 0: the planner's choice */
    char *spill_dir;                   /* owned; NULL: the cache directory */
    int32_t asked_width, asked_height; /* before the ladder */
} tsr_settings;

/* A recorded and planned network. */
typedef struct tsr_net {
    tsr_tape tape;
    tsr_program program;
    bool made, loaded;
    bool over;               /* it will not run again: its need does not count any more */
    tsr_plan_survey *survey; /* what planning has learned of the tape */
} tsr_net;

/* One text encoder at one depth, and the prompts that it encodes together. */
typedef struct tsr_text_net {
    tsr_net net;
    tsr_clip_io io;
    int32_t encoder;
    int32_t half, n_halves; /* [half, half + n_halves) of [negative, prompt] */
} tsr_text_net;

/* Every network of a run at one size. */
typedef struct tsr_nets {
    tsr_text_net
        text[2 * TSR_MAX_ENCODERS]; /* prompt's, then the negative's where its depth differs */
    int32_t n_text;
    tsr_net unet;
    tsr_unet_io unet_io;
    bool has_unet;
    tsr_net vae[2]; /* [0] as asked for; [1] float32, when [0] is half and may overflow */
    /* Decoder: latents; [1,H,W,3] before and after rounding to u8. Encoder: picture
     * [1,3,H,W] f32; moments before and after their turn to [1,2L,h,w] f32 */
    tsr_val vae_in[2], vae_raw[2], vae_out[2];
    int32_t n_vae;
    int32_t n_calls; /* model calls a picture */
} tsr_nets;

/* What outlives a network, as offsets from the arena's base. */
typedef struct tsr_state {
    size_t context, pooled; /* [entries,S,D], [entries,P] in the UNet's dtype */
    size_t noise, guided;   /* f32 [C,h,w] each */
    size_t rgb;             /* u8 [height,width,3] */
    size_t row;             /* f32 [widest text encoder] */
    size_t latents;         /* f32 [batch,C,h,w] */
    size_t bytes;
} tsr_state;

/* A picture of the batch while it is denoised. */
typedef struct tsr_lane {
    tsr_sched *sched;
    tsr_rng rng;
} tsr_lane;

struct tsr_run {
    tsr_context *ctx;
    tsr_model *model;
    tsr_settings set;
    tsr_nets nets;
    tsr_state state;
    tsr_arena arena;        /* the host's: the state, and the networks where there is no device */
    tsr_arena device_arena; /* of the networks */
    tsr_status tried;       /* of the device's libraries */
    tsr_io *io;
    tsr_spill spill;
    tsr_lane *lanes; /* [n_lanes]: as many as pictures in a batch; none without a prompt */
    int32_t n_lanes;
    float *given_latents; /* by the caller, [n_pictures,C,h,w]: noise, or final; or NULL */
    const uint8_t *image; /* to encode, [height,width,3]; the caller's */
    int32_t *ids[2][TSR_MAX_ENCODERS]; /* [negative, prompt]: token ids, padded and cut, context_s
                                          each */
    tsr_progress_fn progress;
    void *progress_user;
    tsr_progress said; /* what the callback was told last, and when */
    double said_at;
    size_t (*default_budget)(void *user); /* NULL: the system's figures */
    void *default_budget_user;
    int32_t next_picture;
    int32_t batch_first, batch_end; /* pictures of the batch that was denoised last */
    bool text_done;
    bool latents_done;     /* the state has final latents */
    bool latents_are_next; /* and they are not decoded yet */
    bool plan_is_due;      /* planning again has failed: the plans are of no use */
    /* memory: what was promised and what was measured */
    size_t base_bytes, predicted_peak, measured_peak, minimum_budget, fastest_budget;
    size_t peak_before;   /* of the process, when the run was made */
    size_t peak_at_start; /* of the process, before this run */
    size_t arena_high_water;
    size_t host_peak;      /* predicted, of a run on a device */
    size_t kept_by_budget; /* what the asked size would have needed; 0: nothing was given up */
    bool keep_network;     /* the arena stays resident while the picture is encoded */
    tsr_phase_info phases[TSR_MAX_PHASES];
    uint64_t model_hash, plan_hash;
    char model_hash_text[20], plan_hash_text[20];
    bool plan_only;
    double seconds_total, denoise_seconds, seconds_loading[TSR_MAX_PHASES];
    int32_t denoise_calls;
    uint64_t bytes_streamed, bytes_spilled, allocations;
    double io_core_seconds;
    uint64_t planning_allocations; /* of planning again, not part of `allocations` */
    int32_t times_replanned;
    tsr_buf record, parameters; /* reserved when the run is made */
    bool time_ops;
    double *op_seconds; /* of all networks, one after the other */
    tsr_op_info *ops;   /* what tsr_run_get_ops gave last, and their texts */
    char (*op_texts)[TSR_OP_TEXT];
};

enum { TSR_RUN_TEXT, TSR_RUN_DENOISE, TSR_RUN_DECODE, TSR_RUN_IMAGE }; /* indices of phases[] */

/* settings.c */
tsr_status tsr_settings_resolve(tsr_settings *s, tsr_context *ctx, const tsr_model *m,
                                const tsr_run_desc *d);
void tsr_settings_set_size(tsr_settings *s, const tsr_model *m, int32_t width, int32_t height);
void tsr_settings_free(tsr_settings *s);
const char *tsr_dtype_precision(tsr_dtype d); /* "fp16" */

/* prompts.c: the token ids of every prompt, padded; warns with the words that were cut. */
tsr_status tsr_prompts_tokenize(tsr_run *r);

/* nets.c */
tsr_status tsr_nets_record(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s,
                           int32_t n_calls);
/* The UNet alone, again, for as many pictures as s->batch says. */
tsr_status tsr_nets_record_unet(tsr_nets *n, tsr_context *ctx, tsr_model *m, const tsr_settings *s);
/* And its plan alone, as in tsr_nets_plan. */
tsr_status tsr_nets_plan_unet(tsr_nets *n, tsr_context *ctx, const tsr_settings *s, size_t limit);
/* Plans every network for an arena part of `limit` bytes (0: no limit), or, with `least`, each for
 * its own minimum, which an earlier call found. TSR_E_BUDGET when one does not fit; its minimum is
 * told then, too. */
tsr_status tsr_nets_plan(tsr_nets *n, tsr_context *ctx, const tsr_settings *s, size_t limit,
                         bool least);
void tsr_nets_free(tsr_nets *n);
void tsr_nets_unload(tsr_nets *n);          /* no network's weights are in the arena */
size_t tsr_nets_bytes(const tsr_nets *n);   /* arena bytes of the largest network */
size_t tsr_nets_minimum(const tsr_nets *n); /* the same of the smallest plans */
size_t tsr_nets_spill(const tsr_nets *n);   /* bytes of the spill file */
/* Calls fn for every program. */
void tsr_nets_each(tsr_nets *n, void (*fn)(tsr_program *p, void *arg), void *arg);
/* Lays out the state of a run at the given size. */
void tsr_state_layout(tsr_state *st, const tsr_model *m, const tsr_settings *s);
size_t tsr_latent_count(const tsr_settings *s); /* elements of one latent */
/* Binds a network behind the state and reads its weights, unless it is there already. */
tsr_status tsr_net_load(tsr_run *r, tsr_net *net, int32_t phase);

/* phases */
tsr_status tsr_text_run(tsr_run *r); /* text_phase.c */
/* denoise.c: pictures [first, end) together. */
tsr_status tsr_denoise_run(tsr_run *r, int32_t first, int32_t end);
tsr_status tsr_decode_run(tsr_run *r); /* decode.c */
tsr_status tsr_encode_run(tsr_run *r); /* encode.c */
/* Runs the VAE on what `fill` writes into its input, again in float32 where it overflows in half;
 * *out is its output. */
tsr_status tsr_vae_run(tsr_run *r, void (*fill)(const tsr_run *r, float *dst), const void **out);
void *tsr_run_state(const tsr_run *r, size_t offset);
tsr_status tsr_run_progress(tsr_run *r, tsr_phase phase, int32_t step, int32_t n_steps,
                            double seconds);
/* Between two actions of a network: says the last progress again, at times. `run` is the tsr_run.
 */
tsr_status tsr_run_beat(void *run);
double tsr_now(void); /* seconds, monotonic */

/* guidance.c: out = guided prediction of n values from the two halves (classifier-free guidance,
 * and the rescaling of "Common Diffusion Noise Schedules and Sample Steps are Flawed",
 * section 3.4). */
void tsr_guidance(float *out, const float *uncond, const float *cond, size_t n, float scale,
                  float rescale);

/* memory_device.c: what changes where the networks run on a device. */
/* The device of the run; NULL: the networks run in the host's memory. */
const tsr_device *tsr_run_device(const tsr_run *r);
/* Bytes that a reservation on the device takes. */
size_t tsr_device_bytes(size_t bytes);
/* The device's free memory with what this process holds there, less a margin. */
size_t tsr_run_device_budget(const tsr_run *r);
/* Host memory at the peak; TSR_E_BUDGET when the host's budget is smaller. */
tsr_status tsr_run_plan_host(tsr_run *r);
tsr_status tsr_run_reserve_device(tsr_run *r);
/* Runs every library's plan once; *grown: they took more than was planned with, now it is known. */
tsr_status tsr_run_try_device(tsr_run *r, bool *grown);
void tsr_run_free_device(tsr_run *r);
void tsr_run_measure_device(tsr_run *r, int32_t phase);

/* batch.c */
/* Lanes for `n` pictures of the size that is set. Samplers are new. */
tsr_status tsr_run_make_lanes(tsr_run *r, int32_t n);
void tsr_run_free_lanes(tsr_run *r);
/* Pictures of the next batch, of those from `first` on: as even as batches of at most `most` can
 * be. */
int32_t tsr_batch_size(int32_t n_pictures, int32_t first, int32_t most);
/* The run for `n` pictures together: lanes, the UNet's tape (not its plan), the state. */
tsr_status tsr_run_set_batch(tsr_run *r, int32_t n);
/* Takes the fastest number of pictures by plan, with `budget` for the process (0: no limit). */
tsr_status tsr_run_choose_batch(tsr_run *r, size_t budget);
/* What the UNet does for all pictures of the run. */
tsr_plan_cost tsr_run_unet_cost(const tsr_run *r);
float *tsr_run_lane_latents(const tsr_run *r, int32_t lane); // [C,h,w]

/* memory_plan.c */
/* Code, heap and stacks of this process. */
size_t tsr_run_host_base(const tsr_run *r);
size_t tsr_run_image_bytes(const tsr_settings *s); /* of encoding the picture */
tsr_status tsr_run_plan_least(tsr_run *r);         /* the smallest plans, and the minimum budget */
tsr_status tsr_run_plan_memory(tsr_run *r); /* the fastest plans that fit; refuses what does not */
/* What the process takes at most from here on, with the arena as it is. */
size_t tsr_run_footprint(const tsr_run *r);
void tsr_run_measure(tsr_run *r, int32_t phase);
void tsr_run_release_network(tsr_run *r);
tsr_status tsr_run_check_budget(tsr_run *r); /* measured above the budget: TSR_E_INTERNAL */

/* replan.c */
size_t tsr_run_ask_budget(const tsr_run *r); /* the default budget, as it is now */
/* Before `phase`: plans the rest of the run again where others have taken memory. TSR_E_BUDGET when
 * nothing fits any more. */
tsr_status tsr_run_replan(tsr_run *r, int32_t phase);

/* ladder.c */
/* Nothing exact fits: takes the largest smaller size that does, and says so. */
tsr_status tsr_run_degrade(tsr_run *r);
/* The run was refused: adds to that sentence the largest size that fits. TSR_E_BUDGET; the run is
 * of no more use. */
tsr_status tsr_run_say_largest(tsr_run *r);
/* The largest size of the same aspect that fits the budget; 0 when none does. Leaves the run as it
 * was. */
tsr_status tsr_run_largest(tsr_run *r, int32_t *width, int32_t *height);

/* ops.c: from now on every op is timed, when the run was asked to. */
tsr_status tsr_run_time_ops(tsr_run *r);

/* record.c */
tsr_status tsr_record_reserve(tsr_run *r);
void tsr_record_write(tsr_run *r, int32_t picture);
void tsr_record_degradations(tsr_buf *b, const tsr_run *r); /* a JSON list */

/* The type of the tapes that only ask for every tensor. */
tsr_dtype tsr_model_check_dtype(const tsr_model *m);
/* The type that the VAE is run in, in a run in `dtype`. */
tsr_dtype tsr_model_vae_dtype(const tsr_model *m, tsr_dtype dtype);
/* model.c: opening part by part, for tsr_model_open and for the doctor (inspect.c), who goes on
 * after a failure. */
tsr_status tsr_model_new(tsr_context *ctx, const char *path,
                         tsr_model **m); /* nothing opened yet */
tsr_status tsr_model_open_index(tsr_model *m);
tsr_status tsr_model_open_encoder(tsr_model *m, int32_t e);
tsr_status tsr_model_open_tokenizer(tsr_model *m, int32_t e);
tsr_status tsr_model_open_unet(tsr_model *m);
tsr_status tsr_model_open_vae(tsr_model *m);
tsr_status tsr_model_open_scheduler(tsr_model *m);
/* Each records one network at a small size: asks for every tensor that it needs. */
typedef tsr_status (*tsr_model_check_fn)(tsr_model *m, tsr_tape *t);
tsr_status tsr_model_check_text(tsr_model *m, tsr_tape *t);
tsr_status tsr_model_check_text_2(tsr_model *m, tsr_tape *t);
tsr_status tsr_model_check_unet(tsr_model *m, tsr_tape *t);
tsr_status tsr_model_check_decoder(tsr_model *m, tsr_tape *t);
tsr_status tsr_model_check_encoder(tsr_model *m, tsr_tape *t);
const char *tsr_model_family(const tsr_model *m);

#endif
