/* thinwire-engine data prepare | info | weigh: work on training data, without a model. */
#include <stdio.h>
#include <string.h>

#include "base/nearest.h"
#include "worker/cli/engine_verb.h"

static const struct {
    const char *name;
    enum tw_exit (*run)(int argc, char **argv);
} VERBS[] = {
    {"prepare", engine_prepare},
    {"info", engine_info},
    {"weigh", engine_weigh},
};
enum { VERBS_COUNT = sizeof(VERBS) / sizeof(VERBS[0]) };

enum tw_exit engine_data(int argc, char **argv) {
    const char *const word = argc > 2 ? argv[2] : NULL;
    const char *names[VERBS_COUNT];
    for (unsigned i = 0; i < VERBS_COUNT; i++) {
        names[i] = VERBS[i].name;
        if (word != NULL && strcmp(word, names[i]) == 0) return VERBS[i].run(argc, argv);
    }
    const char *const near = word != NULL ? tw_nearest(word, names, VERBS_COUNT) : NULL;
    if (near != NULL) {
        (void)fprintf(stderr, "thinwire: data: did you mean `data %s`?\n", near);
    } else {
        (void)fputs(
            "thinwire: data: `data prepare INPUT... --out DIR` makes a dataset, `data info "
            "PATH` shows the contents of a text or a dataset; `thinwire help data` tells more\n",
            stderr);
    }
    return TW_EXIT_USAGE;
}
