#include "tests/system/cluster.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/auth/identity.h"
#include "proto/run/run.h"
#include "tests/test.h"

enum { POLL_MS = 20, LOG_TAIL_LINES = 30, SLOWEST = 4 };

static double now_s(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void cluster_pause(double seconds) {
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    (void)nanosleep(&pause, NULL);
}

/* ---- files --------------------------------------------------------------------------------- */

static void file_write(const char *path, const char *text, size_t size, mode_t mode) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, size), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

/* Writes the manifest of a run over `tokens`. `more` lists further keys, with NULL after the
 * last. It may be NULL. */
static void manifest_write(const char *path, const char *tokens, const char *const (*more)[2]) {
    static char text[TW_MANIFEST_BYTES_MAX];
    const char *const keys[][2] = {
        {"run.name", "system-test"},  {"model.layers", "2"},    {"model.width", "32"},
        {"model.heads", "2"},         {"model.context", "32"},  {"model.seed", "1"},
        {"train.batch", "4"},         {"train.tokens", tokens}, {"train.warmup_tokens", "1000"},
        {"sync.preset", "streaming"}, {"sync.fragments", "2"},  {"sync.period", "20"},
        {"sync.overlap", "2"},        {"sync.quorum", "2"},
    };
    struct tw_run run;
    struct tw_error err = {0};
    size_t size = 0;
    tw_run_defaults(&run);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (tw_run_set(&run, keys[i][0], keys[i][1], &err) != TW_OK) fail_msg("%s", err.message);
        if (strcmp(keys[i][0], "sync.preset") == 0) tw_run_apply_preset(&run, run.sync.preset);
    }
    for (; more != NULL && (*more)[0] != NULL; more++) {
        if (strcmp((*more)[0], "model.tensors") == 0) {
            if (tw_run_apply_tensors(&run, (*more)[1], &err) != TW_OK) fail_msg("%s", err.message);
            continue;
        }
        if (tw_run_set(&run, (*more)[0], (*more)[1], &err) != TW_OK) fail_msg("%s", err.message);
        if (strcmp((*more)[0], "sync.preset") == 0) tw_run_apply_preset(&run, run.sync.preset);
    }
    if (tw_run_check(&run, &err) != TW_OK) fail_msg("manifest: %s", err.message);
    tw_run_encode(&run, text, &size);
    file_write(path, text, size, 0644);
}

static void text_write(const char *path) {
    static char text[64 * 1024];
    size_t size = 0;
    for (unsigned line = 0; size + 128 < sizeof(text); line++) {
        size += (size_t)snprintf(text + size, 128,
                                 "In the beginning was word %u, and word %u was "
                                 "with word %u.\n",
                                 line, line * 7 % 101, line * 13 % 57);
    }
    file_write(path, text, size, 0644);
}

/* ---- nodes --------------------------------------------------------------------------------- */

/* Binds the port without listening. The kernel gives this port to a daemon that asks for it by
 * number, but not to a process that asks for any free port. */
static void port_hold(struct cluster_node *node) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    const int on = 1;
    node->held = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(node->held >= 0);
    assert_int_equal(setsockopt(node->held, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    assert_int_equal(bind(node->held, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(node->held, (struct sockaddr *)&address, &size), 0);
    node->port = ntohs(address.sin_port);
}

void cluster_open(struct cluster *cluster, const char *tokens) {
    memset(cluster, 0, sizeof(*cluster));
    cluster->daemon_path = getenv("TW_DAEMON");
    cluster->worker_path = getenv("TW_WORKER");
    cluster->is_stub = getenv("TW_STUB") != NULL;
    assert_non_null(cluster->daemon_path);
    assert_non_null(cluster->worker_path);
    (void)strcpy(cluster->dir, "/tmp/tw-XXXXXX");
    assert_non_null(mkdtemp(cluster->dir));
    static char data[64];
    char path[96];
    struct tw_error err;
    (void)snprintf(data, sizeof(data), "%s/text", cluster->dir);
    cluster->data_path = data;
    text_write(data);
    (void)snprintf(path, sizeof(path), "%s/secret", cluster->dir);
    assert_int_equal(tw_secret_create(path, &err), TW_OK);
    (void)snprintf(path, sizeof(path), "%s/manifest", cluster->dir);
    cluster->tokens = tokens;
    manifest_write(path, tokens, NULL);
}

void cluster_set_run(struct cluster *cluster, const char *const (*keys)[2]) {
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/manifest", cluster->dir);
    manifest_write(path, cluster->tokens, keys);
}

static void tree_remove(const char *dir) {
    const pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", "--", dir, (char *)NULL);
        _exit(127);
    }
    (void)waitpid(pid, NULL, 0);
}

/* Prints the warnings and the end of a node's log. The whole log would be too long for the test
 * report, which then lacked the cause of the failure. */
static void log_print(struct cluster *cluster, uint32_t idx) {
    const char *log = cluster_log(cluster, idx), *tail = log + strlen(log);
    for (unsigned lines = 0; tail > log && lines <= LOG_TAIL_LINES; tail--) {
        if (tail[-1] == '\n') lines++;
    }
    (void)fprintf(stderr, "---- node %u\n", idx);
    for (const char *at = log; at < tail;) {
        const size_t size = strcspn(at, "\n");
        const char *level = memmem(at, size, " level=", 7);
        if (level == NULL ||
            (strncmp(level + 7, "info", 4) != 0 && strncmp(level + 7, "debug", 5) != 0)) {
            (void)fprintf(stderr, "%.*s\n", (int)size, at);
        }
        at += size + (at[size] == '\n');
    }
    (void)fprintf(stderr, "%s%s\n", tail > log ? "[...]" : "", tail);
}

void cluster_close(struct cluster *cluster, bool failed) {
    for (uint32_t i = 0; i < cluster->nodes_count; i++) {
        if (cluster->nodes[i].pid != 0) (void)cluster_end(cluster, i, SIGKILL, 5);
        if (failed) log_print(cluster, i);
        if (cluster->nodes[i].held >= 0) (void)close(cluster->nodes[i].held);
    }
    if (failed) {
        (void)fprintf(stderr, "kept: %s\n", cluster->dir);
    } else {
        tree_remove(cluster->dir);
    }
}

static void worker_script(const struct cluster *cluster, const struct cluster_node *node,
                          const struct cluster_options *options, char *path) {
    char text[512];
    (void)snprintf(path, 96, "%s/worker", node->dir);
    const char *stub = options->stub != NULL ? options->stub : "--step-us 2000";
    const int size = snprintf(text, sizeof(text), "#!/bin/sh\nexec %s %s \"$@\"\n",
                              cluster->worker_path, cluster->is_stub ? stub : "");
    file_write(path, text, (size_t)size, 0755);
}

void cluster_configure(struct cluster *cluster, uint32_t idx,
                       const struct cluster_options *options) {
    struct cluster_node *node = &cluster->nodes[idx];
    char text[4096], worker[96], path[96], data[160] = "", peers[256] = "";
    struct tw_error err;
    (void)snprintf(path, sizeof(path), "%s/own.secret", node->dir);
    if (options->has_own_secret) assert_int_equal(tw_secret_create(path, &err), TW_OK);
    if (options->port != 0) node->port = options->port;
    if (options->seed != NULL) {
        (void)snprintf(path, sizeof(path), "%s/manifest", node->dir);
        const char *const keys[][2] = {{"model.seed", options->seed}, {NULL, NULL}};
        manifest_write(path, "1g", keys);
    }
    for (uint32_t i = 0; i < cluster->nodes_count; i++) {
        char one[32];
        if (i == idx) continue;
        (void)snprintf(one, sizeof(one), "%s127.0.0.1:%u", peers[0] != 0 ? ", " : "",
                       cluster->nodes[i].port);
        (void)strcat(peers, one);
    }
    worker_script(cluster, node, options, worker);
    if (!options->has_no_data) {
        (void)snprintf(data, sizeof(data), "data = %s\n",
                       options->no_data != NULL ? options->no_data : cluster->data_path);
    }
    const int size = snprintf(
        text, sizeof(text),
        "[node]\nname = node%u\nstate_dir = %s/state\nrun_dir = %s\nrun = %s/manifest\n%s"
        "threads = 1\n%s%s\nsnapshot_steps = 5\neval_steps = %s\n%s\n"
        "[network]\nlisten = 127.0.0.1:%u\npeers = %s\nlinks = %s\nsecret_file = %s/%s\n"
        "%s\n",
        idx, node->dir, node->dir, options->seed != NULL ? node->dir : cluster->dir, data,
        options->has_no_worker ? "" : "worker_path = ", options->has_no_worker ? "" : worker,
        options->is_unevaluated ? "0" : "50", options->more != NULL ? options->more : "",
        node->port, peers, options->is_unlinked ? "off" : "on",
        options->has_own_secret ? node->dir : cluster->dir,
        options->has_own_secret ? "own.secret" : "secret",
        options->network != NULL ? options->network : "");
    file_write(node->config, text, (size_t)size, 0644);
}

void cluster_make(struct cluster *cluster, uint32_t count) {
    static const struct cluster_options ordinary;
    char path[128];
    struct tw_error err;
    cluster->nodes_count = count;
    for (uint32_t i = 0; i < count; i++) cluster->nodes[i].held = -1;
    for (uint32_t i = 0; i < count; i++) {
        struct cluster_node *node = &cluster->nodes[i];
        (void)snprintf(node->dir, sizeof(node->dir), "%s/n%u", cluster->dir, i);
        (void)snprintf(node->config, sizeof(node->config), "%s/n%u/node.conf", cluster->dir, i);
        (void)snprintf(node->log, sizeof(node->log), "%s/n%u/log", cluster->dir, i);
        (void)snprintf(node->socket, sizeof(node->socket), "%s/n%u/thinwired.sock", cluster->dir,
                       i);
        port_hold(node);
        assert_int_equal(mkdir(node->dir, 0755), 0);
        (void)snprintf(path, sizeof(path), "%s/state", node->dir);
        assert_int_equal(mkdir(path, 0755), 0);
        (void)snprintf(path, sizeof(path), "%s/state/identity.key", node->dir);
        assert_int_equal(tw_identity_create(path, &err), TW_OK);
    }
    for (uint32_t i = 0; i < count; i++) cluster_configure(cluster, i, &ordinary);
}

struct tw_id cluster_run_id(const struct cluster *cluster) {
    static char text[TW_MANIFEST_BYTES_MAX];
    char path[96];
    struct tw_run run;
    struct tw_error err;
    (void)snprintf(path, sizeof(path), "%s/manifest", cluster->dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    if (tw_run_read(text, size, &run, &err) != TW_OK) fail_msg("%s", err.message);
    return tw_run_id(&run);
}

void cluster_start(struct cluster *cluster, uint32_t idx, const char *option) {
    struct cluster_node *node = &cluster->nodes[idx];
    assert_int_equal(node->pid, 0);
    node->pid = fork();
    assert_true(node->pid >= 0);
    if (node->pid > 0) return;
    const int fd = open(node->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    (void)execl(cluster->daemon_path, cluster->daemon_path, "--verbose", "--config", node->config,
                option, (char *)NULL);
    _exit(127);
}

int cluster_wait_end(struct cluster *cluster, uint32_t idx, double patience_s) {
    struct cluster_node *node = &cluster->nodes[idx];
    const double until = now_s() + SLOWEST * patience_s;
    int status = 0;
    while (waitpid(node->pid, &status, WNOHANG) == 0) {
        if (now_s() > until) {
            (void)kill(node->pid, SIGKILL);
            (void)waitpid(node->pid, &status, 0);
            node->pid = 0;
            return -1;
        }
        cluster_pause(POLL_MS * 1e-3);
    }
    node->pid = 0;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int cluster_end(struct cluster *cluster, uint32_t idx, int signal, double patience_s) {
    (void)kill(cluster->nodes[idx].pid, signal);
    return cluster_wait_end(cluster, idx, patience_s);
}

/* ---- the API ------------------------------------------------------------------------------- */

/* Does one HTTP/1.0 exchange, and writes the body to text[]. Returns the HTTP status, or -1
 * without a reply. */
static int http(const struct cluster_node *node, const char *method, const char *resource,
                char *text) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char request[256];
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", node->socket);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_sec = 10};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        (void)close(fd);
        return -1;
    }
    const int bytes = snprintf(request, sizeof(request),
                               "%s %s HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
                               method, resource);
    (void)send(fd, request, (size_t)bytes, MSG_NOSIGNAL);
    size_t size = 0;
    ssize_t got = 1;
    while (got > 0 && size < CLUSTER_TEXT_MAX - 1) {
        got = recv(fd, text + size, CLUSTER_TEXT_MAX - 1 - size, 0);
        if (got > 0) size += (size_t)got;
    }
    text[size] = '\0';
    (void)close(fd);
    int status = -1;
    char *body = strstr(text, "\r\n\r\n");
    if (body == NULL || sscanf(text, "HTTP/%*s %d", &status) != 1) return -1;
    memmove(text, body + 4, strlen(body + 4) + 1);
    return status;
}

json_t *cluster_get(struct cluster *cluster, uint32_t idx, const char *resource) {
    static char text[CLUSTER_TEXT_MAX];
    if (http(&cluster->nodes[idx], "GET", resource, text) != 200) return NULL;
    return json_loads(text, 0, NULL);
}

int cluster_post(struct cluster *cluster, uint32_t idx, const char *resource) {
    static char text[CLUSTER_TEXT_MAX];
    return http(&cluster->nodes[idx], "POST", resource, text);
}

static json_t *status_at(json_t *at, const char *path) {
    char copy[96];
    (void)snprintf(copy, sizeof(copy), "%s", path);
    for (char *key = strtok(copy, "."); key != NULL && at != NULL; key = strtok(NULL, ".")) {
        at = json_object_get(at, key);
    }
    return at;
}

double cluster_number(struct cluster *cluster, uint32_t idx, const char *path) {
    json_t *root = cluster_get(cluster, idx, "/v1/status");
    json_t *at = status_at(root, path);
    const double value = json_is_number(at)    ? json_number_value(at)
                         : json_is_boolean(at) ? json_is_true(at)
                                               : -1;
    json_decref(root);
    return value;
}

void cluster_string(struct cluster *cluster, uint32_t idx, const char *path, char *text) {
    json_t *root = cluster_get(cluster, idx, "/v1/status");
    const char *value = json_string_value(status_at(root, path));
    (void)snprintf(text, 96, "%s", value != NULL ? value : "");
    json_decref(root);
}

/* Returns true if the daemon has ended, which no caller expects. */
static bool has_ended(struct cluster *cluster, uint32_t idx) {
    struct cluster_node *node = &cluster->nodes[idx];
    int status = 0;
    if (node->pid == 0 || waitpid(node->pid, &status, WNOHANG) != node->pid) return false;
    print_message("node %u ended by itself: status 0x%x\n", idx, (unsigned)status);
    node->pid = 0;
    return true;
}

bool cluster_reaches(struct cluster *cluster, uint32_t idx, const char *path, double least,
                     double patience_s) {
    const double until = now_s() + SLOWEST * patience_s;
    double value = -1;
    while ((value = cluster_number(cluster, idx, path)) < least) {
        if (has_ended(cluster, idx) || now_s() > until) {
            print_message("node %u: %s = %g after %g s, wanted %g\n", idx, path, value,
                          SLOWEST * patience_s, least);
            return false;
        }
        cluster_pause(POLL_MS * 1e-3);
    }
    return true;
}

const char *cluster_log(struct cluster *cluster, uint32_t idx) {
    static char text[CLUSTER_LOG_MAX];
    const int fd = open(cluster->nodes[idx].log, O_RDONLY | O_CLOEXEC);
    const ssize_t size = fd >= 0 ? read(fd, text, sizeof(text) - 1) : 0;
    if (fd >= 0) (void)close(fd);
    text[size > 0 ? size : 0] = '\0';
    return text;
}

unsigned cluster_lines(struct cluster *cluster, uint32_t idx, const char *text) {
    unsigned count = 0;
    for (const char *at = cluster_log(cluster, idx); (at = strstr(at, text)) != NULL; at++) count++;
    return count;
}

bool cluster_says(struct cluster *cluster, uint32_t idx, const char *text, double patience_s) {
    const double until = now_s() + SLOWEST * patience_s;
    while (strstr(cluster_log(cluster, idx), text) == NULL) {
        if (has_ended(cluster, idx) || now_s() > until) return false;
        cluster_pause(POLL_MS * 1e-3);
    }
    return true;
}

unsigned cluster_digests(struct cluster *cluster, uint32_t a, uint32_t b) {
    static char first[CLUSTER_LOG_MAX];
    unsigned equal = 0;
    (void)snprintf(first, sizeof(first), "%s", cluster_log(cluster, a));
    const char *second = cluster_log(cluster, b);
    for (const char *at = first; (at = strstr(at, "ev=applied ")) != NULL; at++) {
        char line[160], lineage[9], digest[17];
        unsigned fragment;
        unsigned long long rounds;
        if (sscanf(at, "ev=applied lineage=%8s fragment=%u rounds=%llu ok=1 digest=%16s", lineage,
                   &fragment, &rounds, digest) != 4) {
            continue;
        }
        (void)snprintf(line, sizeof(line),
                       "ev=applied lineage=%s fragment=%u rounds=%llu ok=1 digest=", lineage,
                       fragment, rounds);
        const char *other = strstr(second, line);
        if (other == NULL) continue;
        if (strncmp(other + strlen(line), digest, 16) != 0) {
            fail_msg("%s%s here, %.16s there", line, digest, other + strlen(line));
        }
        equal++;
    }
    return equal;
}
