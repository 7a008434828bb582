/* doctor_host.c - the machine: clock, memory, CPUs, kernel settings for links, and the devices of
 * the worker. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/units.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/doctor/doctor.h"
#include "proto/run/layout.h"

enum {
    FILES_WANTED = 512, /* descriptors for 64 peers with two connections each, handshakes, data and
                           libraries */
    /* Socket buffer for 40 Mbit/s over 200 ms: 1 MB in flight, for which the kernel needs twice as
     * much. */
    BUFFER_BYTES = 2 << 20,
};

bool doctor_proc(const struct doctor *doctor, const char *name, char *text, size_t capacity) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/proc/%s", doctor->root, name);
    FILE *const file = fopen(path, "re");
    if (file == NULL) return false;
    const size_t size = fread(text, 1, capacity - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    return size > 0;
}

static void look_at_clock(struct doctor *doctor) {
    struct timex clock = {0};
    /* start of 2025: an earlier clock is wrong, because this program is not that old */
    const time_t now = time(NULL), oldest = 1735689600;
    if (now < oldest) {
        doctor_say(doctor, DOCTOR_FAIL, "clock", "set it: `timedatectl set-ntp true` under systemd",
                   "this machine's clock is years behind");
        return;
    }
    const bool is_held = adjtimex(&clock) != TIME_ERROR && (clock.status & STA_UNSYNC) == 0;
    doctor_say(doctor, is_held ? DOCTOR_OK : DOCTOR_WARN, "clock",
               is_held ? NULL
                       : "`timedatectl set-ntp true`, or any NTP client (package "
                         "systemd-timesyncd, if there is none): tickets and certificates have "
                         "dates",
               is_held ? "synchronised by NTP, to %.0f ms" : "not synchronised by NTP",
               (double)clock.esterror / 1e3);
}

bool doctor_memory(const struct doctor *doctor, struct run_memory *memory) {
    const uint64_t free_bytes =
        doctor->root[0] != '\0' ? tw_machine_memory_at(doctor->root) : tw_machine_memory();
    return doctor->has_run && free_bytes < UINT64_MAX / 2 &&
           run_memory_weigh(memory, &doctor->config, &doctor->run, free_bytes,
                            doctor->status != NULL);
}

/* Says the same numbers as the daemon and `config check`. */
static void look_at_memory(struct doctor *doctor) {
    struct run_memory memory;
    struct run_memory_lack lack = {.way_out = NULL};
    char line[RUN_MEMORY_TEXT_BYTES];
    if (!doctor_memory(doctor, &memory)) {
        doctor_say(doctor, DOCTOR_SKIP, "memory", NULL, "needs the manifest and /proc/meminfo");
        return;
    }
    const uint64_t wants = memory.daemon_bytes + memory.worker_bytes;
    const bool is_short = run_memory_lacks(&memory, &lack),
               is_close = memory.host_free_bytes < wants / 2 * 3;
    doctor_say(doctor,
               is_short   ? DOCTOR_FAIL
               : is_close ? DOCTOR_WARN
                          : DOCTOR_OK,
               "memory",
               is_short   ? lack.way_out
               : is_close ? "leave that memory to the node, or train a smaller model"
                          : NULL,
               "%s; snapshots %s%s%s", run_memory_line(&memory, line) + strlen("memory: "),
               tw_memory_plan_snapshot(&memory.plan), is_short ? ": " : "",
               is_short ? lack.text : "");
}

static void look_at_processors(struct doctor *doctor) {
    char text[128];
    const uint32_t count = tw_machine_processors();
    double load = 0;
    if (doctor_proc(doctor, "loadavg", text, sizeof(text))) load = strtod(text, NULL);
    const bool is_busy = doctor->status == NULL && load > (double)count * 1.5;
    doctor_say(doctor, is_busy ? DOCTOR_WARN : DOCTOR_OK, "device",
               is_busy
                   ? "other programs take CPU time from training: stop them, or set node.threads"
                   : NULL,
               "%" PRIu32 " processor%s, load %.1f", count, tw_units_s((double)count), load);
}

static void look_at_worker(struct doctor *doctor) {
    char path[TW_PATH_BYTES];
    const char *const named = doctor->config.node.worker_path;
    ssize_t size = 0;
    if (!doctor->config.node.spawn_worker) {
        doctor_say(doctor, DOCTOR_OK, "worker", NULL, "started by another service, as configured");
        return;
    }
    if (doctor->config.node.worker_command[0] != '\0') {
        doctor_say(doctor, DOCTOR_OK, "worker", NULL, "your own trainer: %.300s",
                   doctor->config.node.worker_command);
        return;
    }
    if (named[0] == '\0' && doctor->has_run && tw_run_check_engine(&doctor->run, NULL) != TW_OK) {
        doctor_say(doctor, DOCTOR_OK, "worker", NULL,
                   "your own trainer, which attaches to %.300s/worker.sock",
                   doctor->config.node.run_dir);
        return;
    }
    if (named[0] != '\0') {
        (void)snprintf(path, sizeof(path), "%s", named);
    } else if ((size = readlink("/proc/self/exe", path, sizeof(path) - 32)) > 0) {
        path[size] = '\0';
        char *const slash = strrchr(path, '/');
        (void)snprintf(slash, 32, "/thinwire-worker");
    }
    const bool is_there = access(path, X_OK) == 0;
    doctor_say(doctor, is_there ? DOCTOR_OK : DOCTOR_FAIL, "worker",
               is_there ? NULL : "set node.worker_path, or install it beside thinwired", "%s%s%s",
               path, is_there ? "" : ": ", is_there ? "" : strerror(errno));
}

/* The limit of this shell is that of a daemon started from it, but not of a service. */
static void look_at_files(struct doctor *doctor) {
    struct rlimit limit;
    if (cli_is_service(doctor->config.path)) {
        doctor_say(doctor, DOCTOR_SKIP, "open.files", NULL,
                   "systemd sets the limit of a service: LimitNOFILE= of its unit");
        return;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const bool is_enough = limit.rlim_max >= FILES_WANTED;
    doctor_say(doctor, is_enough ? DOCTOR_OK : DOCTOR_WARN, "open.files",
               is_enough        ? NULL
               : geteuid() == 0 ? "raise it: `ulimit -Hn 4096` in the shell that starts the node"
                                : "only root can raise it: a line `* hard nofile 4096` in "
                                  "/etc/security/limits.d/thinwire.conf counts from the next "
                                  "login on",
               "a process may open %llu, %d are needed", (unsigned long long)limit.rlim_max,
               FILES_WANTED);
}

/* ---- kernel settings for links -------------------------------------------------------------- */

static bool has_word(const char *text, const char *word) {
    const size_t size = strlen(word);
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word)) {
        const bool is_begin = at == text || at[-1] == ' ' || at[-1] == '\t';
        if (is_begin && strchr(" \t\n", at[size]) != NULL)
            return true; /* strchr also finds the terminating NUL */
    }
    return false;
}

static void look_at_bbr(struct doctor *doctor) {
    char there[256] = "", allowed[256] = "";
    (void)doctor_proc(doctor, "sys/net/ipv4/tcp_available_congestion_control", there,
                      sizeof(there));
    (void)doctor_proc(doctor, "sys/net/ipv4/tcp_allowed_congestion_control", allowed,
                      sizeof(allowed));
    if (there[0] == '\0') {
        doctor_say(doctor, DOCTOR_SKIP, "bbr", NULL, "this kernel does not tell");
        return;
    }
    if (!has_word(there, "bbr"))
        doctor_say(doctor, DOCTOR_WARN, "bbr",
                   "`modprobe tcp_bbr`, and a line `tcp_bbr` in /etc/modules-load.d/thinwire.conf",
                   "not loaded: links with losses stay far below their rate");
    else if (geteuid() != 0 && !has_word(allowed, "bbr"))
        doctor_say(doctor, DOCTOR_WARN, "bbr",
                   "add it to net.ipv4.tcp_allowed_congestion_control in /etc/sysctl.d",
                   "loaded, but not permitted for this user");
    else
        doctor_say(doctor, DOCTOR_OK, "bbr", NULL, "links may use it");
}

/* Checks the third number of net.ipv4.tcp_wmem and similar files: the largest size of a buffer. */
static void look_at_buffer(struct doctor *doctor, const char *name, const char *check) {
    char path[64], text[128], fix[128];
    unsigned long long least = 0, usual = 0, most = 0;
    (void)snprintf(path, sizeof(path), "sys/net/ipv4/%s", name);
    if (!doctor_proc(doctor, path, text, sizeof(text)) ||
        sscanf(text, "%llu %llu %llu", &least, &usual, &most) != 3) {
        doctor_say(doctor, DOCTOR_SKIP, check, NULL, "this kernel does not tell");
        return;
    }
    const bool is_small = most < BUFFER_BYTES;
    (void)snprintf(fix, sizeof(fix), "sysctl -w net.ipv4.%s=\"%llu %llu 6291456\"", name, least,
                   usual);
    doctor_say(doctor, is_small ? DOCTOR_WARN : DOCTOR_OK, check, is_small ? fix : NULL,
               "net.ipv4.%s lets a buffer grow to %.1f MB, long paths need %.1f MB", name,
               (double)most / 1e6, (double)BUFFER_BYTES / 1e6);
}

void doctor_host(struct doctor *doctor) {
    look_at_clock(doctor);
    look_at_memory(doctor);
    look_at_processors(doctor);
    doctor_gpu(doctor);
    look_at_worker(doctor);
    look_at_files(doctor);
    look_at_bbr(doctor);
    look_at_buffer(doctor, "tcp_wmem", "buffers.send");
    look_at_buffer(doctor, "tcp_rmem", "buffers.take");
}

/* ---- devices, as thinwire-engine reports them, which runs the worker's code ------------------ */

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
