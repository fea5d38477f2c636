/* e2e.h -- one case of the reference's whole pipeline calls, and running it through tessera.h.
 *
 * A case is an entry of a manifest ("golden/e2e/<name>.safetensors": {"case": {...}}), in the
 * reference's own words: model, seed, call arguments, and the scheduler's class with overrides.
 * Overrides have no options in gen, so a model directory is made in a temporary place: links to the
 * model's parts beside a scheduler config that is merged as diffusers' from_config does it. */
#ifndef TSR_TESTS_E2E_H
#define TSR_TESTS_E2E_H

#include <cjson/cJSON.h>

#include "tessera.h"
#include "tests/support/golden.h"

typedef struct e2e_case {
    char name[64];
    const cJSON *spec; /* the "case" object */
    char model_dir[4096];
} e2e_case;

/* The manifest of a golden root (<root>/manifest.json), or NULL (fails nothing). Free with
 * cJSON_Delete. */
cJSON *e2e_manifest(const char *root);
/* The next text-to-image case; *item walks the manifest and starts as NULL. */
bool e2e_next(cJSON *manifest, cJSON **item, const char *root, e2e_case *c);
/* The descriptor of a case. Strings belong to the manifest. */
tsr_run_desc e2e_desc(const e2e_case *c);
/* A picture file as RGB; free with free(). NULL when it is not there. */
uint8_t *e2e_read_png(const char *path, int32_t *width, int32_t *height);
double e2e_psnr(const uint8_t *a, const uint8_t *b, size_t n);

#endif
