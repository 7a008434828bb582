/* hook.h - runs one command at a time for the daemon, with a text on its standard input, and kills
 * it at a timeout.
 *
 *   IDLE --run--> RUNNING --exit, or killed at the timeout--> IDLE, with `ended` called
 *
 * `/bin/sh -c COMMAND` runs as the daemon's user, in its own session. When it ends, the processes
 * that it left in that session are killed. It has a clean environment and none of the daemon's
 * descriptors. Nothing here blocks the loop. */
#ifndef TW_DAEMON_PROCESS_HOOK_H
#define TW_DAEMON_PROCESS_HOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

enum { TW_HOOK_TEXT_BYTES = 200, TW_HOOK_VALUES_MAX = 12 };

struct tw_hook_end {
    int exit_status, signal;       /* signal: number of the signal that killed the command, or 0 */
    bool is_late;                  /* the command was killed at the timeout */
    size_t output_bytes;           /* bytes kept of the command's standard output */
    bool is_output_cut;            /* the output was longer */
    char text[TW_HOOK_TEXT_BYTES]; /* first line of the command's standard error, with NUL */
};

struct tw_hook_config {
    uv_loop_t *loop;
    const char *command; /* borrowed */
    uint64_t timeout_us;
    char *output; /* buffer for the beginning of the command's standard output; borrowed; NULL: no
                     output is kept */
    size_t output_capacity;
    void *user;
    void (*ended)(void *user, const struct tw_hook_end *end);
};

/* Provided by the caller. */
struct tw_hook {
    struct tw_hook_config config;
    bool is_running, is_closing;
    uv_process_t process;
    uv_pipe_t output, error; /* read ends: standard output, if it is kept, and standard error */
    uv_timer_t timer;
    unsigned handles_open; /* open libuv handles: process and pipes */
    struct tw_hook_end end;
    size_t text_bytes;
    char scrap[512];
};

void tw_hook_init(struct tw_hook *hook, const struct tw_hook_config *config);

/* Returns whether no command is running. */
bool tw_hook_is_idle(const struct tw_hook *hook);

/* Starts the command with text[size] as its standard input. `values` are "NAME=value" strings for
 * its environment, at most TW_HOOK_VALUES_MAX, NULL-terminated. Copies everything. The hook must be
 * idle. Returns TW_IO if the command could not be started; `ended` is not called then. */
enum tw_status tw_hook_run(struct tw_hook *hook, const char *text, size_t size,
                           const char *const *values, struct tw_error *err);

/* Kills the command and closes every handle. `ended` is not called. The hook's memory may be freed
 * after one more iteration of the loop. */
void tw_hook_close(struct tw_hook *hook);

#endif
