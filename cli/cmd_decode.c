/* cmd_decode.c -- gen decode: pictures from final latents, which --save-latents wrote.
 *
 * The run has the decoder alone; everything else (budget, offload, report, interrupts) is as when
 * pictures are made from a prompt. The same latents give the same picture, bit for bit. */
#include "cli/cli.h"

#include <string.h>

#include "cli/out_path.h"

tsr_status tsr_cli_decode(tsr_cli *c)
{
    tsr_options *o = &c->opt;
    tsr_run_desc desc;

    if (!o->out)
        TSR_TRY(tsr_options_set(o, TSR_OPT_OUT, "out/decoded.png", &c->err));
    TSR_TRY(tsr_out_path_check(o->out, &c->err));
    if (strstr(o->out, "{seed}"))
        TSR_FAIL(&c->err, TSR_E_USAGE, "--out \"%s\": latents have no seed; there is {index}",
                 o->out);
    TSR_TRY(tsr_options_set(o, TSR_OPT_LATENTS, o->args[0], &c->err));
    TSR_TRY(tsr_cli_run_desc(c, &desc));
    desc.task = TSR_TASK_DECODE;
    TSR_TRY(tsr_cli_open_model(c));
    return tsr_cli_make_pictures(c, &desc, NULL);
}
