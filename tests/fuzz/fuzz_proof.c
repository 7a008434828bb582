/* fuzz_proof.c - proofs of decided rounds, and knocks, from untrusted sources.
 *
 * The first byte selects one of the two. A proof that decodes must be canonical, and name only
 * members that a roster can have. Arbitrary bytes are never a valid knock (daemon/auth/tickets.h):
 * without the key, nobody can compute one. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/auth/tickets.h"
#include "proto/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_proof(const uint8_t *data, size_t size) {
    static struct tw_proof proof;
    static uint8_t again[TW_PROOF_BYTES_MAX];
    struct tw_error err = {0};
    if (tw_proof_decode(data, size, &proof, &err) != TW_OK) {
        TW_ASSERT(err.message[0] != '\0');
        return;
    }
    TW_ASSERT(tw_proof_encode(&proof, again) == size);
    TW_ASSERT(memcmp(again, data, size) == 0);
    TW_ASSERT(size == 0 || (proof.ballot != 0 && proof.voters != 0));
}

static void fuzz_knock(const uint8_t *data, size_t size) {
    static const uint8_t secret[32] = {1};
    const struct tw_knock_key key = {.bytes = secret, .size = sizeof(secret), .run = {{2}}};
    static struct tw_knocks knocks;
    char name[TW_KNOCK_NAME_BYTES];
    TW_ASSERT(!tw_knock_is_of(&key, (const char *)data, size, 1795000000));
    if (size < TW_KNOCK_NAME_BYTES - 1) return;
    memcpy(name, data, sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)tw_knocks_add(&knocks, name);
    TW_ASSERT(!tw_knocks_add(&knocks, name)); /* no digits, or seen */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (data[0] % 2 == 0)
        fuzz_proof(data + 1, size - 1);
    else
        fuzz_knock(data + 1, size - 1);
    return 0;
}
