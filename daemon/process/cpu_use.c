#include "daemon/process/cpu_use.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, NUMBERS = 8, FIELDS_BEFORE_UTIME = 11, FIELDS_BEFORE_NICE = 3 };

/* Reads a decimal number after optional spaces. Returns false if there is none or it is too large.
 */
static bool read_number(const char **text, uint64_t *value) {
    while (**text == ' ') (*text)++;
    if (!isdigit((unsigned char)**text)) return false;
    *value = 0;
    for (; isdigit((unsigned char)**text); (*text)++) {
        const uint64_t digit = (uint64_t)(**text - '0');
        if (*value > (UINT64_MAX - digit) / 10) return false;
        *value = *value * 10 + digit;
    }
    return true;
}

enum tw_status tw_cpu_machine_parse(const char *text, struct tw_cpu_machine *machine,
                                    struct tw_error *err) {
    /* user nice system idle iowait irq softirq steal; the guest times after them are part of user
     * and nice */
    uint64_t numbers[NUMBERS] = {0}, all = 0;
    uint32_t count = 0;
    if (strncmp(text, "cpu ", 4) != 0)
        return tw_fail(err, TW_CORRUPT, "/proc/stat does not begin with the sum of all processors");
    for (text += 4; count < NUMBERS && read_number(&text, &numbers[count]); count++) {
        if (all > UINT64_MAX - numbers[count]) break;
        all += numbers[count];
    }
    /* Every kernel has the first four numbers. */
    if (count < 4 || (count < NUMBERS && *text != '\n' && *text != '\0'))
        return tw_fail(err, TW_CORRUPT, "/proc/stat: number %u of its first line is missing or bad",
                       count + 1);
    *machine = (struct tw_cpu_machine){.user = numbers[0], .system = numbers[2], .all = all};
    return TW_OK;
}

/* Skips one field, which ends at a space. */
static bool skip_field(const char **text) {
    while (**text == ' ') (*text)++;
    const char *const begin = *text;
    while (**text != ' ' && **text != '\n' && **text != '\0') (*text)++;
    return *text != begin;
}

enum tw_status tw_cpu_process_parse(const char *text, struct tw_cpu_process *process,
                                    struct tw_error *err) {
    struct tw_cpu_process read = {0};
    const char *at = strrchr(text, ')'); /* the process name may contain brackets and spaces */
    bool is_whole = at != NULL;
    if (is_whole) at++;
    for (uint32_t i = 0; i < FIELDS_BEFORE_UTIME && is_whole; i++) is_whole = skip_field(&at);
    is_whole = is_whole && read_number(&at, &read.user) && read_number(&at, &read.system);
    for (uint32_t i = 0; i < FIELDS_BEFORE_NICE && is_whole; i++) is_whole = skip_field(&at);
    while (is_whole && *at == ' ') at++;
    const bool is_negative = is_whole && *at == '-';
    uint64_t nice = 0;
    if (is_negative) at++;
    if (!is_whole || !read_number(&at, &nice))
        return tw_fail(err, TW_CORRUPT, "the stat file of a process ends early");
    read.is_niced = !is_negative && nice > 0;
    *process = read;
    return TW_OK;
}

static uint64_t since(uint64_t before, uint64_t after) {
    return after > before ? after - before : 0;
}

double tw_cpu_others(const struct tw_cpu_look *before, const struct tw_cpu_look *after) {
    const uint64_t all = since(before->machine.all, after->machine.all);
    uint64_t user = since(before->machine.user, after->machine.user);
    uint64_t system = since(before->machine.system, after->machine.system);
    if (all == 0) return (double)NAN;
    for (uint32_t i = 0; i < TW_CPU_PROCESSES; i++) {
        const struct tw_cpu_process *use = &after->processes[i].use;
        static const struct tw_cpu_process NONE = {0};
        if (after->processes[i].pid == 0) continue;
        const bool is_same = before->processes[i].pid == after->processes[i].pid;
        const struct tw_cpu_process *was = is_same ? &before->processes[i].use : &NONE;
        if (!use->is_niced) user = since(since(was->user, use->user), user);
        system = since(since(was->system, use->system), system);
    }
    const uint64_t busy = user + (system < user ? system : user);
    return busy < all ? (double)busy / (double)all : 1;
}

/* Reads the beginning of a file into text[STAT_BYTES]. */
static enum tw_status read_file(const char *path, char text[STAT_BYTES], struct tw_error *err) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t size = file >= 0 ? read(file, text, STAT_BYTES - 1) : -1;
    const int code = errno;
    if (file >= 0) (void)close(file);
    if (size < 0) return tw_fail(err, TW_IO, "%s: %s", path, strerror(code));
    text[size] = '\0';
    return TW_OK;
}

static enum tw_status read_process(pid_t pid, struct tw_cpu_process *use, struct tw_error *err) {
    char path[64], text[STAT_BYTES];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    TW_TRY(read_file(path, text, err));
    return tw_cpu_process_parse(text, use, err);
}

enum tw_status tw_cpu_look(struct tw_cpu_look *look, pid_t worker, struct tw_error *err) {
    char text[STAT_BYTES];
    struct tw_cpu_look seen = {.processes[0].pid = getpid(), .processes[1].pid = worker};
    TW_TRY(read_file("/proc/stat", text, err));
    TW_TRY(tw_cpu_machine_parse(text, &seen.machine, err));
    TW_TRY(read_process(seen.processes[0].pid, &seen.processes[0].use, err));
    if (worker != 0 && read_process(worker, &seen.processes[1].use, NULL) != TW_OK) {
        /* The worker has just ended, or /proc hides it because it belongs to another user. */
        errno = 0;
        const int nice = getpriority(PRIO_PROCESS, (id_t)worker);
        if (errno == 0 && nice <= 0)
            return tw_fail(err, TW_IO,
                           "the worker's time in /proc/%ld/stat is hidden, and its nice value is "
                           "%d: start it with a nice value above 0",
                           (long)worker, nice);
        seen.processes[1].pid = 0;
    }
    *look = seen;
    return TW_OK;
}
