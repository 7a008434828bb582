#include "daemon/quota.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "daemon/durable.h"

enum { FILE_BYTES_MAX = 128, MONTHS = 12, YEAR_BASE = 1900 };

static const char FILE_NAME[] = "traffic";

uint32_t tw_quota_month(int64_t unix_s) {
    const time_t at = (time_t)unix_s;
    struct tm local;
    if (localtime_r(&at, &local) == NULL || local.tm_year < 70) return 0;
    return (uint32_t)(local.tm_year + YEAR_BASE) * MONTHS + (uint32_t)local.tm_mon;
}

void tw_quota_next(uint32_t month, char text[16]) {
    const uint32_t next = month + 1;
    (void)snprintf(text, 16, "%04u-%02u-01", (unsigned)(next / MONTHS) % 10000u,
                   (unsigned)(next % MONTHS) + 1);
}

void tw_quota_add(struct tw_quota *quota, uint32_t month, uint64_t bytes) {
    if (month > quota->month) {
        quota->month = month;
        quota->bytes = 0;
        quota->saved_bytes = UINT64_MAX; /* to be written */
    }
    quota->bytes += bytes;
}

static enum tw_status decode(struct tw_quota *quota, const char *text, struct tw_error *err) {
    unsigned year = 0, month = 0;
    uint64_t bytes = 0;
    int end = 0;
    const int found = sscanf(text, "thinwire-traffic 1\nmonth %4u-%2u\nbytes %" SCNu64 "\n%n",
                             &year, &month, &bytes, &end);
    if (found != 3 || text[end] != '\0' || year < 1970 || month < 1 || month > MONTHS)
        return tw_fail(err, TW_CORRUPT, "%s in the state folder is damaged: counting begins anew",
                       FILE_NAME);
    *quota =
        (struct tw_quota){.month = year * MONTHS + month - 1, .bytes = bytes, .saved_bytes = bytes};
    return TW_OK;
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
        status = tw_fail(err, TW_CORRUPT, "%s in the state folder is damaged: counting begins anew",
                         FILE_NAME);
    } else {
        status = tw_durable_read(ops, file, FILE_NAME, text, (size_t)size, 0, err);
        text[size] = '\0';
    }
    (void)ops->close(ops->ctx, file);
    return status == TW_OK ? decode(quota, text, err) : status;
}

enum tw_status tw_quota_save(struct tw_quota *quota, const struct tw_file_ops *ops, int dir,
                             struct tw_error *err) {
    char text[FILE_BYTES_MAX];
    struct tw_durable durable;
    if (quota->bytes == quota->saved_bytes || quota->month == 0) return TW_OK;
    const int size =
        snprintf(text, sizeof(text), "thinwire-traffic 1\nmonth %04u-%02u\nbytes %" PRIu64 "\n",
                 quota->month / MONTHS, quota->month % MONTHS + 1, quota->bytes);
    TW_ASSERT(size > 0 && (size_t)size < sizeof(text));
    TW_TRY(tw_durable_begin(&durable, ops, dir, FILE_NAME, (uint64_t)size, err));
    const enum tw_status status = tw_durable_write(&durable, text, (size_t)size, 0, err);
    if (status != TW_OK) {
        tw_durable_abort(&durable);
        return status;
    }
    TW_TRY(tw_durable_commit(&durable, err));
    quota->saved_bytes = quota->bytes;
    return TW_OK;
}
