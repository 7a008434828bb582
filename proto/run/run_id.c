/* run_id.c - computes the id of a run. Separate from run.c, because engine-only builds have no
 * SHA-256. */
#include "base/hash.h"
#include "proto/run/run.h"

struct tw_id tw_run_id(const struct tw_run *run) {
    char text[TW_MANIFEST_BYTES_MAX];
    size_t size;
    tw_run_encode(run, text, &size);
    return tw_sha256(text, size);
}
