/* gen.c -- the program: everything is in tsr_cli_main, where tests reach it too. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return tsr_cli_main(argc, argv);
}
