/* Tests the HTTP listener of the web page: its token, the Host header, the verbs, slow clients
 * and many clients. The sockets are real; everything runs in one thread. */
#include "tests/test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/api/api.h"
#include "view_sample.h"

enum { REPLY_BYTES = 512 * 1024, TURNS_MAX = 100000 };

static uv_loop_t loop;
static struct tw_api *api;
static char folder[64], socket_path[96], reply[REPLY_BYTES], token[80];
static unsigned port, verbs_seen;

static void fill(void *user, struct tw_status_view *view) {
    view_sample(view);
}

static void verb(void *user, enum tw_api_verb kind, uint32_t number) {
    (void)user, (void)kind;
    verbs_seen++;
    tw_api_answer(api, number, TW_OK, "done");
}

static const char *given_token; /* NULL: the API draws one */

static void open_api(const char *web, uint64_t request_us) {
    const struct tw_api_config config = {.loop = &loop,
                                         .socket_path = socket_path,
                                         .web = web,
                                         .web_token = given_token,
                                         .request_us = request_us,
                                         .user = &loop,
                                         .fill = fill,
                                         .verb = verb};
    struct tw_error err = {0};
    assert_int_equal(tw_api_open(&api, &config, &err), TW_OK);
    if (web == NULL) return;
    assert_int_equal(sscanf(tw_api_web_url(api), "http://127.0.0.1:%u/#%79[0-9a-f]", &port, token),
                     2);
    assert_int_equal(strlen(token), 64);
}

static void close_api(void) {
    tw_api_close(api);
    api = NULL;
    (void)uv_run(&loop, UV_RUN_DEFAULT);
}

static int start(void **state) {
    verbs_seen = 0;
    memcpy(folder, "/tmp/tw_web_XXXXXX", 19);
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(socket_path, sizeof(socket_path), "%s/thinwired.sock", folder);
    if (uv_loop_init(&loop) != 0) return 1;
    open_api("127.0.0.1:0", 0);
    return 0;
}

static int stop(void **state) {
    close_api();
    return uv_loop_close(&loop) != 0 || rmdir(folder) != 0;
}

#define FACT(name) TEST_IN(start, stop, name)

static int dial(void) {
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* Runs the loop until the server has closed the connection. Returns the HTTP status, or 0
 * without a response. */
static int read_reply(int fd) {
    size_t used = 0;
    for (unsigned turn = 0; turn < TURNS_MAX; turn++) {
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        const ssize_t n = recv(fd, reply + used, REPLY_BYTES - 1 - used, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) break;
        if (n > 0) used += (size_t)n;
        assert_true(turn + 1 < TURNS_MAX);
    }
    int code = 0;
    reply[used] = '\0';
    (void)close(fd);
    return sscanf(reply, "HTTP/1.1 %d", &code) == 1 ? code : 0;
}

static int ask(const char *method, const char *path, const char *host, const char *more) {
    char request[1024];
    const int n = snprintf(request, sizeof(request),
                           "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", method,
                           path, host, more);
    const int fd = dial();
    assert_int_equal(send(fd, request, (size_t)n, MSG_NOSIGNAL), n);
    return read_reply(fd);
}

static const char *bearer(const char *value) {
    static char line[256];
    (void)snprintf(line, sizeof(line), "Authorization: Bearer %s\r\n", value);
    return line;
}

FACT(the_page_is_served_confined_and_without_a_token) {
    static const char *const FILES[] = {"/", "/page.css", "/page.js", "/icon.svg"};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(ask("GET", FILES[i], "127.0.0.1", ""), 200);
        assert_non_null(strstr(reply, "Content-Security-Policy: default-src 'none'; "));
        assert_non_null(strstr(reply, "frame-ancestors 'none'"));
        assert_null(strstr(reply, "unsafe"));
        assert_non_null(strstr(reply, "X-Content-Type-Options: nosniff"));
        assert_non_null(strstr(reply, "Referrer-Policy: no-referrer"));
        assert_null(strstr(reply, token));
        assert_null(strstr(reply, "attic")); /* reveals nothing about the node */
    }
    assert_int_equal(ask("GET", "/v1/nothing", "127.0.0.1", bearer(token)), 404);
}

FACT(its_data_need_the_token) {
    char other[96];
    assert_int_equal(ask("GET", "/v1/status", "localhost:1", bearer(token)), 200);
    assert_non_null(strstr(reply, "attic"));
    assert_int_equal(ask("GET", "/v1/history", "[::1]:1", bearer(token)), 200);
    static const char *const PATHS[] = {"/v1/status",  "/v1/peers",  "/v1/rounds", "/v1/run",
                                        "/v1/history", "/v1/events", "/metrics",   "/v1/nothing"};
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(ask("GET", PATHS[i], "localhost", ""), 401);
        assert_null(strstr(reply, "attic"));
        assert_non_null(strstr(reply, "thinwire web"));
    }
    for (unsigned i = 0; i < 64; i += 21) {
        (void)snprintf(other, sizeof(other), "%s", token);
        other[i] = other[i] == '0' ? '1' : '0';
        assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(other)), 401);
    }
    (void)snprintf(other, sizeof(other), "%.63s", token);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(other)), 401);
    (void)snprintf(other, sizeof(other), "%.70s0", token);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(other)), 401);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer("")), 401);
    assert_int_equal(ask("GET", "/v1/status", "localhost", "Authorization: Basic eA==\r\n"), 401);
    (void)snprintf(other, sizeof(other), "/v1/status?token=%.50s", token);
    assert_int_equal(ask("GET", other, "localhost", ""), 401);
}

/* A name of another site that resolves to 127.0.0.1, as in DNS rebinding. */
FACT(the_host_of_another_site_is_refused) {
    static const char *const HOSTS[] = {"evil.example", "127.0.0.1.evil.example", "localhost.evil",
                                        "192.0.2.1", ""};
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(ask("GET", "/", HOSTS[i], ""), 403);
        assert_int_equal(ask("GET", "/v1/status", HOSTS[i], bearer(token)), 403);
    }
}

FACT(nothing_can_be_changed_over_it) {
    static const char *const METHODS[] = {"POST", "PUT", "DELETE", "PATCH"};
    for (unsigned i = 0; i < 4; i++) {
        const int code = ask(METHODS[i], "/v1/pause", "localhost", bearer(token));
        assert_true(code == 403 || code == 405);
        assert_int_equal(ask(METHODS[i], "/", "localhost", bearer(token)), 405);
        assert_int_equal(ask(METHODS[i], "/v1/status", "localhost", bearer(token)), 405);
    }
    assert_int_equal(ask("POST", "/v1/web", "localhost", bearer(token)), 403);
    assert_int_equal(verbs_seen, 0);
}

FACT(a_given_token_is_kept_until_it_is_replaced) {
    static const char GIVEN[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
                      NEXT[] = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    close_api();
    given_token = GIVEN;
    open_api("127.0.0.1:0", 0);
    given_token = NULL;
    assert_string_equal(token, GIVEN);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(GIVEN)), 200);
    tw_api_set_web_token(api, NEXT);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(GIVEN)), 401);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(NEXT)), 200);
    assert_string_equal(strchr(tw_api_web_url(api), '#') + 1, NEXT);
}

FACT(the_page_opens_while_the_api_runs) {
    static const char GIVEN[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    struct tw_error err = {0};
    close_api();
    open_api(NULL, 0);
    assert_null(tw_api_web_url(api));
    assert_int_equal(tw_api_open_web(api, "127.0.0.1:0", GIVEN, &err), TW_OK);
    assert_int_equal(sscanf(tw_api_web_url(api), "http://127.0.0.1:%u/#", &port), 1);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(GIVEN)), 200);
}

FACT(a_token_that_is_not_given_is_drawn) {
    char before[80];
    memcpy(before, token, sizeof(before));
    close_api();
    open_api("127.0.0.1:0", 0);
    assert_string_not_equal(before, token);
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(before)), 401);
}

FACT(without_its_address_there_is_no_page) {
    static const char REQUEST[] = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    close_api();
    open_api(NULL, 0);
    assert_null(tw_api_web_url(api));
    memcpy(at.sun_path, socket_path, strlen(socket_path) + 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_true(send(fd, REQUEST, sizeof(REQUEST) - 1, MSG_NOSIGNAL) > 0);
    assert_int_equal(read_reply(fd), 404);
}

FACT(a_huge_header_is_refused) {
    static const char BEGIN[] = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
    static char filling[4096];
    memset(filling, 'a', sizeof(filling));
    const int fd = dial();
    assert_true(send(fd, BEGIN, sizeof(BEGIN) - 1, MSG_NOSIGNAL) > 0);
    for (unsigned i = 0; i < 256; i++) {
        (void)send(fd, filling, sizeof(filling), MSG_NOSIGNAL);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    const int code = read_reply(fd);
    assert_true(code == 0 || code >= 400);
    assert_int_equal(ask("GET", "/", "localhost", ""), 200);
}

/* A client sends a byte whenever it can and never ends its request. */
FACT(a_slow_client_has_its_time_and_no_more) {
    close_api();
    open_api("127.0.0.1:0", 50000);
    const int fd = dial();
    const uint64_t begin = uv_hrtime();
    assert_true(send(fd, "GET / HTTP/1.1\r\nX: ", 19, MSG_NOSIGNAL) > 0);
    ssize_t n = -1;
    while (n != 0) {
        char byte;
        (void)send(fd, "a", 1, MSG_NOSIGNAL);
        (void)uv_run(&loop, UV_RUN_NOWAIT);
        n = recv(fd, &byte, 1, 0);
        if (n < 0 && errno != EAGAIN) n = 0;
        assert_true(uv_hrtime() - begin < UINT64_C(60000000000));
    }
    (void)close(fd);
}

FACT(idle_clients_do_not_shut_others_out) {
    enum { IDLE = 5 * TW_API_GUESTS_MAX };
    int idle[IDLE];
    for (unsigned i = 0; i < IDLE; i++) {
        idle[i] = dial();
        (void)uv_run(&loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(ask("GET", "/v1/status", "localhost", bearer(token)), 200);
    for (unsigned i = 0; i < IDLE; i++) (void)close(idle[i]);
}
