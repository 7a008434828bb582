/* doctor_gpu.c - devices of the worker, as reported by thinwire-engine, which runs the same code.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/doctor/doctor.h"

enum { ANSWER_BYTES = 64 * 1024, PATIENCE_MS = 20 * 1000 };

extern char **environ;

static int64_t now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool find_engine(const struct doctor *doctor, char path[TW_PATH_BYTES]) {
    if (doctor->engine != NULL) {
        (void)snprintf(path, TW_PATH_BYTES, "%s", doctor->engine);
        return true;
    }
    const ssize_t size = readlink("/proc/self/exe", path, TW_PATH_BYTES - 32);
    if (size <= 0) return false;
    path[size] = '\0';
    (void)snprintf(strrchr(path, '/'), 32, "/thinwire-engine");
    return true;
}

/* Reads with a time limit, because a driver may hang. Returns the number of bytes. */
static size_t listen_to(int fd, char text[ANSWER_BYTES]) {
    const int64_t end_ms = now_ms() + PATIENCE_MS;
    size_t used = 0;
    while (used < ANSWER_BYTES - 1) {
        const int64_t left_ms = end_ms - now_ms();
        struct pollfd wanted = {.fd = fd, .events = POLLIN};
        const int ready = left_ms > 0 ? poll(&wanted, 1, (int)left_ms) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return 0;
        const ssize_t size = read(fd, text + used, ANSWER_BYTES - 1 - used);
        if (size < 0 && errno == EINTR) continue;
        if (size <= 0) break;
        used += (size_t)size;
    }
    return used;
}

/* Returns the output of `thinwire-engine info --json --device DEVICE`, or NULL. */
static json_t *ask_engine(const struct doctor *doctor, const char *device) {
    static char text[ANSWER_BYTES];
    char path[TW_PATH_BYTES], info[] = "info", as_json[] = "--json", option[32];
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid = 0;
    if (!find_engine(doctor, path) || pipe2(ends, O_CLOEXEC) != 0) return NULL;
    (void)snprintf(option, sizeof(option), "--device=%s", device);
    char *const argv[] = {path, info, as_json, option, NULL};
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    const int code = posix_spawn(&pid, path, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    const size_t size = code == 0 ? listen_to(ends[0], text) : 0;
    (void)close(ends[0]);
    if (code == 0) {
        if (size == 0) (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    return size > 0 ? json_loadb(text, size, 0, NULL) : NULL;
}

static const json_t *device_named(const json_t *answer, const char *name) {
    const json_t *const devices = json_at(answer, "devices");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *const device = json_array_get(devices, i);
        if (strcmp(json_str(device, "device"), name) == 0) return device;
    }
    return NULL;
}

static void say_gpu(struct doctor *doctor, const json_t *device) {
    char all[TW_UNITS_BYTES], left[TW_UNITS_BYTES];
    doctor_say(doctor, DOCTOR_OK, "gpu", NULL, "%s, %.64s, %s of %s free",
               json_str(device, "device"), json_str(device, "model"),
               tw_units_bytes(left, json_num(device, "memory_free_bytes")),
               tw_units_bytes(all, json_num(device, "memory_bytes")));
}

void doctor_gpu(struct doctor *doctor) {
    const struct tw_device_choice *const wanted = &doctor->config.worker.device;
    const bool is_there = access(doctor->nvidia, F_OK) == 0;
    char name[TW_DEVICE_TEXT_BYTES];
    if (wanted->kind == TW_DEVICE_CPU) {
        if (is_there)
            doctor_say(doctor, DOCTOR_OK, "gpu", NULL, "an NVIDIA GPU is here, but device = cpu");
        return;
    }
    json_t *const answer = ask_engine(doctor, tw_device_print(wanted, name));
    const char *const refusal = json_str(answer, "error"), *chosen = json_str(answer, "chosen");
    const char *const why = json_str(answer, "why_no_gpu");
    if (answer == NULL || refusal[0] != '\0') {
        const bool is_named = wanted->kind == TW_DEVICE_CUDA;
        doctor_say(doctor, is_named ? DOCTOR_FAIL : DOCTOR_SKIP, "gpu",
                   is_named ? "`thinwire info` lists the devices; device = auto takes a usable "
                              "one"
                            : NULL,
                   "%s", refusal[0] != '\0' ? refusal : "thinwire-engine reports no devices");
    } else if (device_named(answer, chosen) != NULL && strcmp(chosen, "cpu") != 0) {
        say_gpu(doctor, device_named(answer, chosen));
    } else if (is_there) {
        doctor_say(doctor, DOCTOR_WARN, "gpu", "fix that, or set device = cpu if that is intended",
                   "an NVIDIA GPU is here, but not used: %s", why);
    }
    json_decref(answer);
}
