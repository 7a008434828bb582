#include "daemon/config/quota.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "daemon/config/config.h"
#include "daemon/store/file.h"

/* ==== caps by the time of day ================================================================= */

static const char WANT[] = "entries such as 08:00-18:00 1mbit or 18-23 off, with commas between";
static const char WANT_OFF[] = "entries such as 08:00-18:00 off, with commas between";

static void skip_spaces(const char **text) {
    while (**text == ' ' || **text == '\t') (*text)++;
}

/* Reads at most `digits` decimal digits. Returns false if there is none. */
static bool read_number(const char **text, unsigned digits, unsigned *value) {
    unsigned read = 0;
    *value = 0;
    for (; read < digits && isdigit((unsigned char)**text); (*text)++, read++)
        *value = *value * 10 + (unsigned)(**text - '0');
    return read > 0;
}

/* Reads "8", "08:30" or "24:00". */
static bool read_minute(const char **text, uint16_t *minute) {
    unsigned hour = 0, minutes = 0;
    skip_spaces(text);
    if (!read_number(text, 2, &hour)) return false;
    if (**text == ':') {
        (*text)++;
        const char *const before = *text;
        if (!read_number(text, 2, &minutes) || *text - before != 2) return false;
    }
    if (hour * 60 + minutes > TW_DAY_MINUTES || minutes > 59) return false;
    *minute = (uint16_t)(hour * 60 + minutes);
    return true;
}

static enum tw_status read_entry(const char *text, bool wants_off, struct tw_hours_entry *entry,
                                 struct tw_error *err) {
    const char *const want = wants_off ? WANT_OFF : WANT;
    const char *at = text;
    const bool has_begin = read_minute(&at, &entry->begin_min);
    skip_spaces(&at);
    if (!has_begin || *at++ != '-' || !read_minute(&at, &entry->end_min) ||
        entry->begin_min == entry->end_min || entry->begin_min == TW_DAY_MINUTES)
        return tw_fail(err, TW_CONFIG, "`%.40s` names no hours; write %s", text, want);
    if (entry->end_min == 0) entry->end_min = TW_DAY_MINUTES;
    skip_spaces(&at);
    if (*at == '=') at++;
    skip_spaces(&at);
    entry->is_off = strcmp(at, "off") == 0;
    if (entry->is_off) return TW_OK;
    if (wants_off)
        return tw_fail(err, TW_CONFIG, "`%.40s` does not end with off; write %s", text, want);
    if (tw_rate_parse(at, &entry->bytes_per_s, NULL) != TW_OK || entry->bytes_per_s == 0)
        return tw_fail(err, TW_CONFIG, "`%.40s` ends with no rate and not with off; write %s", text,
                       want);
    return TW_OK;
}

static enum tw_status read_hours(const char *text, bool wants_off, struct tw_hours *hours,
                                 struct tw_error *err) {
    struct tw_hours read = {0};
    while (*text != '\0') {
        char entry[64];
        skip_spaces(&text);
        size_t size = strcspn(text, ",");
        const char *const next = text[size] == ',' ? text + size + 1 : text + size;
        while (size > 0 && (text[size - 1] == ' ' || text[size - 1] == '\t')) size--;
        if (size >= sizeof(entry))
            return tw_fail(err, TW_CONFIG, "`%.40s...` is too long; write %s", text,
                           wants_off ? WANT_OFF : WANT);
        memcpy(entry, text, size);
        entry[size] = '\0';
        text = next;
        if (size == 0) continue;
        if (read.count == TW_HOURS_MAX)
            return tw_fail(err, TW_CONFIG, "more than %d entries", TW_HOURS_MAX);
        TW_TRY(read_entry(entry, wants_off, &read.entries[read.count++], err));
    }
    *hours = read;
    return TW_OK;
}

enum tw_status tw_hours_parse(const char *text, struct tw_hours *hours, struct tw_error *err) {
    return read_hours(text, false, hours, err);
}

enum tw_status tw_hours_parse_off(const char *text, struct tw_hours *hours, struct tw_error *err) {
    return read_hours(text, true, hours, err);
}

void tw_hours_print(const struct tw_hours *hours, char *text, size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < hours->count && used < capacity; i++) {
        const struct tw_hours_entry *entry = &hours->entries[i];
        char rate[32] = "off";
        if (!entry->is_off) tw_rate_print(entry->bytes_per_s, rate, sizeof(rate));
        used += (size_t)snprintf(text + used, capacity - used, "%s%02u:%02u-%02u:%02u %s",
                                 i > 0 ? ", " : "", entry->begin_min / 60u, entry->begin_min % 60u,
                                 entry->end_min / 60u, entry->end_min % 60u, rate);
    }
}

static int find_entry(const struct tw_hours *hours, uint32_t minute) {
    for (uint32_t i = 0; i < hours->count; i++) {
        const struct tw_hours_entry *entry = &hours->entries[i];
        const bool is_over_midnight = entry->begin_min > entry->end_min;
        const bool has_begun = minute >= entry->begin_min, has_not_ended = minute < entry->end_min;
        if (is_over_midnight ? has_begun || has_not_ended : has_begun && has_not_ended)
            return (int)i;
    }
    return -1;
}

struct tw_hours_now tw_hours_at(const struct tw_hours *hours, uint32_t minute) {
    TW_ASSERT(minute < TW_DAY_MINUTES);
    const int at = find_entry(hours, minute);
    struct tw_hours_now now = {.until_min = TW_DAY_MINUTES};
    if (at >= 0) {
        now.is_off = hours->entries[at].is_off;
        now.bytes_per_s = hours->entries[at].bytes_per_s;
    }
    for (uint32_t step = 1; step < TW_DAY_MINUTES; step++) {
        if (find_entry(hours, (minute + step) % TW_DAY_MINUTES) == at) continue;
        now.until_min = (minute + step) % TW_DAY_MINUTES;
        break;
    }
    return now;
}

/* ==== the quota of the month ================================================================== */

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

/* ==== the budget of a round =================================================================== */

#define CREDIT_CYCLES 2.0 /* cycles of budget that can be saved up or overdrawn */
#define MEAN_CYCLES 2.0   /* cycles over which the rate of other traffic is averaged */
#define CYCLE_FLOOR_S 30.0

enum { SECOND_US = 1000 * 1000 };

void tw_allowance_init(struct tw_allowance *allowance, const struct tw_budget_config *config) {
    *allowance = (struct tw_allowance){.is_month = config->is_month};
    const double bytes = (double)config->bytes * (TW_SOCKET_PERCENT / 100.0);
    allowance->bytes_per_s = config->is_month ? bytes / TW_MONTH_S : bytes;
}

static double cycle_s(const struct tw_allowance *allowance) {
    return allowance->cycle_s > CYCLE_FLOOR_S ? allowance->cycle_s : CYCLE_FLOOR_S;
}

/* With a budget as a rate, little can be saved, because an idle line is not faster afterwards. A
 * monthly budget has a total: up to a day of it can be saved, and debt lasts until the month ends.
 */
static double clamp_credit(const struct tw_allowance *allowance, double credit) {
    const double saved_s = CREDIT_CYCLES * allowance->cycle_s;
    const double most_s = allowance->is_month && saved_s < DAY_S ? DAY_S : saved_s;
    const double owed_s = allowance->is_month ? TW_MONTH_S : CREDIT_CYCLES * cycle_s(allowance);
    double most = most_s * allowance->bytes_per_s;
    /* room for the credit of two contributions, so that one is always affordable */
    if (most < 2.0 * allowance->least) most = 2.0 * allowance->least;
    if (credit > most) return most;
    if (credit < -owed_s * allowance->bytes_per_s) return -owed_s * allowance->bytes_per_s;
    return credit;
}

void tw_allowance_look(struct tw_allowance *allowance, uint64_t now_us, uint64_t bytes) {
    if (!allowance->has_looked) {
        allowance->has_looked = true;
        allowance->started_us = allowance->at_us = now_us;
        allowance->bytes = bytes;
        return;
    }
    if (now_us <= allowance->at_us || bytes < allowance->bytes) return;
    const double passed_s = (double)(now_us - allowance->at_us) / SECOND_US;
    const double alive_s = (double)(now_us - allowance->started_us) / SECOND_US;
    const double moved = (double)(bytes - allowance->bytes);
    const double ours = moved < allowance->pending ? moved : allowance->pending;
    const double mean_s = MEAN_CYCLES * cycle_s(allowance);
    const double weight = passed_s / (alive_s < mean_s ? alive_s : mean_s);
    allowance->pending -= ours;
    allowance->rest_per_s +=
        (weight < 1.0 ? weight : 1.0) * ((moved - ours) / passed_s - allowance->rest_per_s);
    allowance->credit =
        clamp_credit(allowance, allowance->credit + allowance->bytes_per_s * passed_s - moved);
    allowance->at_us = now_us;
    allowance->bytes = bytes;
}

void tw_allowance_sent(struct tw_allowance *allowance, uint64_t bytes) {
    /* bytes of the last contribution that peers have not fetched yet are never fetched */
    allowance->pending = (double)bytes;
}

bool tw_allowance_ask(struct tw_allowance *allowance, const struct tw_allowance_ask *ask,
                      uint64_t *bytes_max) {
    *bytes_max = UINT64_MAX;
    if (allowance->bytes_per_s <= 0.0) return true;
    allowance->least = (double)ask->least + (double)ask->besides;
    if (ask->cycle_us > 0) allowance->cycle_s = (double)ask->cycle_us / SECOND_US;
    const double credit = allowance->credit - allowance->pending, least = (double)ask->least;
    double may = 0.0;
    if (ask->cycle_us > 0) {
        const double cycle = (double)ask->cycle_us / SECOND_US;
        const double known = (double)ask->besides / ask->share; /* for all fragments */
        const double seen = allowance->rest_per_s * cycle, rest = seen > known ? seen : known;
        may = ask->share * (allowance->bytes_per_s * cycle - rest + credit / CREDIT_CYCLES);
    }
    if (may < least && credit < allowance->least) return false;
    *bytes_max = may > least ? (uint64_t)may : ask->least;
    return true;
}

bool tw_allowance_is_hopeless(const struct tw_allowance *allowance) {
    return allowance->bytes_per_s > 0.0 && allowance->rest_per_s >= allowance->bytes_per_s;
}

void tw_allowance_deal(struct tw_allowance_part *parts, uint32_t parts_count, uint64_t bytes_max) {
    bool is_settled[TW_PARTS_MAX] = {false};
    TW_ASSERT(parts_count <= TW_PARTS_MAX);
    double left = (double)bytes_max;
    /* Each pass caps the parts whose links are too slow for their share, until no further part
     * exceeds its link. */
    for (uint32_t pass = 0; pass <= parts_count; pass++) {
        double elements = 0.0;
        bool is_changed = false;
        for (uint32_t k = 0; k < parts_count; k++)
            elements += is_settled[k] ? 0.0 : (double)parts[k].elements;
        const double each = elements > 0.0 ? left / elements : 0.0;
        for (uint32_t k = 0; k < parts_count; k++) {
            if (is_settled[k]) continue;
            const double wanted = each * (double)parts[k].elements;
            is_settled[k] = wanted > (double)parts[k].link_max;
            is_changed |= is_settled[k];
            parts[k].bytes_max = is_settled[k] ? parts[k].link_max : (uint64_t)wanted;
        }
        if (!is_changed) return;
        left = (double)bytes_max;
        for (uint32_t k = 0; k < parts_count; k++)
            left -= is_settled[k] ? (double)parts[k].bytes_max : 0.0;
    }
}
