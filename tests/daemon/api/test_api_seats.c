/* Tests many simultaneous clients of the local API, over real sockets and in one thread. */
#include "tests/test.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/api/api.h"
#include "view_sample.h"

enum { CLIENTS = 40 };

static uv_loop_t loop;
static struct tw_api *api;
static char folder[64], socket_path[96];
static int clients[CLIENTS];

static void fill(void *user, struct tw_status_view *view) {
    view_sample(view);
}

static void verb(void *user, enum tw_api_verb kind, uint32_t number) {
    (void)user, (void)kind;
    tw_api_answer(api, number, TW_OK, "done");
}

static void open_api(uint64_t request_us) {
    const struct tw_api_config config = {.loop = &loop,
                                         .socket_path = socket_path,
                                         .request_us = request_us,
                                         .fill = fill,
                                         .verb = verb};
    struct tw_error err = {0};
    assert_int_equal(tw_api_open(&api, &config, &err), TW_OK);
    assert_int_equal(chmod(folder, 0711) | chmod(socket_path, 0666), 0);
}

static void turn(unsigned turns) {
    for (unsigned i = 0; i < turns; i++) (void)uv_run(&loop, UV_RUN_NOWAIT);
}

static int start(void **state) {
    memcpy(folder, "/tmp/tw_seats_XXXXXX", 21);
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(socket_path, sizeof(socket_path), "%s/thinwired.sock", folder);
    for (unsigned i = 0; i < CLIENTS; i++) clients[i] = -1;
    return uv_loop_init(&loop);
}

static int stop(void **state) {
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (clients[i] >= 0) (void)close(clients[i]);
    }
    tw_api_close(api);
    api = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0) return 1;
    return rmdir(folder);
}

#define FACT(name) TEST_IN(start, stop, name)

static int dial(void) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    memcpy(to.sun_path, socket_path, strlen(socket_path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) abort();
    return fd;
}

/* The raw system call changes the user of this thread only. */
static void *dial_as_stranger(void *fd) {
    if (syscall(SYS_setresuid, 65534, 65534, 65534) != 0) abort();
    *(int *)fd = dial();
    return NULL;
}

static int dial_stranger(void) {
    pthread_t thread;
    int fd = -1;
    assert_int_equal(pthread_create(&thread, NULL, dial_as_stranger, &fd), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return fd;
}

static void say(int fd, const char *text) {
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

/* Runs a few turns of the loop and reads from `fd`. Returns the HTTP status of the response, 0
 * if there is none, or -1 if the server closed the connection. */
static int answer(int fd) {
    static char reply[256 * 1024];
    int code = 0;
    for (unsigned i = 0; i < 200; i++) {
        turn(1);
        const ssize_t n = recv(fd, reply, sizeof(reply) - 1, MSG_DONTWAIT);
        if (n == 0) return -1;
        if (n < 0) continue;
        reply[n] = 0;
        assert_int_equal(sscanf(reply, "HTTP/1.1 %d", &code), 1);
        return code;
    }
    return 0;
}

static int ask(int fd, const char *method, const char *path) {
    char request[128];
    (void)snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, path);
    say(fd, request);
    return answer(fd);
}

FACT(it_hears_again_when_too_many_clients_have_gone) {
    open_api(0);
    for (unsigned i = 0; i < CLIENTS; i++) clients[i] = dial();
    turn(20);
    for (unsigned i = 0; i < CLIENTS; i++) {
        (void)close(clients[i]);
        clients[i] = -1;
    }
    for (unsigned i = 0; i < 3; i++) {
        clients[i] = dial();
        assert_int_equal(ask(clients[i], "GET", "/v1/status"), 200);
    }
}

FACT(a_waiting_owner_is_served_when_a_seat_is_free) {
    open_api(0);
    for (unsigned i = 0; i <= TW_API_OWNERS_MAX; i++) clients[i] = dial();
    turn(20);
    assert_int_equal(ask(clients[TW_API_OWNERS_MAX], "GET", "/v1/status"), 0);
    (void)close(clients[3]);
    clients[3] = -1;
    assert_int_equal(answer(clients[TW_API_OWNERS_MAX]), 200);
    assert_int_equal(ask(clients[0], "POST", "/v1/pause"), 200); /* no client was disconnected */
}

FACT(guests_do_not_shut_the_owner_out) {
    if (geteuid() != 0) skip();
    open_api(0);
    for (unsigned i = 0; i < CLIENTS - 1; i++) {
        clients[i] = dial_stranger();
        say(clients[i], "GET /v1/sta");
        turn(2);
    }
    clients[CLIENTS - 1] = dial();
    assert_int_equal(ask(clients[CLIENTS - 1], "POST", "/v1/leave"), 200);
}

FACT(the_guest_with_the_least_time_left_makes_room) {
    if (geteuid() != 0) skip();
    open_api(0);
    for (unsigned i = 0; i < TW_API_GUESTS_MAX; i++) {
        clients[i] = dial_stranger();
        turn(2);
        (void)poll(NULL, 0, 1); /* the loop's clock has millisecond resolution */
    }
    assert_int_equal(ask(clients[0], "GET", "/v1/status"), 200); /* renews its deadline */
    clients[CLIENTS - 1] = dial_stranger();
    assert_int_equal(ask(clients[CLIENTS - 1], "GET", "/v1/status"), 200);
    assert_int_equal(answer(clients[1]), -1);
    assert_int_equal(ask(clients[0], "GET", "/v1/status"), 200);
    assert_int_equal(ask(clients[2], "GET", "/v1/status"), 200);
}

FACT(a_client_that_is_never_silent_has_its_time_too) {
    open_api(40 * 1000);
    clients[0] = dial();
    const uint64_t begin_ns = uv_hrtime();
    int code = 0;
    unsigned said = 0;
    say(clients[0], "GET /v1/status HTTP/1.1\r\nX: ");
    while (code == 0 && uv_hrtime() - begin_ns < UINT64_C(5000000000)) {
        (void)poll(NULL, 0, 1);
        say(clients[0], "y");
        said++;
        code = answer(clients[0]);
    }
    assert_int_equal(code, -1);
    assert_true(said > 3);
    clients[1] = dial();
    assert_int_equal(ask(clients[1], "GET", "/v1/status"), 200);
}

FACT(a_client_that_does_not_read_has_its_time_too) {
    open_api(40 * 1000);
    for (unsigned i = 0; i < TW_API_OWNERS_MAX; i++) {
        const int small = 2048;
        clients[i] = dial();
        (void)setsockopt(clients[i], SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
        for (unsigned k = 0; k < 100; k++)
            say(clients[i], "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    turn(20);
    clients[CLIENTS - 1] = dial();
    say(clients[CLIENTS - 1], "GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n");
    const uint64_t begin_ns = uv_hrtime();
    int code = 0;
    while (code == 0 && uv_hrtime() - begin_ns < UINT64_C(5000000000)) {
        (void)poll(NULL, 0, 1);
        code = answer(clients[CLIENTS - 1]);
    }
    assert_int_equal(code, 200);
}
