/* old_peer.c - a node of another wire version: real TLS, real frames, and one HELLO with
 * versions 7 to 9.
 *
 *     old_peer HOST PORT      prints a line when it listens; serves until it is killed */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/net/handshake.h"
#include "proto/frame.h"

enum { BYTES = 4096 };

/* Sends the bytes that TLS has ready, and passes received bytes to TLS. Returns false if the
 * connection has ended. */
static bool turn(int fd, struct tw_tls *tls) {
    uint8_t bytes[BYTES];
    size_t size;
    while ((size = tw_tls_take(tls, bytes, sizeof(bytes))) > 0)
        if (send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) return false;
    const ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
    return got > 0 && tw_tls_feed(tls, bytes, (size_t)got, NULL) == TW_OK;
}

static void answer(int fd, struct tw_tls *tls, const struct tw_id *id) {
    struct tw_hello hello = {.version_min = 7, .version_max = 9, .boot = 1, .id = *id};
    uint8_t frame[TW_FRAME_HEADER_BYTES + TW_HELLO_BYTES_MAX], heard[BYTES];
    size_t got = 0;
    enum tw_status status;
    while ((status = tw_tls_handshake(tls, NULL)) == TW_AGAIN)
        if (!turn(fd, tls)) return;
    if (status != TW_OK) return;
    /* Waits for the daemon's HELLO. */
    while (tw_tls_read(tls, heard, sizeof(heard), 0, &got, NULL) == TW_AGAIN)
        if (!turn(fd, tls)) return;
    const uint32_t size = tw_hello_encode(&hello, frame + TW_FRAME_HEADER_BYTES);
    tw_frame_header(frame, TW_FRAME_HELLO, 0, frame + TW_FRAME_HEADER_BYTES, size);
    if (tw_tls_write(tls, frame, TW_FRAME_HEADER_BYTES + size, NULL) != TW_OK) return;
    while (turn(fd, tls)) continue; /* until the daemon closes the connection */
}

int main(int argc, char **argv) {
    struct tw_identity identity;
    struct tw_tls_context context;
    struct sockaddr_in name = {.sin_family = AF_INET};
    const int on = 1;
    if (argc != 3 || inet_pton(AF_INET, argv[1], &name.sin_addr) != 1) return 2;
    name.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
    if (tw_identity_ephemeral(&identity, NULL) != TW_OK) return 1;
    if (tw_tls_context_init(&context, &identity, NULL) != TW_OK) return 1;
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(server, (struct sockaddr *)&name, sizeof(name)) != 0 || listen(server, 8) != 0) {
        perror("old_peer");
        return 1;
    }
    (void)puts("listens");
    (void)fflush(stdout);
    for (;;) {
        struct tw_tls tls;
        const int fd = accept(server, NULL, NULL);
        if (fd < 0 || tw_tls_init(&tls, &context, false, NULL, NULL) != TW_OK) continue;
        answer(fd, &tls, &identity.id);
        (void)close(fd);
        tw_tls_deinit(&tls);
    }
}
