/* A node whose worker runs as another user, with a dataset that the daemon fetched. The worker
 * trains. A process of its user can read nothing else and can send no commands. Needs root, to
 * change the user. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_codes.h"
#include "tests/system/cluster_dataset.h"
#include "tests/test.h"

enum { PATHS_MAX = 128 };

static struct cluster cluster;
static struct dataset_sample sample;
static char folder[96], paths[PATHS_MAX][256];
static uint32_t paths_count;
static const struct passwd *worker;
static pid_t worker_pid;

static int open_two(void **state) {
    /* The API's group is the group of daemon and worker, so the worker may read the status. */
    const struct cluster_options empty = {.has_no_data = true,
                                          .more = "spawn_worker = off\nworker_user = nobody",
                                          .network = "[api]\ngroup = root"};
    const struct cluster_options whole = {.no_data = folder};
    cluster_dataset_make(&cluster, &sample, "1g", 2, folder, sizeof(folder));
    cluster_configure(&cluster, 0, &whole);
    cluster_configure(&cluster, 1, &empty);
    return chmod(cluster.dir, 0755); /* same mode as /run and /var/lib */
}

static int close_all(void **state) {
    if (worker_pid > 0) {
        (void)kill(worker_pid, SIGKILL);
        (void)waitpid(worker_pid, NULL, 0);
    }
    cluster_close(&cluster, !test_has_passed);
    dataset_sample_free(&sample);
    return 0;
}

/* Changes to the worker's user for good. To be called in a child process. */
static void become_worker(void) {
    if (setgroups(0, NULL) != 0 || setgid(getegid()) != 0 || setuid(worker->pw_uid) != 0) _exit(99);
}

static void start_worker(void) {
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/worker.sock", cluster.nodes[1].dir);
    const int fd = open(cluster.nodes[1].log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    /* Opened before the user changes: the worker's user may have no access to the program's
     * folder. */
    const int program = open(cluster.worker_path, O_RDONLY);
    worker_pid = fork();
    if (worker_pid > 0) {
        (void)close(fd);
        (void)close(program);
        return;
    }
    char *const argv[] = {"worker", "--socket", path, NULL};
    extern char **environ;
    (void)dup2(fd, STDOUT_FILENO);
    (void)dup2(fd, STDERR_FILENO);
    become_worker();
    (void)fexecve(program, argv, environ);
    _exit(127);
}

static int list_file(const char *path, const struct stat *about, int type, struct FTW *at) {
    if (type != FTW_F || !S_ISREG(about->st_mode) || strstr(path, "/data/") != NULL ||
        paths_count == PATHS_MAX)
        return 0;
    (void)snprintf(paths[paths_count++], sizeof(paths[0]), "%s", path);
    return 0;
}

static bool has_path(const char *name) {
    for (uint32_t i = 0; i < paths_count; i++) {
        if (strstr(paths[i], name) != NULL) return true;
    }
    return false;
}

/* Returns the HTTP status of a POST, or 0 if it could not connect. */
static int post(const char *verb) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char text[256];
    (void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", cluster.nodes[1].socket);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int size = snprintf(text, sizeof(text),
                              "POST /v1/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", verb);
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) return 0;
    if (send(fd, text, (size_t)size, MSG_NOSIGNAL) != size) return -1;
    const ssize_t got = recv(fd, text, sizeof(text) - 1, 0);
    (void)close(fd);
    if (got < 12) return -1;
    text[got] = 0;
    return (int)strtol(text + 9, NULL, 10);
}

/* Runs as the worker's user. Returns the number of forbidden actions that succeed. */
static int try_all(void) {
    static const char *const verbs[] = {"leave",  "checkpoint", "pause", "resume",
                                        "reload", "limit",      "unban", "invite"};
    int count = 0;
    become_worker();
    for (uint32_t i = 0; i < paths_count; i++) {
        const bool is_denied = open(paths[i], O_RDONLY) < 0 && errno == EACCES;
        const bool is_closed = open(paths[i], O_WRONLY) < 0 && errno == EACCES;
        if (is_denied && is_closed) continue;
        (void)fprintf(stderr, "the worker can open %s\n", paths[i]);
        count++;
    }
    for (uint32_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        const int status = post(verbs[i]);
        if (status == 403) continue;
        (void)fprintf(stderr, "the worker can say %s: %d\n", verbs[i], status);
        count++;
    }
    return count;
}

TEST_IN(open_two, close_all, worker_reads_the_dataset_and_nothing_else) {
    struct stat about;
    worker = getpwnam("nobody");
    if (geteuid() != 0 || worker == NULL) {
        print_message("skipped: wants root and the user nobody\n");
        skip();
    }
    for (uint32_t i = 0; i < 2; i++) cluster_start(&cluster, i, NULL);
    assert_true(cluster_reaches(&cluster, 1, "data.files_whole", 1, 60));
    start_worker();
    assert_true(cluster_reaches(&cluster, 1, "train.steps", 5, 60));
    assert_int_equal(cluster_post(&cluster, 1, "/v1/checkpoint"), 200);
    assert_int_equal(cluster_post(&cluster, 1, "/v1/invite?uses=1&days=1"), 200);
    assert_int_equal(nftw(cluster.nodes[1].dir, list_file, 8, FTW_PHYS), 0);
    (void)snprintf(paths[paths_count++], sizeof(paths[0]), "%s/secret", cluster.dir);
    assert_true(has_path("identity.key") && has_path("ckpt.") && has_path("ticket"));
    /* Files that the test itself wrote with a wider mode get mode 0600 first. */
    for (uint32_t i = 0; i < paths_count; i++) {
        const char *const name = strrchr(paths[i], '/');
        const bool is_ours = strcmp(name, "/log") == 0 || strcmp(name, "/node.conf") == 0 ||
                             strcmp(name, "/worker") == 0;
        if (is_ours) (void)chmod(paths[i], 0600);
        assert_int_equal(stat(paths[i], &about), 0);
        if ((about.st_mode & 0077) != 0) fail_msg("%s has mode %o", paths[i], about.st_mode);
    }
    const pid_t child = fork();
    if (child == 0) _exit(try_all());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(cluster_end(&cluster, i, SIGTERM, 30), TW_EXIT_OK);
    }
}
