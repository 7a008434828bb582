/* sybil.c - a guest of a run with an owner makes many ids, and tries its files for them.
 *
 *     sybil MANIFEST STATE_DIR PORT COUNT
 *
 * STATE_DIR is that of the guest, which must not run. First the guest itself says HELLO to the node
 * at PORT, which must let it in. Then COUNT fresh ids come in three ways: with the guest's
 * certificates, with one that the guest signed below its own, and with one that it signed below its
 * inviter's. Prints how many were let in; exits with status 0 if all were refused as not admitted.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "proto/hello.h"
#include "proto/run/run.h"
#include "tests/system/attacks/hostile.h"

enum { WAYS = 3, TRIES = 1000, PAUSE_MS = 100 };

static struct tw_id read_run(const char *path) {
    static char text[TW_MANIFEST_BYTES_MAX];
    static struct tw_run run;
    FILE *const file = fopen(path, "re");
    TW_ASSERT(file != NULL);
    const size_t size = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    TW_ASSERT(tw_run_decode(text, size, &run, NULL) == TW_OK);
    return tw_run_id(&run);
}

/* Says HELLO with certificates: TW_OK if the daemon answers with its own HELLO, the reason of its
 * GOODBYE if it refuses, TW_AGAIN if it hears nobody now. */
static enum tw_status say_hello(const struct hostile_target *target, const struct hostile *like,
                                const struct tw_certs *certs, const struct tw_identity *signer,
                                unsigned way) {
    static struct hostile h;
    uint8_t bytes[8 + TW_CERTS_MAX * TW_CERT_BYTES], text[TW_CERT_SIGNED_BYTES];
    struct tw_certs shown = *certs;
    struct tw_hello hello;
    struct tw_frame frame;
    struct tw_goodbye goodbye;
    if (!hostile_open(&h, target, like)) return TW_AGAIN;
    if (way > 0) {
        struct tw_cert *const made = &shown.certs[0];
        if (way == 1) shown.certs[1] = certs->certs[0];
        made->may = TW_CERT_TRAIN;
        made->node = h.identity.id;
        made->issuer = tw_public_key(signer->key);
        tw_cert_signed(made, text);
        tw_sign(signer->key, text, sizeof(text), made->signature);
    }
    hostile_hello(&h, target, TW_ROLE_CONTROL, NULL, &hello);
    tw_put_u64(bytes, (uint64_t)time(NULL));
    const uint32_t size = 8 + (uint32_t)tw_certs_encode(&shown, bytes + 8);
    tw_extensions_add(&hello.extensions, TW_EXTENSION_CERTIFICATES, bytes, size);
    tw_hello_prove(&hello, target->secret, h.ekm);
    enum tw_status status = TW_AGAIN;
    if (hostile_say(&h, &hello) && hostile_next(&h, 10, &frame) == TW_OK) {
        if (frame.kind == TW_FRAME_HELLO) status = TW_OK;
        if (frame.kind == TW_FRAME_GOODBYE &&
            tw_goodbye_decode(frame.body, frame.body_bytes, &goodbye, NULL) == TW_OK)
            status = goodbye.status;
    }
    hostile_close(&h);
    return status;
}

int main(int argc, char **argv) {
    static const struct tw_secret none; /* runs with an owner prove 32 zero bytes */
    static struct hostile guest;
    struct hostile_target target = {.secret = &none};
    struct tw_certs certs;
    char path[512];
    unsigned in = 0, refused = 0, tries = 0;
    TW_ASSERT(argc == 5);
    target.run = read_run(argv[1]);
    target.port = (uint16_t)atoi(argv[3]);
    (void)snprintf(path, sizeof(path), "%s/identity.key", argv[2]);
    TW_ASSERT(tw_identity_open(path, &guest.identity, NULL) == TW_OK);
    (void)snprintf(path, sizeof(path), "%s/%s", argv[2], TW_CERT_FILE);
    TW_ASSERT(tw_certs_load(path, &certs, NULL) == TW_OK && certs.count == TW_CERTS_MAX);
    if (say_hello(&target, &guest, &certs, NULL, 0) != TW_OK) {
        (void)printf("the guest itself is refused, so the others show nothing\n");
        return 2;
    }
    const unsigned count = WAYS * (unsigned)atoi(argv[4]);
    while (in + refused < count && tries++ < TRIES) {
        const enum tw_status status =
            say_hello(&target, NULL, &certs, &guest.identity, (in + refused) % WAYS);
        in += status == TW_OK;
        refused += status == TW_NOT_ADMITTED;
        if (status == TW_AGAIN) (void)poll(NULL, 0, PAUSE_MS); /* the limit of new connections */
    }
    (void)printf("the guest is let in; of further ids %u are let in, %u refused\n", in, refused);
    tw_identity_close(&guest.identity);
    return in == 0 && refused == count ? 0 : 1;
}
