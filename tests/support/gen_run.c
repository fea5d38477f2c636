/* gen_run.c -- see gen_run.h. */
#include "tests/support/gen_run.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

#define STB_IMAGE_IMPLEMENTATION
#include <stb_image.h>

enum { MAX_ARGS = 32 };

gen_state gen_result;

void gen_setup(const char *binary, const char *dir, const char *model)
{
    gen_result.binary = binary;
    gen_result.dir = dir;
    gen_result.model = model;
}

static void redirect(const char *name, int to, int flags)
{
    int fd = open(name, flags, 0666);

    if (fd < 0 || dup2(fd, to) < 0)
        _exit(99);
    close(fd);
}

void gen_read(const char *name, char text[GEN_MAX_OUTPUT])
{
    char *path = tsr_path_join(gen_result.dir, name);
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, GEN_MAX_OUTPUT - 1, f) : 0;

    text[n] = 0;
    if (f)
        fclose(f);
    tsr_free(path);
}

void gen_write(const char *name, const char *text)
{
    char *path = tsr_path_join(gen_result.dir, name);
    FILE *f = fopen(path, "wb");

    if (f) {
        fputs(text, f);
        fclose(f);
    }
    tsr_free(path);
}

void gen_remove(const char *name)
{
    char *path = tsr_path_join(gen_result.dir, name);

    unlink(path);
    tsr_free(path);
}

pid_t gen_start(char *const *argv)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    if (chdir(gen_result.dir) != 0)
        _exit(99);
    redirect("stdin", 0, O_RDONLY | O_CREAT);
    redirect("stdout", 1, O_WRONLY | O_CREAT | O_TRUNC);
    redirect("stderr", 2, O_WRONLY | O_CREAT | O_TRUNC);
    execv(gen_result.binary, argv);
    _exit(98);
}

void gen_finish(pid_t pid)
{
    int status = 0;

    (void)waitpid(pid, &status, 0);
    gen_result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    gen_read("stdout", gen_result.out);
    gen_read("stderr", gen_result.err);
}

void gen(const char *first, ...)
{
    char *argv[MAX_ARGS + 2] = {(char *)"gen"};
    int argc = 1;
    va_list args;

    va_start(args, first);
    for (const char *a = first; a && argc <= MAX_ARGS; a = va_arg(args, const char *))
        argv[argc++] = (char *)(strcmp(a, "MODEL") == 0 ? gen_result.model : a);
    va_end(args);
    gen_finish(gen_start(argv));
}

bool gen_exists(const char *name)
{
    char *path = tsr_path_join(gen_result.dir, name);
    bool there = tsr_path_is_file(path);

    tsr_free(path);
    return there;
}

uint8_t *gen_load(const char *name, int *width, int *height)
{
    char *path = tsr_path_join(gen_result.dir, name);
    uint8_t *rgb = stbi_load(path, width, height, NULL, 3);

    tsr_free(path);
    return rgb;
}

bool gen_same_pixels(const char *a, const char *b)
{
    int aw = 0, ah = 0, bw = 1, bh = 1;
    uint8_t *x = gen_load(a, &aw, &ah), *y = gen_load(b, &bw, &bh);
    bool same = x && y && aw == bw && ah == bh && memcmp(x, y, (size_t)aw * (size_t)ah * 3) == 0;

    stbi_image_free(x);
    stbi_image_free(y);
    return same;
}

bool gen_one_sentence(void)
{
    const char *end = strchr(gen_result.err, '\n');

    return strncmp(gen_result.err, "gen: error: ", 12) == 0 && end && !end[1];
}

bool gen_same_bytes(const char *a, const char *b)
{
    char *paths[2] = {tsr_path_join(gen_result.dir, a), tsr_path_join(gen_result.dir, b)};
    char *text[2] = {NULL, NULL};
    size_t len[2] = {0, 1};
    bool same;

    for (int i = 0; i < 2; i++) {
        (void)tsr_file_slurp(paths[i], (size_t)1 << 28, &text[i], &len[i], NULL);
        tsr_free(paths[i]);
    }
    same = text[0] && text[1] && len[0] == len[1] && memcmp(text[0], text[1], len[0]) == 0;
    tsr_free(text[0]);
    tsr_free(text[1]);
    return same;
}
