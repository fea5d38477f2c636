/* run_example.c -- docs/example.c does what it says: exit 0 and a picture of the right size. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/micro_model.h"
#include "tests/support/test.h"

static void example__small_model__writes_a_picture(void)
{
    const char *model = micro_model(&(micro_options){0}), *dir = test_temp_dir();
    char command[8192], path[4096], magic[3] = "";
    int width = 0, height = 0;
    FILE *f;

    REQUIRE(model != NULL);
    snprintf(path, sizeof path, "%s/fox.ppm", dir);
    snprintf(command, sizeof command, TSR_BINARY_DIR "/docs/example %s 'a red fox' %s 2>%s/log",
             model, path, dir);
    CHECK(system(command) == 0);
    f = fopen(path, "rb");
    REQUIRE(f != NULL);
    CHECK(fscanf(f, "%2s %d %d", magic, &width, &height) == 3);
    CHECK(strcmp(magic, "P6") == 0 && width == 16 && height == 16);
    fclose(f);
}

int main(void)
{
    RUN(example__small_model__writes_a_picture);
    return test_end();
}
