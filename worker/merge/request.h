/* request.h - is what the daemon asks for inside the model and inside the pool? TW_PROTO with the
 * numbers when it is not: the request is refused and nothing happens. */
#ifndef TW_WORKER_MERGE_REQUEST_H
#define TW_WORKER_MERGE_REQUEST_H

#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"

enum tw_status tw_request_fragment(const struct tw_shm *shm, uint32_t fragment,
                                   struct tw_error *err);

/* The fragment a request works on, as it says; -1 where it works on none. */
int64_t tw_request_fragment_of(const struct tw_worker_msg *msg);

/* [begin, begin + count) lies in the (valid) fragment. */
enum tw_status tw_request_range(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                                uint64_t count, struct tw_error *err);

/* ... and begins at *end; then *end := its end. Called in a row with *end = 0 at first, parts
 * follow each other; tw_request_whole says whether the last of them reached the end of the
 * fragment. */
enum tw_status tw_request_part(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                               uint64_t count, uint64_t *end, struct tw_error *err);
enum tw_status tw_request_whole(const struct tw_shm *shm, uint32_t fragment, uint64_t end,
                                struct tw_error *err);

/* *bytes: the span's address in the pool; borrowed, span->bytes of it. */
enum tw_status tw_request_span(const struct tw_shm *shm, const struct tw_span *span,
                               uint8_t **bytes, struct tw_error *err);

/* The payload in the span decodes to `count` finite values; else TW_PROTO (span), TW_CORRUPT. */
enum tw_status tw_request_payload(const struct tw_shm *shm, const struct tw_codec *codec,
                                  const struct tw_span *span, uint64_t count, struct tw_error *err);

#endif
