/* fuzz_worker.c - a worker that sends arbitrary packets to the daemon. Input: u8 (bit 0: no HELLO
 * first; bit 1: the daemon has requested an ENCODE and an EXPORT), then packets: u8 kind, u8 number
 * of body bytes that follow; the rest of the body is zero. If bit 7 of the kind is set, the packet
 * ends after these bytes.
 *
 * The daemon either accepts a packet or disconnects the worker, and serves the next worker. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "daemon/workerlink/worker_host.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PACKETS_MAX = 32, TURNS = 200 };

static uv_loop_t loop;
static struct tw_run run;
static struct tw_layout layout;
static struct tw_worker_host *host;
static char path[64], folder[] = "/tmp/tw-fuzz-XXXXXX";

static void on_event(void *user, const struct tw_event *event) {
    (void)user, (void)event;
}

static void clean_up(void) {
    (void)unlink(path);
    (void)rmdir(folder);
}

static void host_open(void) {
    struct tw_error err;
    TW_ASSERT(mkdtemp(folder) != NULL);
    (void)snprintf(path, sizeof(path), "%s/worker", folder);
    TW_ASSERT(atexit(clean_up) == 0);
    tw_run_defaults(&run);
    TW_ASSERT(tw_run_set(&run, "model.layers", "1", &err) == TW_OK);
    TW_ASSERT(tw_run_set(&run, "model.width", "64", &err) == TW_OK);
    TW_ASSERT(tw_run_set(&run, "model.heads", "2", &err) == TW_OK);
    TW_ASSERT(tw_run_set(&run, "sync.fragments", "2", &err) == TW_OK);
    TW_ASSERT(tw_layout_init(&layout, &run, &err) == TW_OK);
    TW_ASSERT(uv_loop_init(&loop) == 0);
    const struct tw_worker_host_config config = {.loop = &loop,
                                                 .run = &run,
                                                 .layout = &layout,
                                                 .socket_path = path,
                                                 .data_path = "/text",
                                                 .pool_bytes = 1 << 20,
                                                 .events = {.event = on_event}};
    TW_ASSERT(tw_worker_host_create(&host, &config, &err) == TW_OK);
}

/* Sends the packet. If the link is closed, the packet is lost. */
static void say(int fd, struct tw_worker_msg *msg, uint32_t kind, size_t bytes) {
    msg->kind = kind;
    msg->bytes = (uint32_t)bytes;
    (void)send(fd, msg, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (int i = 0; i < 3; i++) (void)uv_run(&loop, UV_RUN_NOWAIT);
}

/* Sends HELLO and READY like an honest worker, so that the daemon accepts its answers. */
static void greet(int fd, bool is_asked) {
    static struct tw_worker_msg msg;
    memset(&msg, 0, sizeof(msg));
    msg.u.hello.version = TW_WORKER_VERSION;
    say(fd, &msg, TW_WMSG_HELLO, tw_worker_msg_bytes(TW_WMSG_HELLO));
    while (host->state == TW_HOST_VERIFYING) (void)uv_run(&loop, UV_RUN_ONCE);
    memset(&msg, 0, sizeof(msg));
    say(fd, &msg, TW_WMSG_READY, tw_worker_msg_bytes(TW_WMSG_READY));
    if (!is_asked) return;
    static struct tw_action action;
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_ENCODE;
    action.u.encode.parts_count = 1;
    action.u.encode.parts[0].count = 1024;
    tw_worker_host_act(host, &action);
    memset(&action, 0, sizeof(action));
    action.kind = TW_ACT_EXPORT;
    tw_worker_host_act(host, &action);
}

static void say_all(int fd, const uint8_t *data, size_t size) {
    static struct tw_worker_msg msg;
    const size_t head = offsetof(struct tw_worker_msg, u);
    for (int i = 0; i < PACKETS_MAX && size >= 2; i++) {
        const uint32_t kind = data[0] & 0x7f;
        size_t given = data[1], bytes = tw_worker_msg_bytes(kind);
        if (given > size - 2) given = size - 2;
        memset(&msg, 0, sizeof(msg));
        memcpy(&msg.u, data + 2, given);
        if ((data[0] & 0x80) != 0 || bytes == 0) bytes = head + given;
        say(fd, &msg, kind, bytes);
        data += 2 + given;
        size -= 2 + given;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    if (host == NULL) host_open();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    TW_ASSERT(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    for (int i = 0; i < TURNS && !host->link.is_poll_open; i++) (void)uv_run(&loop, UV_RUN_NOWAIT);
    TW_ASSERT(host->link.is_poll_open); /* the previous worker did no harm */
    if ((data[0] & 1) == 0) greet(fd, (data[0] & 2) != 0);
    say_all(fd, data + 1, size - 1);
    (void)close(fd);
    while (host->link.is_poll_open || host->is_start_running) (void)uv_run(&loop, UV_RUN_ONCE);
    return 0;
}
