/* thinwire-engine data info: what a training text holds. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/units.h"
#include "worker/engine_verb.h"

enum tw_exit engine_info(int argc, char **argv) {
    struct stat info;
    struct tw_error err;
    char size[TW_UNITS_BYTES];
    if (argc != 4 || argv[3][0] == '-') {
        (void)fputs("thinwire: usage: thinwire data info PATH\n", stderr);
        return TW_EXIT_USAGE;
    }
    if (stat(argv[3], &info) != 0) {
        (void)tw_fail(&err, TW_DATA, "%.150s: %s", argv[3], strerror(errno));
        return engine_fail(&err);
    }
    (void)printf("%s: a file of %s\n", argv[3], tw_units_bytes(size, (double)info.st_size));
    return TW_EXIT_OK;
}
