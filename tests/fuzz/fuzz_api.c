/* fuzz_api.c - arbitrary bytes as requests to the local API of the daemon, in one piece or, if the
 * first byte is odd, in two. Every answer is HTTP, and the next client is served. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/assert.h"
#include "daemon/api/api.h"
#include "tests/daemon/api/view_sample.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TURNS = 64, ANSWER_BYTES = 256 * 1024 };

static uv_loop_t loop;
static struct tw_api *api;
static char path[64], folder[] = "/tmp/tw-fuzz-XXXXXX";

static void fill(void *user, struct tw_status_view *view) {
    (void)user;
    view_sample(view);
}

static void verb(void *user, enum tw_api_verb kind, uint32_t ticket) {
    static const char *const names[] = {"uses", "expires_s", "address", "ticket", "upload", "node"};
    size_t length = 0;
    (void)user, (void)kind;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *const value = tw_api_argument(api, ticket, names[i]);
        length += value != NULL ? strlen(value) : 0;
    }
    tw_api_answer(api, ticket, length % 2 == 0 ? TW_OK : TW_CONFIG, "done");
}

static void clean_up(void) {
    (void)unlink(path);
    (void)rmdir(folder);
}

static void api_open(void) {
    struct tw_error err;
    TW_ASSERT(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof(path), "%s/api", folder);
    TW_ASSERT(atexit(clean_up) == 0);
    TW_ASSERT(uv_loop_init(&loop) == 0);
    const struct tw_api_config config = {
        .loop = &loop, .socket_path = path, .fill = fill, .verb = verb, .manifest = "[run]\n"};
    TW_ASSERT(tw_api_open(&api, &config, &err) == TW_OK);
}

static int client_open(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TW_ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    return fd;
}

static void say(int fd, const void *data, size_t size) {
    (void)send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (int i = 0; i < 4; i++) (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* Runs some turns of the loop. Returns the number of bytes of the answer that have arrived. */
static size_t hear(int fd, char *answer) {
    size_t bytes = 0;
    for (int i = 0; i < TURNS && bytes < ANSWER_BYTES; i++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        const ssize_t got = recv(fd, answer + bytes, ANSWER_BYTES - bytes, MSG_DONTWAIT);
        if (got == 0) break;
        bytes += got > 0 ? (size_t)got : 0;
    }
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char answer[ANSWER_BYTES];
    static const char question[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (size == 0) return 0;
    if (api == NULL) api_open();
    const size_t first = (data[0] & 1) != 0 ? size / 2 : size - 1;
    int fd = client_open();
    say(fd, data + 1, first);
    say(fd, data + 1 + first, size - 1 - first);
    (void)shutdown(fd, SHUT_WR);
    const size_t bytes = hear(fd, answer);
    TW_ASSERT(bytes < 7 || memcmp(answer, "HTTP/1.", 7) == 0);
    (void)close(fd);
    fd = client_open();
    say(fd, question, sizeof(question) - 1);
    TW_ASSERT(hear(fd, answer) > 12 && memcmp(answer, "HTTP/1.1 200", 12) == 0);
    (void)close(fd);
    for (int i = 0; i < TURNS; i++) (void)uv_run(&loop, UV_RUN_NOWAIT);
    return 0;
}
