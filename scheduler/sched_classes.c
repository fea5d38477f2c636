/* sched_classes.c -- the scheduler classes: their names, what each knows, their own defaults.
 *
 * Source: the constructors' signatures in diffusers 0.42. A file made for one class may be read as
 * another (from_config): then the keys that the new class does not know are as if absent, and what
 * is absent has the new class's default, which is why defaults stand here and not in one place for
 * all. dpmpp_2m and dpmpp_2m_sde are one class; KDPM2AncestralDiscreteScheduler and the rest of
 * diffusers' schedulers are not supported and are refused by name. */
#include "scheduler/scheduler_config.h"

#include <string.h>

enum {
    ALPHAS = TSR_KNOWS_SPACING | TSR_KNOWS_ZERO_SNR | TSR_KNOWS_CLIP | TSR_KNOWS_THRESHOLD |
             TSR_KNOWS_SAMPLE,
    SOLVERS = TSR_KNOWS_TABLES | TSR_KNOWS_THRESHOLD | TSR_KNOWS_SOLVER | TSR_KNOWS_SAMPLE
};

static const tsr_sched_class_info classes[TSR_SCHED_N_CLASSES] = {
    [TSR_SCHED_DDIM] = {.class_name = "DDIMScheduler",
                        .name = "ddim",
                        .knows = ALPHAS | TSR_KNOWS_ALPHA_ONE,
                        .beta_start = 0.0001,
                        .beta_end = 0.02,
                        .spacing = TSR_SPACING_LEADING,
                        .clip_sample = true,
                        .alpha_one = true},
    [TSR_SCHED_DDPM] = {.class_name = "DDPMScheduler",
                        .name = "ddpm",
                        .knows = ALPHAS,
                        .beta_start = 0.0001,
                        .beta_end = 0.02,
                        .spacing = TSR_SPACING_LEADING,
                        .clip_sample = true},
    [TSR_SCHED_PNDM] = {.class_name = "PNDMScheduler",
                        .name = "pndm",
                        .knows = TSR_KNOWS_SPACING | TSR_KNOWS_ALPHA_ONE,
                        .beta_start = 0.0001,
                        .beta_end = 0.02,
                        .spacing = TSR_SPACING_LEADING},
    [TSR_SCHED_LMS] = {.class_name = "LMSDiscreteScheduler",
                       .name = "lms",
                       .knows = TSR_KNOWS_SPACING | TSR_KNOWS_TABLES | TSR_KNOWS_SAMPLE,
                       .beta_start = 0.0001,
                       .beta_end = 0.02},
    [TSR_SCHED_EULER] = {.class_name = "EulerDiscreteScheduler",
                         .name = "euler",
                         .knows = TSR_KNOWS_SPACING | TSR_KNOWS_TABLES | TSR_KNOWS_SAMPLE |
                                  TSR_KNOWS_ZERO_SNR | TSR_KNOWS_FINAL_SIGMA,
                         .beta_start = 0.0001,
                         .beta_end = 0.02},
    [TSR_SCHED_EULER_A] = {.class_name = "EulerAncestralDiscreteScheduler",
                           .name = "euler_a",
                           .knows = TSR_KNOWS_SPACING | TSR_KNOWS_ZERO_SNR,
                           .beta_start = 0.0001,
                           .beta_end = 0.02},
    [TSR_SCHED_HEUN] = {.class_name = "HeunDiscreteScheduler",
                        .name = "heun",
                        .knows = TSR_KNOWS_SPACING | TSR_KNOWS_TABLES | TSR_KNOWS_SAMPLE |
                                 TSR_KNOWS_CLIP,
                        .beta_start = 0.00085,
                        .beta_end = 0.012},
    [TSR_SCHED_DPM2] = {.class_name = "KDPM2DiscreteScheduler",
                        .name = "dpm2",
                        .knows = TSR_KNOWS_SPACING | TSR_KNOWS_TABLES,
                        .beta_start = 0.00085,
                        .beta_end = 0.012},
    [TSR_SCHED_DPMPP_2S] = {.class_name = "DPMSolverSinglestepScheduler",
                            .name = "dpmpp_2s",
                            .knows = SOLVERS | TSR_KNOWS_FINAL_SIGMA,
                            .beta_start = 0.0001,
                            .beta_end = 0.02},
    [TSR_SCHED_DPMPP_2M] = {.class_name = "DPMSolverMultistepScheduler",
                            .name = "dpmpp_2m",
                            .knows = SOLVERS | TSR_KNOWS_SPACING | TSR_KNOWS_ZERO_SNR |
                                     TSR_KNOWS_FINAL_SIGMA,
                            .beta_start = 0.0001,
                            .beta_end = 0.02,
                            .lower_order_final = true},
    [TSR_SCHED_UNIPC] = {.class_name = "UniPCMultistepScheduler",
                         .name = "unipc",
                         .knows = SOLVERS | TSR_KNOWS_SPACING | TSR_KNOWS_ZERO_SNR |
                                  TSR_KNOWS_FINAL_SIGMA,
                         .beta_start = 0.0001,
                         .beta_end = 0.02,
                         .lower_order_final = true},
    [TSR_SCHED_DEIS] = {.class_name = "DEISMultistepScheduler",
                        .name = "deis",
                        .knows = SOLVERS | TSR_KNOWS_SPACING,
                        .beta_start = 0.0001,
                        .beta_end = 0.02,
                        .lower_order_final = true},
    [TSR_SCHED_LCM] = {.class_name = "LCMScheduler",
                       .name = "lcm",
                       .knows = ALPHAS | TSR_KNOWS_ALPHA_ONE,
                       .beta_start = 0.00085,
                       .beta_end = 0.012,
                       .beta_schedule = TSR_BETAS_SCALED_LINEAR,
                       .spacing = TSR_SPACING_LEADING,
                       .alpha_one = true},
};

static const char *const names[] = {"ddim",         "ddpm",  "pndm", "lms",      "euler",
                                    "euler_a",      "heun",  "dpm2", "dpmpp_2s", "dpmpp_2m",
                                    "dpmpp_2m_sde", "unipc", "deis", "lcm",      NULL};

const tsr_sched_class_info *tsr_sched_class_get(tsr_sched_class id)
{
    return &classes[id];
}

bool tsr_sched_class_find(const char *class_name, tsr_sched_class *id)
{
    for (int32_t i = 0; i < TSR_SCHED_N_CLASSES; i++) {
        if (strcmp(classes[i].class_name, class_name) == 0) {
            *id = (tsr_sched_class)i;
            return true;
        }
    }
    return false;
}

bool tsr_sched_class_by_name(const char *name, tsr_sched_class *id, bool *sde)
{
    *sde = strcmp(name, "dpmpp_2m_sde") == 0;
    for (int32_t i = 0; i < TSR_SCHED_N_CLASSES; i++) {
        if (strcmp(classes[i].name, *sde ? "dpmpp_2m" : name) == 0) {
            *id = (tsr_sched_class)i;
            return true;
        }
    }
    return false;
}

const char *const *tsr_sched_names(void)
{
    return names;
}
