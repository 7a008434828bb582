#include "daemon/config/quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "daemon/store/durable.h"

enum {
    LINE_BYTES_MAX = 96,
    FILE_BYTES_MAX = 32 + (TW_QUOTA_MONTHS + 2) * LINE_BYTES_MAX,
    DAY_S = 24 * 3600,
    MONTHS = 12,
    YEAR_BASE = 1900,
    YEAR_FIRST =
        2026, /* earliest plausible year: a clock that shows an earlier one was never set */
    YEAR_LAST = 9999,
};

static const char FILE_NAME[] = "traffic";

uint32_t tw_quota_month(int64_t unix_s) {
    const time_t at = (time_t)unix_s;
    struct tm local;
    tzset(); /* rereads the time zone, which may have changed */
    if (localtime_r(&at, &local) == NULL || local.tm_year + YEAR_BASE < YEAR_FIRST ||
        local.tm_year + YEAR_BASE > YEAR_LAST)
        return 0;
    return (uint32_t)(local.tm_year + YEAR_BASE) * MONTHS + (uint32_t)local.tm_mon;
}

void tw_quota_next(uint32_t month, char text[16]) {
    const uint32_t next = month + 1;
    if (month == 0)
        (void)snprintf(text, 16, "the next month");
    else
        (void)snprintf(text, 16, "%04u-%02u-01", (unsigned)(next / MONTHS) % 10000u,
                       (unsigned)(next % MONTHS) + 1);
}

/* Returns the row of a month, else a free row, else the row of the month furthest away. */
static struct tw_quota_row *row_of(struct tw_quota *quota, uint32_t month) {
    struct tw_quota_row *found = NULL;
    uint32_t far = 0;
    for (uint32_t i = 0; i < TW_QUOTA_MONTHS - 1; i++) {
        struct tw_quota_row *row = &quota->others[i];
        if (row->month == month) return row;
        const uint32_t apart = row->month == 0      ? UINT32_MAX
                               : row->month > month ? row->month - month
                                                    : month - row->month;
        if (found != NULL && apart <= far) continue;
        found = row;
        far = apart;
    }
    *found = (struct tw_quota_row){.month = 0};
    return found;
}

uint64_t tw_quota_line_bytes(uint64_t socket_bytes) {
    const uint64_t whole = socket_bytes / TW_SOCKET_PERCENT,
                   rest = socket_bytes % TW_SOCKET_PERCENT;
    return whole * 100 + rest * 100 / TW_SOCKET_PERCENT;
}

void tw_quota_add(struct tw_quota *quota, uint32_t month, uint64_t bytes) {
    if (month != 0 && quota->now.month == 0) {
        quota->now.month = month; /* traffic before the clock was set counts towards this month */
    } else if (month != 0 && month != quota->now.month) {
        struct tw_quota_row *row = row_of(quota, month);
        struct tw_quota_row before = *row;
        before.month = month;
        *row = quota->now;
        quota->now = before;
        quota->is_saved = false;
    }
    quota->now.bytes += bytes;
    if (bytes > 0) quota->is_saved = false;
}

void tw_quota_serve(struct tw_quota *quota, uint64_t bytes) {
    quota->now.served += bytes;
    if (bytes > 0) quota->is_saved = false;
}

/* Adds `more` to the sum of the day, after subtracting `less` of the bytes counted earlier. Returns
 * true if anything changed. */
static bool day_add(struct tw_quota_day *sum, int64_t unix_s, uint64_t more, uint64_t less) {
    const struct tw_quota_day before = *sum;
    const uint64_t day = unix_s > 0 ? (uint64_t)unix_s / DAY_S : 0;
    if (day > sum->day) sum->bytes = 0;
    if (less > sum->bytes) less = sum->bytes;
    sum->bytes += more - less;
    sum->day = day;
    return sum->day != before.day || sum->bytes != before.bytes;
}

void tw_quota_strangers(struct tw_quota *quota, int64_t unix_s, uint64_t more, uint64_t less) {
    if (day_add(&quota->strangers, unix_s, more, less)) quota->is_saved = false;
}

void tw_quota_outside(struct tw_quota *quota, int64_t unix_s, uint64_t more) {
    if (day_add(&quota->outside, unix_s, more, 0)) quota->is_saved = false;
}

/* ---- the file ------------------------------------------------------------------------------ */

static const char HEAD[] = "thinwire-traffic 2\n";
static const char STRANGERS[] = "strangers", OUTSIDE[] = "outside";

/* Reads a line such as "month 2026-11 bytes 1234" or "month 2026-11 bytes 1234 served 56". The
 * current month is the first line. Returns false for any other text. */
static bool line_read(const char **text, struct tw_quota_row *row) {
    unsigned year = 0, month = 0;
    uint64_t bytes = 0, served = 0;
    int end = 0, more = 0;
    if (sscanf(*text, "month %4u-%2u bytes %" SCNu64 "%n", &year, &month, &bytes, &end) != 3)
        return false;
    if (sscanf(*text + end, " served %" SCNu64 "%n", &served, &more) == 1 && (*text)[end] == ' ')
        end += more;
    if ((*text)[end] != '\n' || year < YEAR_FIRST || month < 1 || month > MONTHS) return false;
    *row =
        (struct tw_quota_row){.month = year * MONTHS + month - 1, .bytes = bytes, .served = served};
    *text += end + 1;
    return true;
}

/* Reads a line such as "strangers 20784 bytes 1234", whose first word is `word`. Files of older
 * versions have no such line. */
static bool day_read(const char **text, const char *word, struct tw_quota_day *sum) {
    const size_t length = strlen(word);
    int end = 0;
    if (strncmp(*text, word, length) != 0) return false;
    if (sscanf(*text + length, " %" SCNu64 " bytes %" SCNu64 "%n", &sum->day, &sum->bytes, &end) !=
        2)
        return false;
    if ((*text)[length] != ' ' || (*text)[length + (size_t)end] != '\n') return false;
    *text += length + (size_t)end + 1;
    return true;
}

static enum tw_status decode_rows(struct tw_quota *quota, const char *text, struct tw_error *err) {
    struct tw_quota_row rows[TW_QUOTA_MONTHS];
    struct tw_quota read = {.is_saved = true};
    uint32_t count = 0;
    bool is_good = strncmp(text, HEAD, sizeof(HEAD) - 1) == 0;
    if (is_good) text += sizeof(HEAD) - 1;
    while (is_good && *text == 'm') {
        is_good = count < TW_QUOTA_MONTHS && line_read(&text, &rows[count]);
        for (uint32_t i = 0; is_good && i < count; i++)
            is_good = rows[i].month != rows[count].month;
        count++;
    }
    if (is_good && *text == 's') is_good = day_read(&text, STRANGERS, &read.strangers);
    if (is_good && *text == 'o') is_good = day_read(&text, OUTSIDE, &read.outside);
    if (!is_good || count == 0 || *text != '\0')
        return tw_fail(err, TW_CORRUPT, "%s in the state folder is damaged: counting starts again",
                       FILE_NAME);
    read.now = rows[0];
    for (uint32_t i = 1; i < count; i++) read.others[i - 1] = rows[i];
    *quota = read;
    return TW_OK;
}

static size_t line_put(const struct tw_quota_row *row, char *text) {
    char served[40] = "";
    if (row->month == 0) return 0;
    if (row->served > 0) (void)snprintf(served, sizeof(served), " served %" PRIu64, row->served);
    const int size = snprintf(text, LINE_BYTES_MAX, "month %04u-%02u bytes %" PRIu64 "%s\n",
                              row->month / MONTHS, row->month % MONTHS + 1, row->bytes, served);
    TW_ASSERT(size > 0 && size < LINE_BYTES_MAX);
    return (size_t)size;
}

static size_t day_put(const char *word, const struct tw_quota_day *sum, char *text) {
    if (sum->bytes == 0) return 0;
    const int size = snprintf(text, LINE_BYTES_MAX, "%s %" PRIu64 " bytes %" PRIu64 "\n", word,
                              sum->day, sum->bytes);
    TW_ASSERT(size > 0 && size < LINE_BYTES_MAX);
    return (size_t)size;
}

enum tw_status tw_quota_load(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err) {
    char text[FILE_BYTES_MAX + 1];
    *quota = (struct tw_quota){0};
    const int file = ops->open(ops->ctx, dir, FILE_NAME);
    if (file == -ENOENT) return TW_OK;
    if (file < 0)
        return tw_fail(err, TW_IO, "%s in the state folder cannot be opened: %s", FILE_NAME,
                       strerror(-file));
    const int64_t size = ops->size(ops->ctx, file);
    enum tw_status status = TW_OK;
    if (size < 0 || size > FILE_BYTES_MAX) {
        status = tw_fail(err, TW_CORRUPT,
                         "%s in the state folder is damaged: counting starts again", FILE_NAME);
    } else {
        status = tw_durable_read(ops, file, FILE_NAME, text, (size_t)size, 0, err);
        text[size] = '\0';
    }
    (void)ops->close(ops->ctx, file);
    return status == TW_OK ? decode_rows(quota, text, err) : status;
}

enum tw_status tw_quota_save(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err) {
    char text[FILE_BYTES_MAX];
    struct tw_durable durable;
    if (quota->is_saved || quota->now.month == 0) return TW_OK;
    memcpy(text, HEAD, sizeof(HEAD));
    size_t size = sizeof(HEAD) - 1;
    size += line_put(&quota->now, text + size);
    for (uint32_t i = 0; i < TW_QUOTA_MONTHS - 1; i++)
        size += line_put(&quota->others[i], text + size);
    size += day_put(STRANGERS, &quota->strangers, text + size);
    size += day_put(OUTSIDE, &quota->outside, text + size);
    TW_ASSERT(size < sizeof(text));
    TW_TRY(tw_durable_begin(&durable, ops, dir, FILE_NAME, size, err));
    const enum tw_status status = tw_durable_write(&durable, text, size, 0, err);
    if (status != TW_OK) {
        tw_durable_abort(&durable);
        return status;
    }
    TW_TRY(tw_durable_commit(&durable, err));
    quota->is_saved = true;
    return TW_OK;
}
