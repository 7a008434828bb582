#include "worker/merge/request.h"

enum tw_status tw_request_fragment(const struct tw_shm *shm, uint32_t fragment,
                                   struct tw_error *err) {
    if (fragment < shm->fragments_count) return TW_OK;
    return tw_fail(err, TW_PROTO, "fragment %u of %u", fragment, shm->fragments_count);
}

int64_t tw_request_fragment_of(const struct tw_worker_msg *msg) {
    switch (msg->kind) {
    case TW_WMSG_ENCODE: return msg->u.encode.fragment;
    case TW_WMSG_APPLY: return msg->u.apply.fragment;
    case TW_WMSG_SOLO: return msg->u.solo.fragment;
    case TW_WMSG_PAIR_ENCODE: return msg->u.pair_encode.fragment;
    case TW_WMSG_PAIR_APPLY: return msg->u.pair_apply.fragment;
    case TW_WMSG_EXPORT: return msg->u.export.fragment;
    case TW_WMSG_LOAD: return msg->u.load.fragment;
    default: return -1;
    }
}

enum tw_status tw_request_range(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                                uint64_t count, struct tw_error *err) {
    const uint64_t elements = tw_shm_fragment_elements(shm, fragment);
    if (begin <= elements && count <= elements - begin) return TW_OK;
    return tw_fail(err, TW_PROTO, "part [%llu, +%llu) of fragment %u with %llu elements",
                   (unsigned long long)begin, (unsigned long long)count, fragment,
                   (unsigned long long)elements);
}

enum tw_status tw_request_part(const struct tw_shm *shm, uint32_t fragment, uint64_t begin,
                               uint64_t count, uint64_t *end, struct tw_error *err) {
    TW_TRY(tw_request_range(shm, fragment, begin, count, err));
    if (begin != *end) {
        return tw_fail(err, TW_PROTO,
                       "a part of fragment %u begins at %llu, the one before ends at "
                       "%llu",
                       fragment, (unsigned long long)begin, (unsigned long long)*end);
    }
    *end = begin + count;
    return TW_OK;
}

enum tw_status tw_request_whole(const struct tw_shm *shm, uint32_t fragment, uint64_t end,
                                struct tw_error *err) {
    const uint64_t elements = tw_shm_fragment_elements(shm, fragment);
    if (end == elements) return TW_OK;
    return tw_fail(err, TW_PROTO, "parts of fragment %u end at %llu of %llu elements", fragment,
                   (unsigned long long)end, (unsigned long long)elements);
}

enum tw_status tw_request_span(const struct tw_shm *shm, const struct tw_span *span,
                               uint8_t **bytes, struct tw_error *err) {
    /* An empty span has no place in the pool, so any valid offset serves. */
    const uint64_t offset = span->bytes > 0 ? span->offset : shm->geometry.pool;
    *bytes = tw_shm_pool(shm, offset, span->bytes);
    if (*bytes != NULL) return TW_OK;
    return tw_fail(err, TW_PROTO, "span of %u bytes at %llu lies outside the pool", span->bytes,
                   (unsigned long long)span->offset);
}

enum tw_status tw_request_payload(const struct tw_shm *shm, const struct tw_codec *codec,
                                  const struct tw_span *span, uint64_t count,
                                  struct tw_error *err) {
    uint8_t *bytes;
    TW_TRY(tw_request_span(shm, span, &bytes, err));
    if (codec->check(bytes, span->bytes, (size_t)count) == TW_OK) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "a payload of %u bytes is not %llu elements in %s", span->bytes,
                   (unsigned long long)count, codec->name);
}
