#include "proto/revoke.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/limits.h"

enum { AT_COUNT = 4, AT_VERSION = 8, AT_MADE = 16, AT_RUN = 24 };

_Static_assert(AT_RUN + 32 == TW_REVOKED_HEAD_BYTES, "the layout of revoke.h");
_Static_assert((int)TW_REVOKED_BYTES_MAX <= (int)TW_CONTROL_BYTES_MAX,
               "a list is one control frame");

static const uint8_t magic[4] = {'T', 'W', 'R', '1'};
static const char signed_domain[] = "thinwire-revocation-v1";

_Static_assert(sizeof(signed_domain) == TW_REVOKED_DOMAIN_BYTES, "with its NUL");

size_t tw_revoked_encode(const struct tw_revoked *list, uint8_t bytes[TW_REVOKED_BYTES_MAX]) {
    TW_ASSERT(list->count <= TW_REVOKED_MAX);
    memcpy(bytes, magic, sizeof(magic));
    tw_put_u32(bytes + AT_COUNT, list->count);
    tw_put_u64(bytes + AT_VERSION, list->version);
    tw_put_u64(bytes + AT_MADE, list->made_s);
    memcpy(bytes + AT_RUN, list->run.bytes, 32);
    size_t at = TW_REVOKED_HEAD_BYTES;
    for (uint32_t i = 0; i < list->count; i++, at += 32)
        memcpy(bytes + at, list->nodes[i].bytes, 32);
    memcpy(bytes + at, list->signature, TW_SIGNATURE_BYTES);
    return at + TW_SIGNATURE_BYTES;
}

enum tw_status tw_revoked_decode(const uint8_t *bytes, size_t size, struct tw_revoked *list,
                                 struct tw_error *err) {
    if (size < TW_REVOKED_HEAD_BYTES + TW_SIGNATURE_BYTES || size > TW_REVOKED_BYTES_MAX)
        return tw_fail(err, TW_PROTO, "revocations: %zu bytes", size);
    const uint32_t count = tw_get_u32(bytes + AT_COUNT);
    if (memcmp(bytes, magic, sizeof(magic)) != 0)
        return tw_fail(err, TW_PROTO, "revocations: they do not start with TWR1");
    if (count > TW_REVOKED_MAX ||
        size != TW_REVOKED_HEAD_BYTES + (size_t)count * 32 + TW_SIGNATURE_BYTES)
        return tw_fail(err, TW_PROTO, "revocations: %zu bytes for %u ids", size, count);
    if (tw_get_u64(bytes + AT_VERSION) == 0)
        return tw_fail(err, TW_PROTO, "revocations: version 0; they begin with 1");
    for (uint32_t i = 1; i < count; i++) {
        const uint8_t *id = bytes + TW_REVOKED_HEAD_BYTES + (size_t)i * 32;
        if (memcmp(id - 32, id, 32) >= 0)
            return tw_fail(err, TW_PROTO, "revocations: id %u is out of order", i);
    }
    memset(list, 0, sizeof(*list));
    list->version = tw_get_u64(bytes + AT_VERSION);
    list->made_s = tw_get_u64(bytes + AT_MADE);
    list->count = count;
    memcpy(list->run.bytes, bytes + AT_RUN, 32);
    memcpy(list->nodes, bytes + TW_REVOKED_HEAD_BYTES, (size_t)count * 32);
    memcpy(list->signature, bytes + size - TW_SIGNATURE_BYTES, TW_SIGNATURE_BYTES);
    return TW_OK;
}

void tw_revoked_signed(const struct tw_revoked *list, uint8_t text[TW_REVOKED_SIGNED_BYTES]) {
    uint8_t head[TW_REVOKED_HEAD_BYTES];
    memcpy(head, magic, sizeof(magic));
    tw_put_u32(head + AT_COUNT, list->count);
    tw_put_u64(head + AT_VERSION, list->version);
    tw_put_u64(head + AT_MADE, list->made_s);
    memcpy(head + AT_RUN, list->run.bytes, 32);
    const struct tw_id digest =
        tw_sha256_pair(head, sizeof(head), list->nodes, (size_t)list->count * 32);
    memcpy(text, signed_domain, TW_REVOKED_DOMAIN_BYTES);
    memcpy(text + TW_REVOKED_DOMAIN_BYTES, digest.bytes, sizeof(digest.bytes));
}

/* ---- nodes on the list ----------------------------------------------------------------------- */

/* Returns the index of the node, or the index at which to insert it. */
static uint32_t place(const struct tw_revoked *list, const struct tw_id *node) {
    uint32_t low = 0, high = list->count;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (tw_id_compare(&list->nodes[middle], node) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool tw_revoked_has(const struct tw_revoked *list, const struct tw_id *node) {
    const uint32_t at = place(list, node);
    return at < list->count && tw_id_equal(&list->nodes[at], node);
}

const struct tw_id tw_revoked_pause_entry = {"thinwire-pause-of-the-whole-run"};

bool tw_revoked_is_paused(const struct tw_revoked *list) {
    return tw_revoked_has(list, &tw_revoked_pause_entry);
}

uint32_t tw_revoked_nodes(const struct tw_revoked *list) {
    return list->count - (tw_revoked_is_paused(list) ? 1 : 0);
}

bool tw_revoked_add(struct tw_revoked *list, const struct tw_id *node) {
    const uint32_t at = place(list, node);
    if (tw_revoked_has(list, node) || list->count == TW_REVOKED_MAX) return false;
    memmove(&list->nodes[at + 1], &list->nodes[at], (list->count - at) * sizeof(*node));
    list->nodes[at] = *node;
    list->count++;
    return true;
}

bool tw_revoked_remove(struct tw_revoked *list, const struct tw_id *node) {
    const uint32_t at = place(list, node);
    if (!tw_revoked_has(list, node)) return false;
    list->count--;
    memmove(&list->nodes[at], &list->nodes[at + 1], (list->count - at) * sizeof(*node));
    memset(&list->nodes[list->count], 0, sizeof(*node));
    return true;
}

enum tw_status tw_revoked_check(const struct tw_revoked *list, const struct tw_certs *certs,
                                struct tw_error *err) {
    char node[9], admitter[9];
    for (uint32_t i = 0; i < certs->count; i++) {
        if (!tw_revoked_has(list, &certs->certs[i].node)) continue;
        tw_id_short(&certs->certs[0].node, node);
        tw_id_short(&certs->certs[i].node, admitter);
        if (i == 0)
            return tw_fail(err, TW_REVOKED, "node %s is on list %llu of the revoked", node,
                           (unsigned long long)list->version);
        return tw_fail(err, TW_REVOKED,
                       "node %s was admitted by node %s, which is on list %llu of the revoked",
                       node, admitter, (unsigned long long)list->version);
    }
    return TW_OK;
}
