#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Atomic int level_max = TW_LOG_INFO;

const char *tw_log_level_name(enum tw_log_level level) {
    switch (level) {
    case TW_LOG_ERROR: return "error";
    case TW_LOG_WARN: return "warn";
    case TW_LOG_INFO: return "info";
    case TW_LOG_DEBUG: return "debug";
    }
    return "unknown";
}

void tw_log_set_level(enum tw_log_level level) {
    atomic_store(&level_max, (int)level);
}

/* Returns true if stderr is systemd's journal. JOURNAL_STREAM alone does not prove that: child
 * processes inherit it even if their stderr is a file. So its DEVICE:INODE is compared with those
 * of stderr. */
static bool is_journal(void) {
    const char *const text = getenv("JOURNAL_STREAM");
    struct stat file;
    char *end;
    if (text == NULL || fstat(STDERR_FILENO, &file) != 0) return false;
    const unsigned long long device = strtoull(text, &end, 10);
    if (*end != ':' || device != (unsigned long long)file.st_dev) return false;
    return strtoull(end + 1, NULL, 10) == (unsigned long long)file.st_ino;
}

static size_t prefix_write(char *line, size_t capacity, enum tw_log_level level) {
    static const int syslog_level[] = {3, 4, 6, 7};
    int size;
    if (is_journal()) {
        size = snprintf(line, capacity, "<%d>", syslog_level[level]);
    } else {
        struct timespec now;
        struct tm utc;
        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)gmtime_r(&now.tv_sec, &utc);
        char day[32];
        (void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc);
        size = snprintf(line, capacity, "ts=%s.%03ldZ ", day, now.tv_nsec / 1000000);
    }
    return size < 0 ? 0 : (size_t)size;
}

void tw_log(enum tw_log_level level, const char *event, const char *fmt, ...) {
    if ((int)level > atomic_load(&level_max)) return;
    char line[TW_LOG_LINE_BYTES_MAX];
    const size_t room = sizeof(line) - 1; /* for the newline */
    size_t size = prefix_write(line, room, level);
    int more =
        snprintf(line + size, room - size, "level=%s ev=%s ", tw_log_level_name(level), event);
    if (more > 0) size += (size_t)more;
    va_list args;
    va_start(args, fmt);
    more = vsnprintf(line + size, room - size, fmt, args);
    va_end(args);
    if (more > 0) size += (size_t)more;
    if (size > room - 1) size = room - 1;
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)line[i] < ' ' || line[i] == 127) line[i] = '?';
    }
    line[size++] = '\n';
    const ssize_t written = write(STDERR_FILENO, line, size);
    (void)written; /* a log has no place to report its own failure */
}

bool tw_log_may_say(struct tw_log_limit *limit, uint64_t now_us, uint64_t period_us,
                    uint64_t *held_back) {
    *held_back = limit->held_back;
    if (limit->said_us != 0 && now_us - limit->said_us < period_us) {
        limit->held_back++;
        return false;
    }
    limit->said_us = now_us;
    limit->held_back = 0;
    return true;
}
