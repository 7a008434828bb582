/* Tests which users may connect to the worker socket. The test changes its user, so it needs
 * root. */
#include "tests/test.h"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/workerlink/worker_link.h"

enum { WORKER = 65533, STRANGER = 65532, OTHER_GROUP = 65531 };

static uv_loop_t loop;
static struct tw_worker_link link_;
static char folder[32], path[64];
static unsigned hellos, refusals, ends;

static void on_hello(void *user, const struct tw_wmsg_hello *hello, pid_t pid) {
    (void)user, (void)hello, (void)pid;
    hellos++;
}
static void on_message(void *user, const struct tw_worker_msg *msg) {
    (void)user, (void)msg;
}
static void on_closed(void *user, const char *sentence) {
    (void)user, (void)sentence;
    ends++;
}
static void on_refused(void *user, const char *sentence) {
    assert_non_null(strstr(sentence, "another user"));
    refusals++;
}

static void open_link(uint32_t worker_uid) {
    const struct tw_worker_link_config config = {
        .loop = &loop,
        .socket_path = path,
        .worker_uid = worker_uid,
        .events = {on_hello, on_message, on_closed, on_refused}};
    struct tw_error err = {0};
    hellos = refusals = ends = 0;
    assert_int_equal(tw_worker_link_open(&link_, &config, &err), TW_OK);
}

static int start(void **state) {
    memcpy(folder, "/tmp/tw-link-XXXXXX", 20);
    if (mkdtemp(folder) == NULL || chmod(folder, 0755) != 0) return 1;
    (void)snprintf(path, sizeof(path), "%s/worker.sock", folder);
    return uv_loop_init(&loop);
}

static int stop(void **state) {
    tw_worker_link_close(&link_);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0) return 1;
    return rmdir(folder);
}

#define FACT(name) TEST_IN(start, stop, name)

/* Lets a process of this user and group connect and send HELLO, and waits for a refusal or the
 * end. Returns true if it could connect. */
static bool greet_as(uid_t uid, gid_t gid) {
    const pid_t child = fork();
    if (child == 0) {
        struct tw_worker_msg msg = {.kind = TW_WMSG_HELLO};
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        msg.bytes = tw_worker_msg_bytes(TW_WMSG_HELLO);
        msg.u.hello.version = TW_WORKER_VERSION;
        memcpy(to.sun_path, path, strlen(path) + 1);
        if (setgroups(0, NULL) != 0 || setgid(gid) != 0 || setuid(uid) != 0) _exit(2);
        const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) != 0) _exit(1);
        _exit(send(fd, &msg, msg.bytes, MSG_NOSIGNAL) == (ssize_t)msg.bytes ? 0 : 2);
    }
    const unsigned before = refusals + ends;
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 2);
    if (WEXITSTATUS(status) != 0) return false;
    while (refusals + ends == before) (void)uv_run(&loop, UV_RUN_ONCE);
    return true;
}

FACT(the_workers_own_user_may_connect) {
    if (geteuid() != 0) skip();
    open_link(WORKER);
    assert_true(greet_as(WORKER, getegid()));
    assert_int_equal(hellos, 1);
    assert_int_equal(refusals, 0);
    assert_true(greet_as(0, getegid()));
    assert_int_equal(hellos, 2);
}

FACT(another_member_of_the_group_is_turned_away) {
    if (geteuid() != 0) skip();
    open_link(WORKER);
    assert_true(greet_as(STRANGER, getegid()));
    assert_int_equal(hellos, 0);
    assert_int_equal(refusals, 1);
    /* A user outside the group cannot even connect. */
    assert_false(greet_as(STRANGER, OTHER_GROUP));
}

FACT(without_such_a_user_nobody_else_comes_near) {
    if (geteuid() != 0) skip();
    open_link(0);
    assert_false(greet_as(WORKER, getegid()));
    assert_true(greet_as(0, getegid()));
    assert_int_equal(hellos, 1);
}
