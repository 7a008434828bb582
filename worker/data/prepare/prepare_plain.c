/* prepare_plain.c - implements prepare.h in a build without the libraries for compression: every
 * call fails. */
#include "worker/data/prepare/prepare.h"

enum tw_status tw_prepare(const struct tw_prepare_options *options,
                          struct tw_prepare_summary *summary, struct tw_error *err) {
    (void)options;
    (void)summary;
    return tw_fail(
        err, TW_CONFIG,
        "this program was built without zlib and zstd, which prepare needs: build it with "
        "them, or prepare on another machine");
}
