/* megatron.h - token files of Megatron-LM: X.bin holds the tokens, X.idx where each sequence lies
 * and which begin a document. Any size: the index is read where it is asked, not into memory. */
#ifndef TW_WORKER_DATA_MEGATRON_H
#define TW_WORKER_DATA_MEGATRON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct tw_megatron {
    int fd; /* of X.idx */
    char *index_path, *tokens_path;
    uint32_t token_bytes;
    bool is_signed;
    uint64_t tokens_count, tokens_file_bytes;
    uint64_t sequences_count, documents_count;
};

/* Whether `path` is X.idx or X.bin of a pair, or X of one. */
bool tw_megatron_is_pair(const char *path);

/* TW_DATA: not of this format, numbers that are no integers, or files that do not fit together. */
enum tw_status tw_megatron_open(struct tw_megatron *pair, const char *path, struct tw_error *err);
void tw_megatron_close(struct tw_megatron *pair); /* zero-initialised is closed */

/* First token of document i <= documents_count; that of the last is the number of tokens. */
enum tw_status tw_megatron_document(const struct tw_megatron *pair, uint64_t i, uint64_t *first,
                                    struct tw_error *err);

/* First token of the first document that begins at or after `token`, else the number of tokens. */
enum tw_status tw_megatron_boundary(const struct tw_megatron *pair, uint64_t token, uint64_t *first,
                                    struct tw_error *err);

#endif
