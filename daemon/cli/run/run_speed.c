#include "daemon/cli/run/run_speed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cli/common/json_path.h"

extern char **environ;

enum tw_exit cli_speed_read(struct cli *cli, struct cli_speed *speed) {
    const char *text = NULL, *time = NULL;
    const bool has_speed = cli_option(cli, "--steps-per-s", &text);
    char *end;
    *speed = (struct cli_speed){0};
    if (cli_option(cli, "--step-time", &time)) {
        const double step_s = strtod(time, &end);
        const double unit = strcmp(end, "ms") == 0 ? 1e-3 : strcmp(end, "s") == 0 ? 1.0 : 0.0;
        speed->steps_per_s = 1.0 / (step_s * unit);
        if (has_speed)
            return cli_fail(TW_EXIT_USAGE, "--step-time and --steps-per-s both give the speed: "
                                           "use one of them");
        if (step_s * unit > 1e-6 && step_s * unit < 1e6) return TW_EXIT_OK;
        return cli_fail(TW_EXIT_USAGE,
                        "--step-time %s: write the time of an inner step with its unit, such as "
                        "0.8s or 250ms",
                        time);
    }
    if (!has_speed) return TW_EXIT_OK;
    speed->steps_per_s = strtod(text, &end);
    if (*end == 0 && speed->steps_per_s > 1e-6 && speed->steps_per_s < 1e6) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE, "--steps-per-s %s: a number above 0, such as 2.5", text);
}

struct cli_pace cli_speed_pace(const struct cli_speed *speed, const struct tw_run *run) {
    enum { GUESS = 10 };
    const uint64_t step_us = tw_run_step_us(run);
    if (speed->steps_per_s > 0) return (struct cli_pace){.steps_per_s = speed->steps_per_s};
    if (step_us > 0) return (struct cli_pace){.steps_per_s = 1e6 / (double)step_us};
    return (struct cli_pace){.steps_per_s = GUESS, .is_guess = true};
}

/* ---- the engine ------------------------------------------------------------------------------ */

/* In-memory files: the manifest that the engine reads, and the engine's output. */
struct talk {
    int manifest, out, err;
};

static int memory_open(const char *name) {
    return memfd_create(name, MFD_CLOEXEC);
}

static void talk_close(const struct talk *talk) {
    if (talk->manifest >= 0) (void)close(talk->manifest);
    if (talk->out >= 0) (void)close(talk->out);
    if (talk->err >= 0) (void)close(talk->err);
}

static bool talk_open(struct talk *talk, const struct tw_run *run) {
    char text[TW_MANIFEST_BYTES_MAX];
    size_t size;
    tw_run_encode(run, text, &size);
    talk->manifest = memory_open("manifest");
    talk->out = memory_open("said");
    talk->err = memory_open("refused");
    if (talk->manifest >= 0 && talk->out >= 0 && talk->err >= 0 &&
        write(talk->manifest, text, size) == (ssize_t)size)
        return true;
    talk_close(talk);
    return false;
}

/* The engine's options for a node's configuration. */
struct plan_words {
    char plan[8], device[32], threads[32], memory[48], compute[24], recompute[24], passes[32];
};

static void write_words(struct plan_words *words, const struct tw_compute_config *plan) {
    static const char *const COMPUTES[] = {"auto", "fp32", "bf16"};
    static const char *const RECOMPUTES[] = {"auto", "off", "on"};
    char device[TW_DEVICE_TEXT_BYTES];
#define WRITE(member, ...) (void)snprintf(words->member, sizeof(words->member), __VA_ARGS__)
    WRITE(plan, "--plan");
    WRITE(device, "--device=%s", tw_device_print(&plan->device, device));
    WRITE(threads, "--threads=%" PRIu32, plan->threads);
    WRITE(memory, "--memory=%" PRIu64 "B", (uint64_t)plan->memory_bytes);
    WRITE(compute, "--compute=%s", COMPUTES[plan->compute]);
    WRITE(recompute, "--recompute=%s", RECOMPUTES[plan->recompute]);
    WRITE(passes, "--micro-batch=%" PRIu32, plan->micro_batch);
#undef WRITE
}

static int spawn_engine(const struct talk *talk, const struct tw_compute_config *plan, pid_t *pid) {
    enum { MANIFEST_FD = 3 };
    char program[TW_PATH_BYTES], verb[] = "speed", option[] = "--run", manifest[] = "/dev/fd/3";
    struct plan_words words;
    posix_spawn_file_actions_t actions;
    const ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 32);
    if (size <= 0) return errno;
    program[size] = '\0';
    (void)snprintf(strrchr(program, '/') + 1, 24, "thinwire-engine");
    if (plan != NULL) write_words(&words, plan);
    char *const argv[] = {
        program,      verb,          option,       manifest,      plan != NULL ? words.plan : NULL,
        words.device, words.threads, words.memory, words.compute, words.recompute,
        words.passes, NULL};
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, talk->out, 1);
    (void)posix_spawn_file_actions_adddup2(&actions, talk->err, 2);
    (void)posix_spawn_file_actions_adddup2(&actions, talk->manifest, MANIFEST_FD);
    const int code = posix_spawn(pid, program, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Reads the text in a file, without the newline at its end and the program's name at its start. */
static const char *read_output(int fd, char *text, size_t capacity) {
    const ssize_t size = pread(fd, text, capacity - 1, 0);
    static const char name[] = "thinwire: ";
    text[size > 0 ? size : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return strncmp(text, name, sizeof(name) - 1) == 0 ? text + sizeof(name) - 1 : text;
}

static uint64_t bytes_of(const json_t *json, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(json, key));
}

static bool take_result(const char *text, bool is_plan, struct cli_speed *speed) {
    json_t *const json = json_loads(text, 0, NULL);
    const double step_s = json_number_value(json_object_get(json, "step_s"));
    (void)snprintf(speed->engine, sizeof(speed->engine), "%s", json_str(json, "engine"));
    speed->training_bytes = bytes_of(json, "training_bytes");
    speed->limit_bytes = bytes_of(json, "limit_bytes");
    speed->does_fit = json_is_true(json_object_get(json, "fits"));
    speed->host_bytes = bytes_of(json, "host_bytes");
    speed->device_bytes = bytes_of(json, "device_bytes");
    speed->device_limit_bytes = bytes_of(json, "device_limit_bytes");
    speed->library_bytes = bytes_of(json, "library_bytes");
    speed->sequences = (uint32_t)json_integer_value(json_object_get(json, "sequences"));
    speed->batch = (uint32_t)json_integer_value(json_object_get(json, "batch"));
    json_decref(json);
    if (is_plan) return speed->library_bytes > 0;
    if (!(step_s > 1e-6 && step_s < 1e6)) return false;
    speed->steps_per_s = 1 / step_s;
    speed->is_measured = true;
    return true;
}

/* Asks the engine for the speed, or with `plan` only for the memory. Returns "", or the reason why
 * there is no answer, in text[capacity]. */
static const char *ask_engine(const struct tw_run *run, const struct tw_compute_config *plan,
                              struct cli_speed *speed, char *text, size_t capacity) {
    const bool is_plan = plan != NULL;
    struct talk talk;
    pid_t pid = 0;
    int status = 0;
    if (!talk_open(&talk, run)) return strerror(errno);
    const int code = spawn_engine(&talk, plan, &pid);
    while (code == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    const char *why = code != 0 ? strerror(code) : "";
    if (code == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0 ||
                      !take_result(read_output(talk.out, text, capacity), is_plan, speed))) {
        why = read_output(talk.err, text, capacity);
        if (why[0] == '\0') why = "thinwire-engine ended without a message";
    }
    talk_close(&talk);
    return why;
}

enum tw_exit cli_speed_measure(const struct tw_run *run, struct cli_speed *speed) {
    char text[1024];
    if (isatty(STDERR_FILENO) == 1) (void)fputs("measuring a step of this model ...", stderr);
    const char *const why = ask_engine(run, NULL, speed, text, sizeof(text));
    if (isatty(STDERR_FILENO) == 1) (void)fputs("\r\033[K", stderr);
    if (why[0] == '\0') return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "the time of a step cannot be measured here: %s; give it, such as --step-time "
                    "0.8s",
                    why);
}

bool cli_speed_plan(const struct tw_run *run, const struct tw_compute_config *compute,
                    struct cli_speed *speed) {
    char text[1024];
    const struct tw_compute_config none = {.threads = 0};
    return ask_engine(run, compute != NULL ? compute : &none, speed, text, sizeof(text))[0] == '\0';
}
