/* megatron.h - token files of Megatron-LM. X.bin holds the tokens; X.idx holds the offsets of
 * sequences and the first sequence of each document. Files of any size can be read, because the
 * index is read on demand and not loaded into memory. */
#ifndef TW_WORKER_DATA_MEGATRON_H
#define TW_WORKER_DATA_MEGATRON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct tw_megatron {
    int fd; /* descriptor of X.idx */
    char *index_path, *tokens_path;
    uint32_t token_bytes;
    bool is_signed;
    uint64_t tokens_count, tokens_file_bytes;
    uint64_t sequences_count, documents_count;
};

/* Whether `path` is X.idx or X.bin of a pair, or its common prefix X. */
bool tw_megatron_is_pair(const char *path);

/* Fails with TW_DATA if the format is another one, the tokens are not integers, or the files do not
 * match. */
enum tw_status tw_megatron_open(struct tw_megatron *pair, const char *path, struct tw_error *err);
void tw_megatron_close(struct tw_megatron *pair); /* a zero-initialised pair is allowed */

/* Sets *first to the first token of document i <= documents_count. For i = documents_count, this is
 * the number of tokens. */
enum tw_status tw_megatron_document(const struct tw_megatron *pair, uint64_t i, uint64_t *first,
                                    struct tw_error *err);

/* Sets *first to the first token of the first document that begins at or after `token`, or to the
 * number of tokens if no document does. */
enum tw_status tw_megatron_boundary(const struct tw_megatron *pair, uint64_t token, uint64_t *first,
                                    struct tw_error *err);

#endif
