/* request.h - checks that the ranges of a request of the daemon lie inside the model and the pool.
 * If not, the checks return TW_PROTO with the numbers, and the request is refused without effect.
 */
#ifndef TW_WORKER_MERGE_REQUEST_H
#define TW_WORKER_MERGE_REQUEST_H

#include <stdint.h>

#include "base/status.h"
#include "compress/codec.h"
#include "proto/shm.h"
#include "proto/worker_msg.h"

enum tw_status tw_request_fragment(const struct tw_shm *shm, uint32_t fragment,
                                   struct tw_error *err);

/* Returns the fragment that a request names, unchecked, or -1 if the request has none. */
int64_t tw_request_fragment_of(const struct tw_worker_msg *msg);

/* Checks that [begin, begin + count) lies in the fragment, which must be valid. */
enum tw_status tw_request_range(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                                uint64_t count, struct tw_error *err);

/* Checks the range like tw_request_range, and that the part begins at *end; then sets *end to the
 * part's end. Called for each part in order, starting with *end = 0, it ensures that parts are
 * adjacent. tw_request_whole then checks that the last part reaches the end of the fragment. */
enum tw_status tw_request_part(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                               uint64_t count, uint64_t *end, struct tw_error *err);
enum tw_status tw_request_whole(const struct tw_shm *shm, uint32_t fragment, uint64_t end,
                                struct tw_error *err);

/* Sets *bytes to the span's span->bytes bytes in the pool, borrowed. */
enum tw_status tw_request_span(const struct tw_shm *shm, const struct tw_span *span,
                               uint8_t **bytes, struct tw_error *err);

/* Checks that the payload decodes to `count` finite values. Errors: TW_PROTO for an invalid span,
 * TW_CORRUPT for the payload. */
enum tw_status tw_request_payload(const struct tw_shm *shm, const struct tw_codec *codec,
                                  const struct tw_span *span, uint64_t count, struct tw_error *err);

#endif
