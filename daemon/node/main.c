/* thinwired - the daemon of one node: reads its configuration, then runs life.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/node/life.h"
#include "daemon/process/service.h"
#include "daemon/setup/setup.h"

static const char KEEP[] = "--keep", WITH_PARENT[] = "--with-parent=";

static void print_usage(FILE *to) {
    (void)fprintf(
        to,
        "thinwired " TW_RELEASE ": trains one model together with other machines\n\n"
        "usage: thinwired [--config FILE|NAME] [--fresh] [--keep] [--with-parent=PID] "
        "[--verbose]\n\n"
        "  -c, --config FILE  configuration (default $THINWIRE_CONFIG, else\n"
        "                     /etc/thinwire/thinwire.conf); NAME: /etc/thinwire/NAME.conf\n"
        "      --fresh        when both checkpoints are damaged, start without them\n"
        "      --keep         start it again when it dies, as `thinwire start` does; a service\n"
        "                     manager needs no such parent process\n"
        "      --with-parent=PID  as --keep, and leave when the process PID, which started it,\n"
        "                     ends\n"
        "  -v, --verbose      log every state change\n"
        "      --version      print the release\n"
        "  -h, --help         print this\n\n"
        "exit status\n");
#define X(name, value, meaning) (void)fprintf(to, "  %d  %s\n", value, meaning);
    TW_EXIT_LIST(X)
#undef X
}

/* Reads the options. Returns the exit status, or -1 if the daemon is to start. */
static int read_options(int argc, char **argv, struct tw_setup_options *options, bool *is_kept,
                        pid_t *starter) {
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0) {
            print_usage(stdout);
            return TW_EXIT_OK;
        }
        if (strcmp(arg, "--version") == 0) {
            (void)printf("thinwired %s\n", TW_RELEASE);
            return TW_EXIT_OK;
        }
        if (strcmp(arg, "--fresh") == 0) {
            options->is_fresh = true;
        } else if (strcmp(arg, KEEP) == 0) {
            *is_kept = true;
        } else if (strncmp(arg, WITH_PARENT, sizeof(WITH_PARENT) - 1) == 0) {
            *is_kept = true;
            *starter = (pid_t)strtol(arg + sizeof(WITH_PARENT) - 1, NULL, 10);
        } else if (strcmp(arg, "-v") == 0 || strcmp(arg, "--verbose") == 0) {
            tw_log_set_level(TW_LOG_DEBUG);
        } else if ((strcmp(arg, "-c") == 0 || strcmp(arg, "--config") == 0) && i + 1 < argc) {
            options->config = argv[++i];
        } else if (strncmp(arg, "--config=", 9) == 0) {
            options->config = arg + 9;
        } else {
            (void)fprintf(stderr,
                          "thinwired: unknown or incomplete option %s (see thinwired "
                          "--help)\n",
                          arg);
            return TW_EXIT_USAGE;
        }
    }
    return -1;
}

/* Removes --keep and --with-parent, because the daemon may execute itself again, and then has its
 * parent already. */
static void drop_keep(char **argv) {
    char **to = argv;
    for (char **from = argv; *from != NULL; from++)
        if (strcmp(*from, KEEP) != 0 && strncmp(*from, WITH_PARENT, sizeof(WITH_PARENT) - 1) != 0)
            *to++ = *from;
    *to = NULL;
}

int main(int argc, char **argv) {
    struct tw_setup_options options = {0};
    bool is_kept = false;
    pid_t starter = 0;
    const int early = read_options(argc, argv, &options, &is_kept, &starter);
    if (early >= 0) return early;
    if (is_kept) {
        const int ended = tw_keep_running(starter);
        if (ended >= 0) return ended;
        drop_keep(argv);
    }
    /* Treats a file size limit (ulimit -f) like a full disk: the write fails with a message,
     * instead of SIGXFSZ killing the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
    /* The identity key is in this process's memory, so core files and debuggers of the same user
     * are forbidden. */
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    /* libuv's pool writes the votes. It has more threads than there are kinds of blocking work, so
     * a vote never waits for a checkpoint, a hash or a DNS lookup. */
    (void)setenv("UV_THREADPOOL_SIZE", "16", 0);

    struct tw_setup *setup = malloc(sizeof(*setup));
    struct tw_error err = {0};
    if (setup == NULL) return TW_EXIT_FAILURE;
    enum tw_exit code = tw_setup_open(setup, &options, &err);
    if (code == TW_EXIT_OK) {
        code = tw_daemon_run(setup);
    } else {
        (void)fprintf(stderr, "thinwired: %s\n", err.message);
    }
    const bool is_restart = setup->is_restart_wanted && code == TW_EXIT_OK;
    tw_setup_close(setup);
    free(setup);
    if (is_restart) {
        (void)execv("/proc/self/exe", argv);
        (void)fprintf(stderr, "thinwired: cannot start anew: %s\n", strerror(errno));
        return TW_EXIT_FAILURE;
    }
    return (int)code;
}
