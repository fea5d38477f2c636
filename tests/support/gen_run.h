/* gen_run.h -- gen as a user runs it: arguments in, exit code, texts and files out.
 *
 * One program under test a process, so its state is one variable. */
#ifndef TSR_TESTS_GEN_RUN_H
#define TSR_TESTS_GEN_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { GEN_MAX_OUTPUT = 65536 };

typedef struct gen_state {
    const char *binary, *dir, *model; /* the program, where it runs, its model */
    int code;                         /* exit code; 128 + the signal's number when it was killed */
    char out[GEN_MAX_OUTPUT], err[GEN_MAX_OUTPUT];
} gen_state;

extern gen_state gen_result;

/* Says which program is run, where, and what "MODEL" stands for. */
void gen_setup(const char *binary, const char *dir, const char *model);
/* gen with these arguments up to NULL; "MODEL" stands for the model's path. */
void gen(const char *first, ...);
/* The same in two halves, with arguments as they are. */
pid_t gen_start(char *const *argv);
void gen_finish(pid_t pid);

/* Files of its folder. */
bool gen_exists(const char *name);
void gen_read(const char *name, char text[GEN_MAX_OUTPUT]);
void gen_write(const char *name, const char *text);
void gen_remove(const char *name);
/* Pixels [height,width,3] of a picture; NULL when it is none. Free with free. */
uint8_t *gen_load(const char *name, int *width, int *height);
bool gen_same_pixels(const char *a, const char *b);
bool gen_same_bytes(const char *a, const char *b);
/* Exactly one line on standard error, and that is the sentence. */
bool gen_one_sentence(void);

#endif
