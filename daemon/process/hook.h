/* hook.h - runs one command at a time for the daemon, with a text on its standard input, and kills
 * it when it takes too long.
 *
 *   IDLE --run--> RUNNING --exit, or killed at the timeout--> IDLE, with `ended` called
 *
 * `/bin/sh -c COMMAND` runs in a session of its own. When it ends, processes that it left in that
 * session are killed. It has a clean environment and no descriptor of the daemon. It runs as the
 * daemon's user. Nothing here blocks the loop. */
#ifndef TW_DAEMON_PROCESS_HOOK_H
#define TW_DAEMON_PROCESS_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

enum { TW_HOOK_TEXT_BYTES = 200, TW_HOOK_VALUES_MAX = 12 };

struct tw_hook_end {
    int exit_status, signal;       /* signal > 0: a signal ended it */
    bool is_late;                  /* it was killed at the timeout */
    size_t output_bytes;           /* bytes of its standard output that were kept */
    bool is_output_cut;            /* there were more */
    char text[TW_HOOK_TEXT_BYTES]; /* the first line of its standard error, with NUL */
};

struct tw_hook_config {
    uv_loop_t *loop;
    const char *command; /* borrowed */
    uint64_t timeout_us;
    char *output; /* keeps the begin of its standard output; borrowed; NULL: nothing is kept */
    size_t output_capacity;
    void *user;
    void (*ended)(void *user, const struct tw_hook_end *end);
};

/* In the caller's memory. */
struct tw_hook {
    struct tw_hook_config config;
    bool is_running, is_closing;
    uv_process_t process;
    uv_pipe_t output, error; /* its standard output, if kept, and its standard error */
    uv_timer_t timer;
    unsigned handles_open; /* of process and pipes */
    struct tw_hook_end end;
    size_t text_bytes;
    char scrap[512];
};

void tw_hook_init(struct tw_hook *hook, const struct tw_hook_config *config);

/* Whether a command can be started. */
bool tw_hook_is_idle(const struct tw_hook *hook);

/* Starts the command with text[size] as its standard input. `values`: "NAME=value" for its
 * environment, up to TW_HOOK_VALUES_MAX, NULL at the end. Copies everything. The hook must be idle.
 * TW_IO: it could not be started, and `ended` is not called. */
enum tw_status tw_hook_run(struct tw_hook *hook, const char *text, size_t size,
                           const char *const *values, struct tw_error *err);

/* Kills the command and closes every handle; `ended` is not called any more. The memory is free
 * when the loop has run once more. */
void tw_hook_close(struct tw_hook *hook);

#endif
