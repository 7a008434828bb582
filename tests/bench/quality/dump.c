/* dump.c - writes the arrays of a case to files of raw float32. */
#include "tests/bench/quality/dump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/outer.h"

enum { PATH_BYTES = 512, TAIL_BYTES = 64 };

static FILE *file_create(const char *folder, const struct node *node, const char *tail,
                         struct tw_error *err) {
    char path[PATH_BYTES];
    const int length =
        snprintf(path, sizeof(path), "%s/%s-%s.f32", folder, node->setting->name, tail);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        (void)tw_fail(err, TW_CONFIG, "the name of the dump folder is too long");
        return NULL;
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL) (void)tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    return file;
}

static enum tw_status file_close(FILE *file, bool is_good, struct tw_error *err) {
    if (fclose(file) == 0 && is_good) return TW_OK;
    return tw_fail(err, TW_IO, "a dump could not be written: %s", strerror(errno));
}

enum tw_status dump_delta(const char *folder, const struct node *node, uint64_t round,
                          uint32_t fragment, struct tw_error *err) {
    char tail[TAIL_BYTES];
    struct tw_shm_view view;
    tw_shm_view(&node->shm, fragment, &view);
    const size_t n = (size_t)view.elements;
    (void)snprintf(tail, sizeof(tail), "f%02u-r%05llu", fragment, (unsigned long long)round);
    float *delta = malloc(n * sizeof(*delta));
    if (delta == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu elements", n);
    tw_delta(delta, view.phi, tw_merger_theta(&node->merger, fragment), n);
    FILE *file = file_create(folder, node, tail, err);
    const bool is_good = file != NULL && fwrite(delta, sizeof(*delta), n, file) == n;
    free(delta);
    return file != NULL ? file_close(file, is_good, err) : TW_IO;
}

static enum tw_status dump_array(const char *folder, const struct node *node, bool is_momentum,
                                 struct tw_error *err) {
    FILE *file = file_create(folder, node, is_momentum ? "u" : "phi", err);
    if (file == NULL) return TW_IO;
    bool is_good = true;
    for (uint32_t p = 0; p < node->shm.fragments_count; p++) {
        struct tw_shm_view view;
        tw_shm_view(&node->shm, p, &view);
        const size_t n = (size_t)view.elements;
        is_good = is_good && fwrite(is_momentum ? view.u : view.phi, sizeof(float), n, file) == n;
    }
    return file_close(file, is_good, err);
}

enum tw_status dump_state(const char *folder, const struct node *node, struct tw_error *err) {
    TW_TRY(dump_array(folder, node, false, err));
    return dump_array(folder, node, true, err);
}
