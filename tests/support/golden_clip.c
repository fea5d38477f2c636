/* golden_clip.c -- see golden_clip.h. */
#include "tests/support/golden_clip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool golden_clip_open(golden_clip *c, const char *dir)
{
    char path[4200];

    memset(c, 0, sizeof *c);
    snprintf(path, sizeof path, "%s/config.json", dir);
    return golden_ok(tsr_clip_config_load(path, &c->cfg, NULL, &c->err), &c->err) &&
           golden_ok(tsr_component_open(&c->comp, dir, "text_encoder", "model", &c->err), &c->err);
}

void golden_clip_close(golden_clip *c)
{
    tsr_component_close(&c->comp);
}

/* Reads the rows of the token table straight into the program, as the pipeline does. */
static bool put_embeds(golden_net *net, golden_clip *c, const tsr_clip_io *io, const int32_t *ids,
                       int32_t n_ids)
{
    float *row = malloc((size_t)c->cfg.width * sizeof *row);
    bool ok = row && golden_ok(tsr_clip_read_embeds(&c->comp, &c->cfg, ids, n_ids, net->tape.dtype,
                                                    tsr_program_data(&net->program, io->embeds),
                                                    row, &net->err),
                               &net->err);
    free(row);
    return ok;
}

bool golden_clip_forward(golden_net *net, golden_clip *c, const golden_job *job,
                         const tsr_clip_shape *shape, const float *ids, tsr_clip_io *io)
{
    int32_t n_ids = shape->n * shape->s, *whole = malloc((size_t)n_ids * sizeof *whole);
    bool ok = whole;

    golden_net_init(net, job->dtype);
    c->comp.err = &net->err;
    for (int32_t i = 0; ok && i < n_ids; i++)
        whole[i] = (int32_t)ids[i];
    ok = ok &&
         golden_ok(tsr_clip_build(&net->tape, &c->comp, &c->cfg, shape, io, job->taps, job->n_taps),
                   &net->err) &&
         golden_net_plan(net, job->tier, job->n_threads, job->window_rows) &&
         put_embeds(net, c, io, whole, n_ids);
    for (int32_t i = 0; ok && io->eot && i < shape->n; i++)
        ((int32_t *)tsr_program_data(&net->program, io->eot))[i] =
            tsr_clip_eot(&c->cfg, whole + i * shape->s, shape->s);
    free(whole);
    return ok && golden_net_run(net, true, 0) && golden_net_run(net, false, 0);
}
