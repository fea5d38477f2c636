/* gen.c -- the program: everything is in tsr_cli_main, where tests reach it too. */
#include "base/alloc.h"
#include "cli/cli.h"

int main(int argc, char **argv)
{
    tsr_alloc_large_apart();
    return tsr_cli_main(argc, argv);
}
