/* Tests the local API over real sockets. The test runs the loop; a client thread sends plain
 * HTTP. */
#include <jansson.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/api/api.h"
#include "tests/test.h"
#include "view_sample.h"

enum { REPLY_BYTES = 256 * 1024 };

static uv_loop_t loop;
static uv_async_t client_done;
static struct tw_api *api;
static char folder[64], socket_path[96];

/* when the fake runtime answers a verb */
static enum { AT_ONCE, LATER, NEVER } verb_mode;
static unsigned verbs_seen, port;
static enum tw_api_verb verb_last;
static uint32_t number_last;
static uv_timer_t verb_timer;

static struct client {
    const char *request;
    size_t request_bytes;
    /* hangs_up: closes without reading, after `may_close` is posted */
    bool is_tcp, is_stranger, hangs_up;
    sem_t may_close;
    char reply[REPLY_BYTES];
} client;

static void fill(void *user, struct tw_status_view *view) {
    assert_ptr_equal(user, &loop);
    view_sample(view);
}

static void on_verb_timer(uv_timer_t *timer) {
    tw_api_answer(api, number_last, TW_OK, "done, later");
}

static void verb(void *user, enum tw_api_verb kind, uint32_t number) {
    verbs_seen++;
    verb_last = kind;
    number_last = number;
    if (verb_mode == AT_ONCE) tw_api_answer(api, number, TW_IO, "the disk is full");
    if (verb_mode == LATER) (void)uv_timer_start(&verb_timer, on_verb_timer, 1, 0);
    if (verb_mode == NEVER) uv_stop(&loop);
}

static void *run_client(void *arg) {
    struct client *const c = arg;
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    memcpy(local.sun_path, socket_path, strlen(socket_path) + 1);
    const struct sockaddr_in tcp = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr = {htonl(INADDR_LOOPBACK)}};
    /* The raw system call changes the user of this thread only; glibc's setresuid() changes all
     * threads. */
    if (c->is_stranger && syscall(SYS_setresuid, 65534, 65534, 65534) != 0) abort();
    const int fd = socket(c->is_tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int rc = c->is_tcp ? connect(fd, (const struct sockaddr *)&tcp, sizeof(tcp))
                             : connect(fd, (const struct sockaddr *)&local, sizeof(local));
    size_t used = 0;
    if (rc == 0) {
        /* The server may close early on a refused request, so a short send is no failure. */
        (void)send(fd, c->request, c->request_bytes, MSG_NOSIGNAL);
        ssize_t n = 1;
        if (c->hangs_up) (void)sem_wait(&c->may_close);
        while (!c->hangs_up && n > 0 && used < REPLY_BYTES - 1) {
            n = recv(fd, c->reply + used, REPLY_BYTES - 1 - used, 0);
            if (n > 0) used += (size_t)n;
        }
    }
    c->reply[used] = 0;
    (void)close(fd);
    (void)uv_async_send(&client_done);
    return NULL;
}

static void on_client_done(uv_async_t *async) {
    uv_stop(&loop);
}

/* Sends raw bytes and runs the loop until the client has read the answer. Returns the HTTP status.
 */
static int exchange_bytes(const char *bytes, size_t size) {
    pthread_t thread;
    client.request = bytes;
    client.request_bytes = size;
    assert_int_equal(pthread_create(&thread, NULL, run_client, &client), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    int code = 0;
    if (sscanf(client.reply, "HTTP/1.1 %d", &code) != 1) code = 0;
    return code;
}

static int exchange(const char *method, const char *path) {
    char request[256];
    const int n = snprintf(request, sizeof(request),
                           "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           "Content-Length: 0\r\n\r\n",
                           method, path);
    return exchange_bytes(request, (size_t)n);
}

static const char *body(void) {
    const char *const blank = strstr(client.reply, "\r\n\r\n");
    assert_non_null(blank);
    return blank + 4;
}

static json_t *get(const char *path) {
    json_error_t err;
    assert_int_equal(exchange("GET", path), 200);
    json_t *const json = json_loads(body(), 0, &err);
    if (json == NULL) fail_msg("%s: %s", path, err.text);
    return json;
}

static int open_api(const char *http) {
    const struct tw_api_config config = {.loop = &loop,
                                         .socket_path = socket_path,
                                         .http = http,
                                         .manifest = "thinwire-run 1\nsync.period = 30\n",
                                         .user = &loop,
                                         .fill = fill,
                                         .verb = verb};
    struct tw_error err = {0};
    const enum tw_status status = tw_api_open(&api, &config, &err);
    if (status != TW_OK) print_message("%s\n", err.message);
    return (int)status;
}

static int start(void **state) {
    memset(&client, 0, sizeof(client));
    (void)sem_init(&client.may_close, 0, 0);
    verb_mode = AT_ONCE;
    verbs_seen = 0;
    memcpy(folder, "/tmp/tw_api_XXXXXX", 19);
    if (mkdtemp(folder) == NULL) return 1;
    (void)snprintf(socket_path, sizeof(socket_path), "%s/thinwired.sock", folder);
    if (uv_loop_init(&loop) != 0) return 1;
    if (uv_async_init(&loop, &client_done, on_client_done) != 0) return 1;
    if (uv_timer_init(&loop, &verb_timer) != 0) return 1;
    return open_api(NULL);
}

static void count_handle(uv_handle_t *handle, void *count) {
    ++*(unsigned *)count;
}

static int stop(void **state) {
    unsigned handles = 0;
    tw_api_close(api);
    api = NULL;
    uv_close((uv_handle_t *)&client_done, NULL);
    uv_close((uv_handle_t *)&verb_timer, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    uv_walk(&loop, count_handle, &handles);
    if (handles != 0 || uv_loop_close(&loop) != 0) return 1;
    if (access(socket_path, F_OK) == 0) return 1; /* the socket file is gone */
    return rmdir(folder);
}

#define FACT(name) TEST_IN(start, stop, name)

FACT(status_is_json_with_units_in_its_keys) {
    json_t *const json = get("/v1/status");
    const char *name = NULL, *status = NULL;
    json_int_t steps = 0, cap = 0, mixed = 0, audits = 0, refused = 0;
    double loss = 0, uptime = 0;
    assert_int_equal(json_unpack(json, "{s:s,s:{s:s,s:f},s:{s:I,s:f},s:{s:I},s:{s:I,s:I,s:I}}",
                                 "state", &status, "node", "name", &name, "uptime_s", &uptime,
                                 "train", "steps", &steps, "loss_nats", &loss, "network",
                                 "upload_cap_bytes_per_s", &cap, "sync", "mixed_peers", &mixed,
                                 "audits", &audits, "contributions_refused", &refused),
                     0);
    assert_int_equal(audits, 9);
    assert_int_equal(refused, 5);
    assert_string_equal(name, "attic");
    assert_string_equal(status, "member");
    assert_int_equal(steps, 12000);
    assert_int_equal(cap, 625000);
    assert_int_equal(mixed, 3);
    assert_true(loss > 1.651 && loss < 1.653);
    assert_true(uptime == 7384.0);
    json_decref(json);
}

FACT(dataset_is_shown_by_files_and_bytes) {
    json_t *const json = get("/v1/status");
    const char *name = NULL;
    json_int_t files = 0, whole = 0, in = 0, out = 0, donors = 0;
    double share = 0, rate = 0;
    assert_int_equal(json_unpack(json, "{s:{s:s,s:I,s:I,s:I,s:I,s:I,s:f},s:{s:f}}", "data", "state",
                                 &name, "files", &files, "files_whole", &whole, "in_bytes", &in,
                                 "out_bytes", &out, "donors", &donors, "in_bytes_per_s", &rate,
                                 "train", "token_share_ratio", &share),
                     0);
    assert_string_equal(name, "fetching");
    assert_int_equal(files, 66);
    assert_int_equal(whole, 12);
    assert_int_equal(in, 120000000);
    assert_int_equal(out, 34000000);
    assert_int_equal(donors, 3);
    assert_true(rate == 1250000);
    assert_true(share == 0.252);
    json_decref(json);
}

FACT(lists_have_their_rows) {
    json_t *json = get("/v1/peers");
    assert_int_equal(json_array_size(json_object_get(json, "peers")), 4);
    assert_true(
        json_is_null(json_object_get(json_array_get(json_object_get(json, "peers"), 3), "rtt_us")));
    json_decref(json);
    json = get("/v1/rounds");
    assert_int_equal(json_array_size(json_object_get(json, "rounds")), 3);
    json_decref(json);
    json = get("/v1/events");
    assert_int_equal(json_integer_value(json_object_get(json, "boot")), 7);
    json_t *const events = json_object_get(json, "events"), *const event =
                                                                json_array_get(events, 2);
    assert_int_equal(json_array_size(events), 3);
    assert_int_equal(json_integer_value(json_object_get(event, "id")), 39);
    assert_string_equal(json_string_value(json_object_get(event, "time")),
                        "2026-01-31T10:58:00.000Z");
    json_decref(json);
    json = get("/v1/run");
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "keys"), "sync.period")), "30");
    json_decref(json);
}

FACT(metrics_are_prometheus_text) {
    assert_int_equal(exchange("GET", "/metrics"), 200);
    assert_non_null(strstr(client.reply, "text/plain; version=0.0.4"));
    assert_non_null(strstr(body(), "thinwire_train_steps_total 12000\n"));
}

FACT(wrong_questions_get_right_errors) {
    assert_int_equal(exchange("GET", "/v1/nothing"), 404);
    assert_int_equal(exchange("GET", "/"), 404);
    assert_int_equal(exchange("POST", "/v1/status"), 405);
    assert_int_equal(exchange("GET", "/v1/leave"), 405);
    assert_int_equal(exchange("DELETE", "/v1/checkpoint"), 405);
    assert_int_equal(verbs_seen, 0);
}

FACT(a_verb_that_fails_says_why) {
    assert_int_equal(exchange("POST", "/v1/checkpoint"), 503);
    assert_non_null(strstr(body(), "the disk is full"));
    assert_int_equal(verb_last, TW_API_CHECKPOINT);
}

FACT(a_slow_verb_is_answered_when_it_is_done) {
    static const struct {
        const char *path;
        enum tw_api_verb verb;
    } CASES[] = {{"/v1/leave", TW_API_LEAVE},
                 {"/v1/pause", TW_API_PAUSE},
                 {"/v1/resume", TW_API_RESUME},
                 {"/v1/checkpoint", TW_API_CHECKPOINT}};
    verb_mode = LATER;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(exchange("POST", CASES[i].path), 200);
        assert_non_null(strstr(body(), "done, later"));
        assert_int_equal(verb_last, CASES[i].verb);
    }
    assert_int_equal(verbs_seen, 4);
}

FACT(an_answer_to_a_client_that_left_is_dropped) {
    pthread_t thread;
    static const char REQUEST[] = "POST /v1/pause HTTP/1.1\r\nHost: x\r\n\r\n";
    verb_mode = NEVER;
    client.request = REQUEST;
    client.request_bytes = sizeof(REQUEST) - 1;
    client.hangs_up = true;
    assert_int_equal(pthread_create(&thread, NULL, run_client, &client), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(verbs_seen, 1);
    assert_int_equal(sem_post(&client.may_close), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)uv_run(&loop, UV_RUN_NOWAIT); /* consumes the client's client_done event */
    tw_api_answer(api, number_last, TW_OK, "late");
    client.hangs_up = false;
    assert_int_equal(exchange("GET", "/v1/status"), 200);
    /* the request is already answered: a second answer is ignored */
    tw_api_answer(api, number_last, TW_OK, "twice");
    verb_mode = AT_ONCE;
    assert_int_equal(exchange("POST", "/v1/pause"), 503);
}

FACT(a_used_number_does_not_answer_the_next_client) {
    pthread_t thread;
    static const char REQUEST[] = "POST /v1/leave HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    verb_mode = LATER;
    assert_int_equal(exchange("POST", "/v1/pause"), 200);
    const uint32_t used = number_last;
    verb_mode = NEVER;
    client.request = REQUEST;
    client.request_bytes = sizeof(REQUEST) - 1;
    assert_int_equal(pthread_create(&thread, NULL, run_client, &client), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(verbs_seen, 2);
    assert_int_not_equal(number_last, used);
    tw_api_answer(api, used, TW_OK, "not for you");
    tw_api_answer(api, number_last, TW_OK, "for you");
    tw_api_answer(api, number_last, TW_OK, "too late");
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(strstr(body(), "\"for you\""));
}

FACT(closing_answers_waiting_clients) {
    pthread_t thread;
    static const char REQUEST[] = "POST /v1/leave HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    verb_mode = NEVER;
    client.request = REQUEST;
    client.request_bytes = sizeof(REQUEST) - 1;
    assert_int_equal(pthread_create(&thread, NULL, run_client, &client), 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(verbs_seen, 1);
    tw_api_close(api);
    api = NULL;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(strstr(client.reply, "the daemon is stopping"));
}

FACT(a_request_beyond_the_bound_is_refused) {
    static char request[200 * 1024];
    int n = snprintf(request, sizeof(request),
                     "POST /v1/pause HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Length: 100000\r\n\r\n");
    memset(request + n, 'x', 100000);
    assert_int_equal(exchange_bytes(request, (size_t)n + 100000), 413);
    n = snprintf(request, sizeof(request), "GET /v1/status HTTP/1.1\r\nHost: ");
    memset(request + n, 'x', sizeof(request) - (size_t)n);
    memcpy(request + sizeof(request) - 4, "\r\n\r\n", 4);
    const int code = exchange_bytes(request, sizeof(request));
    assert_true(code == 0 || code == 414 || code == 431 || code == 413);
    assert_int_equal(verbs_seen, 0);
    assert_int_equal(exchange("GET", "/v1/status"), 200); /* the API still answers */
}

FACT(nonsense_does_not_stop_it) {
    uint64_t x = 88172645463325252u;
    for (unsigned round = 0; round < 50; round++) {
        char bytes[300];
        for (size_t i = 0; i < sizeof(bytes) - 4; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[i] = (char)(x >> 32);
        }
        memcpy(bytes + sizeof(bytes) - 4, "\r\n\r\n", 4);
        client.hangs_up = true;
        assert_int_equal(sem_post(&client.may_close), 0);
        (void)exchange_bytes(bytes, sizeof(bytes));
    }
    client.hangs_up = false;
    assert_int_equal(exchange("GET", "/v1/status"), 200);
}

FACT(the_socket_lets_in_owner_and_group_only) {
    struct stat info;
    assert_int_equal(stat(socket_path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0660);
}

FACT(a_socket_in_use_is_not_taken_and_a_dead_one_is) {
    struct tw_error err;
    int fd = -1;
    assert_int_equal(tw_api_listen_unix(socket_path, NULL, &fd, &err), TW_IO);
    assert_non_null(strstr(err.message, "already answers"));
    char other[120];
    (void)snprintf(other, sizeof(other), "%s/other.sock", folder);
    assert_int_equal(tw_api_listen_unix(other, NULL, &fd, &err), TW_OK);
    (void)close(fd); /* leaves the socket file, as a killed daemon does */
    assert_int_equal(tw_api_listen_unix(other, NULL, &fd, &err), TW_OK);
    (void)close(fd);
    assert_int_equal(unlink(other), 0);
    FILE *const file = fopen(other, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(tw_api_listen_unix(other, NULL, &fd, &err), TW_IO);
    assert_non_null(strstr(err.message, "is no socket"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(tw_api_listen_unix("/nowhere/x.sock", NULL, &fd, &err), TW_IO);
    assert_int_equal(tw_api_listen_unix(other, "no-such-group", &fd, &err), TW_CONFIG);
    assert_int_not_equal(access(other, F_OK), 0);
}

/* Changing the user needs root. Without root, only the allowed case is tested. */
FACT(only_root_and_ourselves_may_act) {
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(tw_api_may_act(pair[0]));
    (void)close(pair[0]), (void)close(pair[1]);
    if (geteuid() != 0) return;
    const pid_t child = fork();
    if (child == 0) {
        const bool is_other = setgid(65534) == 0 && setuid(65534) == 0;
        const bool is_pair = socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
        _exit(is_other && is_pair ? 0 : 1);
    }
    int exit_status = 1;
    assert_int_equal(waitpid(child, &exit_status, 0), child);
    assert_int_equal(exit_status, 0);
    /* The kernel records a peer's credentials at connect(), so a child connects as another user. */
    char path[120];
    int fd = -1;
    struct tw_error err;
    (void)snprintf(path, sizeof(path), "%s/verb.sock", folder);
    assert_int_equal(tw_api_listen_unix(path, NULL, &fd, &err), TW_OK);
    assert_int_equal(chmod(folder, 0755) | chmod(path, 0666), 0);
    const pid_t stranger = fork();
    if (stranger == 0) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        memcpy(to.sun_path, path, strlen(path) + 1);
        if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
        const int mine = socket(AF_UNIX, SOCK_STREAM, 0);
        _exit(connect(mine, (const struct sockaddr *)&to, sizeof(to)) == 0 ? 0 : 1);
    }
    assert_int_equal(waitpid(stranger, &exit_status, 0), stranger);
    assert_int_equal(exit_status, 0);
    const int accepted = accept(fd, NULL, NULL);
    assert_true(accepted >= 0);
    assert_false(tw_api_may_act(accepted));
    (void)close(accepted), (void)close(fd);
    assert_int_equal(unlink(path), 0);
}

/* Skipped without root, because only root can connect as another user. */
FACT(a_stranger_may_read_but_not_act) {
    if (geteuid() != 0) skip();
    assert_int_equal(chmod(folder, 0711) | chmod(socket_path, 0666), 0);
    client.is_stranger = true;
    assert_int_equal(exchange("GET", "/v1/status"), 200);
    assert_int_equal(exchange("POST", "/v1/leave"), 403);
    assert_non_null(strstr(body(), "try sudo"));
    assert_int_equal(verbs_seen, 0);
}

FACT(loopback_is_recognised) {
    assert_true(tw_api_is_loopback("127.0.0.1:80"));
    assert_true(tw_api_is_loopback("127.1.2.3"));
    assert_true(tw_api_is_loopback("localhost"));
    assert_true(tw_api_is_loopback("localhost:80"));
    assert_true(tw_api_is_loopback("[::1]:80"));
    assert_false(tw_api_is_loopback("127.0.0.1.evil.example"));
    assert_false(tw_api_is_loopback("localhost.evil.example:80"));
    assert_false(tw_api_is_loopback("evil.example"));
    assert_false(tw_api_is_loopback("[::2]:80"));
    assert_false(tw_api_is_loopback("0.0.0.0:80"));
    assert_false(tw_api_is_loopback(""));
}

static unsigned free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    (void)close(fd);
    return ntohs(at.sin_port);
}

FACT(the_tcp_listener_reads_and_never_acts) {
    char http[32];
    tw_api_close(api);
    api = NULL;
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    port = free_port();
    (void)snprintf(http, sizeof(http), "127.0.0.1:%u", port);
    assert_int_equal(open_api(http), TW_OK);
    client.is_tcp = true;
    assert_int_equal(exchange("GET", "/v1/status"), 200);
    assert_int_equal(exchange("POST", "/v1/leave"), 403);
    static const char EVIL[] =
        "GET /v1/status HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    assert_int_equal(exchange_bytes(EVIL, sizeof(EVIL) - 1), 403);
    assert_int_equal(verbs_seen, 0);
    struct tw_error err;
    int fd = -1;
    assert_int_equal(tw_api_listen_tcp("api.http", http, &fd, &err), TW_IO);
    assert_non_null(strstr(err.message, http));
    assert_int_equal(tw_api_listen_tcp("api.http", "0.0.0.0:1", &fd, &err), TW_CONFIG);
}
