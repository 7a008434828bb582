#include "daemon/process/hook.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"

/* Variables of the daemon's environment that a command may need. The others, such as those of the
 * service manager, are only for the daemon. */
static const char *const PASSED[] = {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"};
enum { PASSED_COUNT = sizeof(PASSED) / sizeof(PASSED[0]), VALUE_BYTES = 4096 };

/* ---- its end ------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle) {
    struct tw_hook *hook = handle->data;
    TW_ASSERT(hook->handles_open > 0);
    if (--hook->handles_open > 0 || !hook->is_running) return;
    hook->is_running = false;
    if (!hook->is_closing) hook->config.ended(hook->config.user, &hook->end);
}

static bool keeps_output(const struct tw_hook *hook) {
    return hook->config.output != NULL;
}

static void close_handle(uv_handle_t *handle) {
    if (!uv_is_closing(handle)) uv_close(handle, on_closed);
}

static void close_handles(struct tw_hook *hook) {
    close_handle((uv_handle_t *)&hook->process);
    close_handle((uv_handle_t *)&hook->error);
    if (keeps_output(hook)) close_handle((uv_handle_t *)&hook->output);
}

/* Kills the session. */
static void kill_all(const struct tw_hook *hook) {
    if (hook->process.pid > 0) (void)kill(-hook->process.pid, SIGKILL);
}

/* Keeps the first line of the command's standard error. */
static void keep_text(struct tw_hook *hook, const char *bytes, size_t size) {
    for (size_t i = 0; i < size && hook->text_bytes + 1 < TW_HOOK_TEXT_BYTES; i++) {
        if (bytes[i] == '\n') {
            if (hook->text_bytes > 0) hook->text_bytes = TW_HOOK_TEXT_BYTES; /* complete */
            continue;
        }
        hook->end.text[hook->text_bytes++] = bytes[i];
    }
}

/* Keeps the beginning of the command's standard output. */
static void keep_output(struct tw_hook *hook, const char *bytes, size_t size) {
    const size_t room = hook->config.output_capacity - hook->end.output_bytes;
    const size_t kept = size < room ? size : room;
    memcpy(hook->config.output + hook->end.output_bytes, bytes, kept);
    hook->end.output_bytes += kept;
    hook->end.is_output_cut = hook->end.is_output_cut || kept < size;
}

static void keep(struct tw_hook *hook, const uv_pipe_t *from, const char *bytes, size_t size) {
    if (from == &hook->error)
        keep_text(hook, bytes, size);
    else
        keep_output(hook, bytes, size);
}

/* Reads output that the command wrote before it ended. Reads no more than a pipe holds, because a
 * process that left the session may go on writing. */
static void read_rest(struct tw_hook *hook, uv_pipe_t *from) {
    enum { PIPE_BYTES = 64 << 10 };
    uv_os_fd_t fd;
    char bytes[512];
    ssize_t size = 0;
    if (uv_is_closing((uv_handle_t *)from) || uv_fileno((uv_handle_t *)from, &fd) != 0) return;
    for (size_t sum = 0; sum < PIPE_BYTES && (size = read(fd, bytes, sizeof(bytes))) > 0;
         sum += (size_t)size)
        keep(hook, from, bytes, (size_t)size);
}

static void on_ended(uv_process_t *process, int64_t exit_status, int signal) {
    struct tw_hook *hook = process->data;
    hook->end.exit_status = (int)exit_status;
    hook->end.signal = signal;
    kill_all(hook);
    read_rest(hook, &hook->error);
    if (keeps_output(hook)) read_rest(hook, &hook->output);
    (void)uv_timer_stop(&hook->timer);
    close_handles(hook);
}

static void on_late(uv_timer_t *timer) {
    struct tw_hook *hook = timer->data;
    hook->end.is_late = true;
    kill_all(hook);
}

/* ---- its start ----------------------------------------------------------------------------- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer) {
    struct tw_hook *hook = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(hook->scrap, sizeof(hook->scrap));
}

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer) {
    struct tw_hook *hook = stream->data;
    if (size > 0) keep(hook, (uv_pipe_t *)stream, buffer->base, (size_t)size);
    if (size < 0) (void)uv_read_stop(stream);
}

/* Returns an in-memory file that holds the text, positioned at its start. Returns < 0 on failure,
 * with errno set. */
static int make_input(const char *text, size_t size) {
    const int fd = memfd_create("hook", MFD_CLOEXEC);
    if (fd < 0) return fd;
    if (write(fd, text, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0) return fd;
    (void)close(fd);
    return -1;
}

/* Descriptors of the child's standard input, output and error. output < 0: none. */
struct ends {
    int input, output, error;
};

static int spawn(struct tw_hook *hook, const struct ends *ends, char **environment) {
    char shell[] = "/bin/sh", flag[] = "-c";
    char *args[] = {shell, flag, (char *)(uintptr_t)hook->config.command, NULL};
    uv_stdio_container_t stdio[3] = {
        {.flags = UV_INHERIT_FD, .data.fd = ends->input},
        {.flags = ends->output < 0 ? UV_IGNORE : UV_INHERIT_FD, .data.fd = ends->output},
        {.flags = UV_INHERIT_FD, .data.fd = ends->error},
    };
    const uv_process_options_t options = {
        .file = shell,
        .args = args,
        .env = environment,
        .flags = UV_PROCESS_DETACHED,
        .stdio = stdio,
        .stdio_count = 3,
        .exit_cb = on_ended,
    };
    return uv_spawn(hook->config.loop, &hook->process, &options);
}

/* Writes "NAME=value" from the daemon's environment. Returns NULL if NAME is not set or its value
 * is too long. */
static char *pass(const char *name, char text[VALUE_BYTES]) {
    const char *const value = getenv(name);
    if (value == NULL) return NULL;
    return snprintf(text, VALUE_BYTES, "%s=%s", name, value) < VALUE_BYTES ? text : NULL;
}

static int spawn_with(struct tw_hook *hook, const struct ends *ends, const char *const *values) {
    static char passed[PASSED_COUNT][VALUE_BYTES];
    char *environment[PASSED_COUNT + TW_HOOK_VALUES_MAX + 1];
    unsigned count = 0;
    for (unsigned i = 0; i < PASSED_COUNT; i++) {
        environment[count] = pass(PASSED[i], passed[i]);
        if (environment[count] != NULL) count++;
    }
    for (unsigned i = 0; i < TW_HOOK_VALUES_MAX && values[i] != NULL; i++)
        environment[count++] = (char *)(uintptr_t)values[i];
    environment[count] = NULL;
    return spawn(hook, ends, environment);
}

bool tw_hook_is_idle(const struct tw_hook *hook) {
    return !hook->is_running && hook->handles_open == 0 && !hook->is_closing;
}

static void close_ends(const struct ends *ends) {
    (void)close(ends->input);
    (void)close(ends->error);
    if (ends->output >= 0) (void)close(ends->output);
}

/* Opens a pipe: the daemon reads one end. Returns the child's end, or < 0 with errno set. */
static int open_pipe(struct tw_hook *hook, uv_pipe_t *pipe) {
    int both[2];
    if (pipe2(both, O_CLOEXEC) != 0) return -1;
    TW_ASSERT(uv_pipe_init(hook->config.loop, pipe, 0) == 0);
    TW_ASSERT(uv_pipe_open(pipe, both[0]) == 0);
    pipe->data = hook;
    return both[1];
}

/* Opens the child's standard input, output and error. Returns false on failure, with errno set. */
static bool open_ends(struct tw_hook *hook, const char *text, size_t size, struct ends *ends) {
    *ends = (struct ends){.input = make_input(text, size), .output = -1};
    if (ends->input < 0) return false;
    ends->error = open_pipe(hook, &hook->error);
    if (ends->error < 0) {
        (void)close(ends->input);
        return false;
    }
    hook->handles_open++;
    if (!keeps_output(hook)) return true;
    ends->output = open_pipe(hook, &hook->output);
    if (ends->output < 0) {
        const int reason = errno;
        close_ends(ends);
        close_handle((uv_handle_t *)&hook->error);
        errno = reason;
        return false;
    }
    hook->handles_open++;
    return true;
}

enum tw_status tw_hook_run(struct tw_hook *hook, const char *text, size_t size,
                           const char *const *values, struct tw_error *err) {
    struct ends ends;
    TW_ASSERT(tw_hook_is_idle(hook));
    hook->end = (struct tw_hook_end){0};
    hook->text_bytes = 0;
    hook->process.pid = 0;
    hook->process.data = hook;
    if (!open_ends(hook, text, size, &ends)) return tw_fail(err, TW_IO, "%s", strerror(errno));
    const int rc = spawn_with(hook, &ends, values);
    close_ends(&ends);
    hook->handles_open++; /* after a failed uv_spawn, too, there is a handle to close */
    if (rc != 0) {
        close_handles(hook);
        return tw_fail(err, TW_IO, "%s", uv_strerror(rc));
    }
    hook->is_running = true;
    (void)uv_read_start((uv_stream_t *)&hook->error, on_room, on_read);
    if (keeps_output(hook)) (void)uv_read_start((uv_stream_t *)&hook->output, on_room, on_read);
    TW_ASSERT(uv_timer_start(&hook->timer, on_late, hook->config.timeout_us / 1000, 0) == 0);
    return TW_OK;
}

void tw_hook_init(struct tw_hook *hook, const struct tw_hook_config *config) {
    memset(hook, 0, sizeof(*hook));
    hook->config = *config;
    TW_ASSERT(uv_timer_init(config->loop, &hook->timer) == 0);
    hook->timer.data = hook;
}

void tw_hook_close(struct tw_hook *hook) {
    hook->is_closing = true;
    uv_close((uv_handle_t *)&hook->timer, NULL);
    if (!hook->is_running) return;
    kill_all(hook);
    close_handles(hook);
}
