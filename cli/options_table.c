/* options_table.c -- the rows: every command and every option of gen.
 *
 * The order is that of --help and of tsr_option_id. A row whose `ready` is set names the only
 * values that work today ("" for none): the others are recognised, so that a script gets "not
 * there yet" instead of "unknown option". Choice lists stand in the order of the enums of
 * tessera.h where there is one (tier, precision, rng), since the place in the list is the value.
 */
#include "cli/options_internal.h"

#include <stddef.h>

#define ON(c) ((uint32_t)1 << (c))
#define RUNS                                                                                       \
    (ON(TSR_COMMAND_MAKE) | ON(TSR_COMMAND_PLAN) | ON(TSR_COMMAND_BENCH) | ON(TSR_COMMAND_REPLAY))
#define VAE_RUNS (ON(TSR_COMMAND_DECODE) | ON(TSR_COMMAND_ENCODE)) /* the VAE alone */
#define MACHINE (RUNS | VAE_RUNS | ON(TSR_COMMAND_INFO) | ON(TSR_COMMAND_CONVERT))
#define ALL (ON(TSR_COMMAND_COUNT) - 1)
#define AT(member) offsetof(tsr_options, member)

static const char *const schedulers[] = {"ddim",         "ddpm",  "pndm", "lms",      "euler",
                                         "euler_a",      "heun",  "dpm2", "dpmpp_2s", "dpmpp_2m",
                                         "dpmpp_2m_sde", "unipc", "deis", "lcm",      NULL};
static const char *const sigmas[] = {"default", "karras", "exponential", "beta", NULL};
static const char *const predictions[] = {"epsilon", "v_prediction", "sample", NULL};
static const char *const rngs[] = {"torch-cpu", "torch-cuda", NULL};
static const char *const tiers[] = {"auto", "portable", "avx2", "avx512", "avx512fp16", NULL};
static const char *const precisions[] = {"auto", "fp16", "bf16", "fp32", NULL};
static const char *const offloads[] = {"auto", "none", "model", "block", "stream", NULL};

const tsr_command_row tsr_command_table[TSR_COMMAND_COUNT] = {
    [TSR_COMMAND_MAKE] = {"gen", "--prompt TEXT [options]", true, 0, 0, "", "make pictures"},
    [TSR_COMMAND_PLAN] = {"gen plan", "[options]", true, 0, 0, "",
                          "what the same run would need; touches no tensor data"},
    [TSR_COMMAND_INFO] = {"gen info", "MODEL [--json]", true, 0, 1, "",
                          "what a checkpoint is, and what is wrong with it"},
    [TSR_COMMAND_TOKENIZE] = {"gen tokenize", "[--model M] [--json] TEXT...", true, 1, -1,
                              "gen tokenize needs a text (- reads lines of standard input)",
                              "token ids, one line a text; - reads lines of standard input"},
    [TSR_COMMAND_BATCH] = {"gen batch", "FILE.jsonl [options]", false, 1, 1, "",
                           "one picture or set a line, same keys as the options"},
    [TSR_COMMAND_DECODE] = {"gen decode", "LATENTS.safetensors [options]", true, 1, 1,
                            "gen decode needs the file with the latents",
                            "pictures from final latents (what --save-latents wrote)"},
    [TSR_COMMAND_ENCODE] = {"gen encode", "PICTURE --save-latents F [options]", true, 1, 1,
                            "gen encode needs the picture",
                            "latents of a picture (the distribution's mean)"},
    [TSR_COMMAND_CONVERT] = {"gen convert", "MODEL OUT.tsr", true, 2, 2,
                             "gen convert needs a model and the file to write",
                             "a checkpoint in the packed layout, for the fastest streaming"},
    [TSR_COMMAND_BENCH] = {"gen bench", "[--ops] [--model M] [options]", true, 0, 0, "",
                           "measure this machine: kernels, or a whole run"},
    [TSR_COMMAND_REPLAY] = {"gen replay", "PICTURE.png [options]", true, 1, 1,
                            "gen replay needs the picture to make again",
                            "make a picture again from its own metadata"},
};

#define FLAG TSR_KIND_FLAG, RUNS
#define TEXT TSR_KIND_TEXT, RUNS

const tsr_option tsr_option_table[TSR_OPT_COUNT] = {
    [TSR_OPT_MODEL] = {"--model", "PATH", TSR_KIND_TEXT, ALL & ~ON(TSR_COMMAND_CONVERT), AT(model),
                       0, 0, NULL, NULL,
                       "diffusers directory, or what gen convert made of one (default: the "
                       "embedded model)"},
    [TSR_OPT_PROMPT] = {"--prompt", "TEXT", TEXT, AT(prompt), 0, 0, NULL, NULL, "what to draw"},
    [TSR_OPT_PROMPT_FILE] = {"--prompt-file", "F", TEXT, AT(prompt_file), 0, 0, NULL, NULL,
                             "read the prompt from a file; - is standard input"},
    [TSR_OPT_NEGATIVE_PROMPT] = {"--negative-prompt", "TEXT", TEXT, AT(negative_prompt), 0, 0, NULL,
                                 NULL, "what not to draw (default: not given)"},
    [TSR_OPT_PROMPT_2] = {"--prompt-2", "TEXT", TEXT, AT(prompt_2), 0, 0, NULL, NULL,
                          "for the second text encoder (default: the first's)"},
    [TSR_OPT_NEGATIVE_PROMPT_2] = {"--negative-prompt-2", "TEXT", TEXT, AT(negative_prompt_2), 0, 0,
                                   NULL, NULL,
                                   "for the second text encoder (default: the first's)"},
    [TSR_OPT_WIDTH] = {"--width", "N", TSR_KIND_INT, RUNS | ON(TSR_COMMAND_DECODE), AT(width), 8,
                       16384, NULL, NULL,
                       "width in pixels, any from 8 up (default: the model's own)"},
    [TSR_OPT_HEIGHT] = {"--height", "N", TSR_KIND_INT, RUNS | ON(TSR_COMMAND_DECODE), AT(height), 8,
                        16384, NULL, NULL,
                        "height in pixels, any from 8 up (default: the model's own)"},
    [TSR_OPT_ORIGINAL_SIZE] = {"--original-size", "WxH", TSR_KIND_SIZE, RUNS, AT(original_size), 1,
                               65536, NULL, NULL,
                               "SDXL's size condition (default: the picture's size)"},
    [TSR_OPT_CROP] = {"--crop", "X,Y", TSR_KIND_POINT, RUNS, AT(crop), 0, 65536, NULL, NULL,
                      "SDXL's crop condition (default: 0,0)"},
    [TSR_OPT_TARGET_SIZE] = {"--target-size", "WxH", TSR_KIND_SIZE, RUNS, AT(target_size), 1, 65536,
                             NULL, NULL, "SDXL's size condition (default: the picture's size)"},
    [TSR_OPT_FRAMES] = {"--frames", "N", TSR_KIND_INT, RUNS, AT(frames), 1, 1024, NULL, "1",
                        "short clip, for models with a motion module (default: 1)"},
    [TSR_OPT_STEPS] = {"--steps", "N", TSR_KIND_INT, RUNS, AT(steps), 1, 1000, NULL, NULL,
                       "denoising steps (default: the model's card, or 25; LCM 4)"},
    [TSR_OPT_GUIDANCE] = {"--guidance", "X", TSR_KIND_FLOAT, RUNS, AT(guidance), 0, 1000, NULL,
                          NULL,
                          "classifier-free guidance, 1 turns it off (default: the model's card, or "
                          "7.5; SDXL 5; LCM 1)"},
    [TSR_OPT_CFG_SCALE] = {"--cfg-scale", "X", TSR_KIND_FLOAT, RUNS, AT(guidance), 0, 1000, NULL,
                           NULL, "another name of --guidance"},
    [TSR_OPT_GUIDANCE_RESCALE] = {"--guidance-rescale", "X", TSR_KIND_FLOAT, RUNS,
                                  AT(guidance_rescale), 0, 1, NULL, NULL,
                                  "how much of the guided noise's spread is taken back "
                                  "(default: 0)"},
    [TSR_OPT_SCHEDULER] = {"--scheduler", "NAME", TSR_KIND_CHOICE, RUNS, AT(scheduler), 0, 0,
                           schedulers, NULL, "the sampler (default: from the model's config)"},
    [TSR_OPT_SIGMAS] = {"--sigmas", "NAME", TSR_KIND_CHOICE, RUNS, AT(sigmas), 0, 0, sigmas, NULL,
                        "the noise levels' spacing (default: from the model's config)"},
    [TSR_OPT_PREDICTION_TYPE] = {"--prediction-type", "NAME", TSR_KIND_CHOICE, RUNS,
                                 AT(prediction_type), 0, 0, predictions, NULL,
                                 "what the UNet predicts (default: from the model's config)"},
    [TSR_OPT_ETA] = {"--eta", "X", TSR_KIND_FLOAT, RUNS, AT(eta), 0, 1, NULL, NULL,
                     "noise added by ddim, 0 to 1 (default: 0)"},
    [TSR_OPT_CLIP_SKIP] = {"--clip-skip", "N", TSR_KIND_INT, RUNS, AT(clip_skip), 0, 64, NULL, NULL,
                           "layers of the text encoder to leave out (default: 0)"},
    [TSR_OPT_SEED] = {"--seed", "N", TSR_KIND_U64, RUNS, AT(seed), 0, 0, NULL, NULL,
                      "of the first picture (default: random, printed)"},
    [TSR_OPT_RNG] = {"--rng", "NAME", TSR_KIND_CHOICE, RUNS, AT(rng), 0, 0, rngs, NULL,
                     "noise as torch makes it (default: torch-cpu)"},
    [TSR_OPT_NUM] = {"--num", "N", TSR_KIND_INT, RUNS, AT(num), 1, 100000, NULL, NULL,
                     "pictures, from seeds seed, seed+1, ... (default: 1)"},
    [TSR_OPT_OUT] = {"--out", "PATH", TSR_KIND_TEXT, RUNS | ON(TSR_COMMAND_DECODE), AT(out), 0, 0,
                     NULL, NULL,
                     "where to write; {seed} and {index} are replaced (default: out/{seed}.png)"},
    [TSR_OPT_LATENTS] = {"--latents", "F", TEXT, AT(latents), 0, 0, NULL, NULL,
                         "safetensors with the start noise, tensor latents [N,C,h,w]"},
    [TSR_OPT_SAVE_LATENTS] = {"--save-latents", "F", TSR_KIND_TEXT, RUNS | ON(TSR_COMMAND_ENCODE),
                              AT(save_latents), 0, 0, NULL, NULL,
                              "write the final latents to a safetensors file"},
    [TSR_OPT_INIT_IMAGE] = {"--init-image", "F", TEXT, AT(init_image), 0, 0, NULL, "",
                            "image to image"},
    [TSR_OPT_STRENGTH] = {"--strength", "X", TSR_KIND_FLOAT, RUNS, AT(strength), 0, 1, NULL, "",
                          "how far to go from the start image"},
    [TSR_OPT_MASK] = {"--mask", "F", TEXT, AT(mask), 0, 0, NULL, "", "where to paint"},
    [TSR_OPT_VAE] = {"--vae", "PATH", TEXT, AT(vae), 0, 0, NULL, "", "replaces the checkpoint's"},
    [TSR_OPT_BACKEND] = {"--backend", "NAME", TSR_KIND_BACKEND, MACHINE, AT(backend), 0, 0, NULL,
                         NULL, "auto, cpu, cuda[:N] or cuda-sim (default: auto)"},
    [TSR_OPT_THREADS] = {"--threads", "N", TSR_KIND_INT, MACHINE, AT(threads), 1, 256, NULL, NULL,
                         "threads to work with (default: one for each CPU that may be used)"},
    [TSR_OPT_CPU_TIER] = {"--cpu-tier", "NAME", TSR_KIND_CHOICE, MACHINE, AT(cpu_tier), 0, 0, tiers,
                          NULL, "instructions to use (default: the fastest there are)"},
    [TSR_OPT_PRECISION] = {"--precision", "NAME", TSR_KIND_CHOICE,
                           RUNS | VAE_RUNS | ON(TSR_COMMAND_CONVERT), AT(precision), 0, 0,
                           precisions, "auto fp16 fp32",
                           "storage of weights and activations "
                           "(default: auto)"},
    [TSR_OPT_BUDGET] = {"--budget", "SIZE", TSR_KIND_BYTES, RUNS | VAE_RUNS, AT(budget), 0, 0, NULL,
                        NULL,
                        "hard cap on the memory of the run: 512M, 1.5G, 60% (default: what is "
                        "free, less a margin)"},
    [TSR_OPT_HOST_BUDGET] = {"--host-budget", "SIZE", TSR_KIND_BYTES, RUNS, AT(host_budget), 0, 0,
                             NULL, NULL, "hard cap on host memory in GPU runs"},
    [TSR_OPT_STRICT] = {"--strict", NULL, FLAG, AT(strict), 0, 0, NULL, NULL,
                        "refuse rather than lower frames or size"},
    [TSR_OPT_OFFLOAD] = {"--offload", "NAME", TSR_KIND_CHOICE, RUNS | VAE_RUNS, AT(offload), 0, 0,
                         offloads, NULL,
                         "where weights are while a phase runs (default: auto, the fastest that "
                         "fits)"},
    [TSR_OPT_TILE] = {"--tile", "ROWS", TSR_KIND_ROWS, RUNS | VAE_RUNS, AT(tile), 1, 16384, NULL,
                      NULL, "rows that the decoder computes at once (default: auto)"},
    [TSR_OPT_SPILL_DIR] = {"--spill-dir", "DIR", TSR_KIND_TEXT, RUNS | VAE_RUNS, AT(spill_dir), 0,
                           0, NULL, NULL,
                           "where activations go that do not fit (default: the cache "
                           "directory)"},
    [TSR_OPT_JSON] = {"--json", NULL, TSR_KIND_FLAG,
                      ON(TSR_COMMAND_PLAN) | ON(TSR_COMMAND_INFO) | ON(TSR_COMMAND_TOKENIZE) |
                          ON(TSR_COMMAND_BENCH),
                      AT(json), 0, 0, NULL, NULL, "machine-readable output"},
    [TSR_OPT_SWEEP] = {"--sweep", NULL, TSR_KIND_FLAG, ON(TSR_COMMAND_PLAN), AT(sweep), 0, 0, NULL,
                       NULL, "budget against time and size, from the least to the fastest"},
    [TSR_OPT_PLOT] = {"--plot", "F.svg", TSR_KIND_TEXT, ON(TSR_COMMAND_PLAN), AT(plot), 0, 0, NULL,
                      NULL, "the sweep, drawn to a file as well"},
    [TSR_OPT_DEVICES] = {"--devices", NULL, TSR_KIND_FLAG, ON(TSR_COMMAND_INFO), AT(devices), 0, 0,
                         NULL, NULL, "what can be computed on"},
    [TSR_OPT_OPS] = {"--ops", NULL, TSR_KIND_FLAG, ON(TSR_COMMAND_BENCH), AT(ops), 0, 0, NULL, NULL,
                     "measure every kind of op of a run against what this machine can do"},
    [TSR_OPT_REPORT] = {"--report", "F.json", TSR_KIND_TEXT, RUNS | VAE_RUNS, AT(report), 0, 0,
                        NULL, NULL, "write everything that was resolved, planned and measured"},
    [TSR_OPT_QUIET] = {"--quiet", NULL, TSR_KIND_FLAG, ALL, AT(quiet), 0, 0, NULL, NULL,
                       "print errors and results only"},
    [TSR_OPT_VERBOSE] = {"--verbose", NULL, TSR_KIND_FLAG, ALL, AT(verbose), 0, 0, NULL, NULL,
                         "print details of what is done"},
    [TSR_OPT_NO_PROGRESS] = {"--no-progress", NULL, TSR_KIND_FLAG,
                             RUNS | VAE_RUNS | ON(TSR_COMMAND_CONVERT), AT(no_progress), 0, 0, NULL,
                             NULL, "no progress line"},
    [TSR_OPT_HELP] = {"--help", NULL, TSR_KIND_FLAG, ALL, AT(help), 0, 0, NULL, NULL,
                      "print this and exit"},
    [TSR_OPT_VERSION] = {"--version", NULL, TSR_KIND_FLAG, ALL, AT(version), 0, 0, NULL, NULL,
                         "print the version and exit"},
};
