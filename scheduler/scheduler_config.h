/* scheduler_config.h -- every field that a diffusers scheduler class reads, resolved and checked.
 *
 * The thirteen classes share most fields; each class knows a subset (sched_classes.c) and the
 * others keep values that change nothing. Numbers stay double, as Python has them: the beta and
 * sigma tables are made from them in the reference's own order of roundings. */
#ifndef TSR_SCHEDULER_SCHEDULER_CONFIG_H
#define TSR_SCHEDULER_SCHEDULER_CONFIG_H

#include "scheduler/scheduler.h"

typedef enum tsr_sched_class {
    TSR_SCHED_DDIM,
    TSR_SCHED_DDPM,
    TSR_SCHED_PNDM,
    TSR_SCHED_LMS,
    TSR_SCHED_EULER,
    TSR_SCHED_EULER_A,
    TSR_SCHED_HEUN,
    TSR_SCHED_DPM2,
    TSR_SCHED_DPMPP_2S,
    TSR_SCHED_DPMPP_2M,
    TSR_SCHED_UNIPC,
    TSR_SCHED_DEIS,
    TSR_SCHED_LCM,
    TSR_SCHED_N_CLASSES
} tsr_sched_class;

/* The first words in the order of sched_config_read.c. */
typedef enum tsr_beta_schedule {
    TSR_BETAS_LINEAR,
    TSR_BETAS_SCALED_LINEAR,
    TSR_BETAS_SQUAREDCOS,
    TSR_BETAS_LAPLACE,
    TSR_BETAS_SIGMOID,
    TSR_BETAS_EXP
} tsr_beta_schedule;
typedef enum tsr_sched_algorithm {
    TSR_ALG_DPM,
    TSR_ALG_DPMPP,
    TSR_ALG_SDE_DPM,
    TSR_ALG_SDE_DPMPP
} tsr_sched_algorithm;
typedef enum tsr_sched_solver { TSR_SOLVER_MIDPOINT, TSR_SOLVER_HEUN } tsr_sched_solver;
typedef enum tsr_sched_variance {
    TSR_VARIANCE_FIXED_SMALL,
    TSR_VARIANCE_FIXED_SMALL_LOG,
    TSR_VARIANCE_FIXED_LARGE
} tsr_sched_variance;

enum { TSR_SCHED_MAX_TRAIN = 100000, TSR_SCHED_MAX_ORDER = 4, TSR_SCHED_MAX_UNCORRECTED = 64 };

struct tsr_sched_config {
    tsr_sched_class class_id;
    /* the training schedule */
    int32_t n_train;
    double beta_start, beta_end;
    tsr_beta_schedule beta_schedule;
    float *trained_betas; /* [n_train], owned; NULL: made from the three above */
    bool zero_snr;        /* rescale_betas_zero_snr */
    /* which timesteps and sigmas */
    tsr_spacing spacing;
    int32_t steps_offset;
    tsr_sigma_table sigmas;
    double sigma_min, sigma_max; /* 0: the table's own ends */
    bool final_sigma_min;        /* final_sigmas_type "sigma_min", else zero */
    bool log_linear;             /* Euler's interpolation_type */
    bool continuous;             /* Euler's timestep_type; changes v_prediction only */
    double lambda_min_clipped;   /* -infinity: nothing is clipped */
    /* what the model predicts, and what is done to x0 */
    tsr_prediction prediction;
    bool clip_sample, thresholding;
    float clip_range, threshold_ratio, sample_max;
    /* one class, or a few */
    bool alpha_one;              /* set_alpha_to_one */
    float eta;                   /* DDIM */
    tsr_sched_variance variance; /* DDPM */
    bool skip_prk;               /* PNDM */
    int32_t original_steps;      /* LCM: original_inference_steps */
    float timestep_scaling;      /* LCM */
    int32_t solver_order;
    tsr_sched_algorithm algorithm; /* DPM-Solver */
    tsr_sched_solver solver;       /* DPM-Solver */
    bool bh1;                      /* UniPC: B(h) = h, else expm1(h) */
    bool predict_x0;               /* UniPC */
    bool lower_order_final, euler_at_final;
    int32_t n_uncorrected; /* UniPC's disable_corrector: steps whose result is not corrected */
    int32_t uncorrected[TSR_SCHED_MAX_UNCORRECTED];
};

/* What a class reads beside the training schedule and prediction_type. */
enum {
    TSR_KNOWS_SPACING = 1 << 0, /* timestep_spacing, steps_offset */
    TSR_KNOWS_ZERO_SNR = 1 << 1,
    TSR_KNOWS_CLIP = 1 << 2,
    TSR_KNOWS_THRESHOLD = 1 << 3,
    TSR_KNOWS_ALPHA_ONE = 1 << 4,
    TSR_KNOWS_TABLES = 1 << 5, /* use_karras_sigmas and its kin */
    TSR_KNOWS_FINAL_SIGMA = 1 << 6,
    TSR_KNOWS_SOLVER = 1 << 7, /* solver_order, solver_type, lower_order_final */
    TSR_KNOWS_SAMPLE = 1 << 8  /* prediction_type "sample" */
};

typedef struct tsr_sched_class_info {
    const char *class_name; /* "EulerDiscreteScheduler" */
    const char *name;       /* "euler" */
    uint32_t knows;
    double beta_start, beta_end; /* this and below: the class's own defaults */
    tsr_beta_schedule beta_schedule;
    tsr_spacing spacing;
    bool clip_sample, alpha_one, lower_order_final;
} tsr_sched_class_info;

const tsr_sched_class_info *tsr_sched_class_get(tsr_sched_class id);
bool tsr_sched_class_find(const char *class_name, tsr_sched_class *id);
/* Reads what the class (cfg->class_id) knows. */
struct tsr_cfg;
tsr_status tsr_sched_config_read(tsr_sched_config *cfg, struct tsr_cfg *c, bool sigmas_asked);
/* By the command line's name; *sde says whether it was dpmpp_2m_sde. */
bool tsr_sched_class_by_name(const char *name, tsr_sched_class *id, bool *sde);

#endif
