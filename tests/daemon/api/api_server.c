/* api_server SOCKET - serves the local API of one fixed node, for tests of the command line.
 * Prints "ready", and exits at the end of its standard input. `leave` reports a failed save and
 * ends the server a second later; the other verbs succeed. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/api/api.h"
#include "view_sample.h"

static struct tw_api *api;
static uv_poll_t input;
static uv_timer_t leaving;

static void fill(void *user, struct tw_status_view *view) {
    (void)user;
    view_sample(view);
    view->node.is_leaving = uv_is_active((uv_handle_t *)&leaving) != 0;
}

static void end(void) {
    uv_close((uv_handle_t *)&input, NULL);
    uv_close((uv_handle_t *)&leaving, NULL);
    tw_api_close(api);
}

static void on_left(uv_timer_t *timer) {
    (void)timer;
    end();
}

static void verb(void *user, enum tw_api_verb kind, uint32_t number) {
    (void)user;
    if (kind == TW_API_LEAVE) {
        tw_api_answer(api, number, TW_IO, "the disk is full");
        (void)uv_timer_start(&leaving, on_left, 1000, 0);
    } else if (kind == TW_API_LIMIT) {
        char text[128];
        const char *const up = tw_api_argument(api, number, "upload");
        const char *const down = tw_api_argument(api, number, "download");
        (void)snprintf(text, sizeof(text), "upload=%s download=%s", up != NULL ? up : "-",
                       down != NULL ? down : "-");
        tw_api_answer(api, number, TW_OK, text);
    } else if (kind == TW_API_UNBAN) {
        char text[128];
        (void)snprintf(text, sizeof(text), "node=%s", tw_api_argument(api, number, "node"));
        tw_api_answer(api, number, TW_OK, text);
    } else if (kind == TW_API_WEB) {
        tw_api_answer(api, number, TW_OK, tw_api_web_url(api));
    } else {
        tw_api_answer(api, number, TW_OK, kind == TW_API_PAUSE ? "paused" : "saved step 12000");
    }
}

static void on_input(uv_poll_t *poll, int status, int events) {
    char byte;
    (void)poll, (void)status, (void)events;
    if (read(STDIN_FILENO, &byte, 1) > 0) return;
    end();
}

int main(int argc, char **argv) {
    uv_loop_t loop;
    struct tw_error err;
    if (argc != 2 || uv_loop_init(&loop) != 0) return 1;
    const struct tw_api_config config = {.loop = &loop,
                                         .socket_path = argv[1],
                                         .web = "127.0.0.1:0",
                                         .user = &loop,
                                         .fill = fill,
                                         .verb = verb};
    if (tw_api_open(&api, &config, &err) != TW_OK) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    if (uv_timer_init(&loop, &leaving) != 0) return 1;
    if (uv_poll_init(&loop, &input, STDIN_FILENO) != 0) return 1;
    if (uv_poll_start(&input, UV_READABLE, on_input) != 0) return 1;
    (void)puts("ready");
    (void)fflush(stdout);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
