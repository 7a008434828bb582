#include "daemon/store/reached_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/store/durable.h"

enum { TEXT_BYTES = 320 };

static const char FILE_NAME[] = "reached";

static enum tw_status parse(const char *text, struct tw_reached *reached, struct tw_error *err) {
    struct tw_reached read = {.rounds = 0};
    char hex[TW_ID_HEX_BYTES] = "";
    int end = 0;
    _Static_assert(TW_ID_HEX_BYTES == 65, "the width in the format");
    const int count = sscanf(text,
                             "thinwire reached 2\nlineage %64[0-9a-f]\nrounds %" SCNu64
                             "\nclock_tokens %" SCNu64 "\nstep %" SCNu64 "\ntokens %" SCNu64
                             "\norigin %" SCNx64 "\nunix_s %" SCNu64 "\nend%n",
                             hex, &read.rounds, &read.clock_tokens, &read.step, &read.tokens,
                             &read.origin, &read.unix_s, &end);
    if (count != 7 || end == 0 || !tw_id_parse(hex, &read.lineage) || read.unix_s == 0)
        return tw_fail(err, TW_CORRUPT, "the file `reached` is no note of a round: remove it");
    *reached = read;
    return TW_OK;
}

enum tw_status tw_reached_read(const struct tw_file_ops *ops, int dir, struct tw_reached *reached,
                               struct tw_error *err) {
    char text[TEXT_BYTES] = "";
    memset(reached, 0, sizeof(*reached));
    const int file = ops->open(ops->ctx, dir, FILE_NAME);
    if (file == -ENOENT) return TW_OK;
    if (file < 0) return tw_fail(err, TW_IO, "cannot open `reached`: %s", strerror(-file));
    const int64_t size = ops->size(ops->ctx, file);
    enum tw_status status = TW_OK;
    if (size < 0 || size > (int64_t)sizeof(text) - 1) {
        status = tw_fail(err, TW_CORRUPT, "the file `reached` is too long: remove it");
    } else {
        status = tw_durable_read(ops, file, FILE_NAME, text, (size_t)size, 0, err);
    }
    (void)ops->close(ops->ctx, file);
    return status == TW_OK ? parse(text, reached, err) : status;
}

enum tw_status tw_reached_write(const struct tw_file_ops *ops, int dir,
                                const struct tw_reached *reached, struct tw_error *err) {
    char text[TEXT_BYTES], hex[TW_ID_HEX_BYTES];
    struct tw_durable file;
    tw_id_hex(&reached->lineage, hex);
    const int size = snprintf(text, sizeof(text),
                              "thinwire reached 2\nlineage %s\nrounds %" PRIu64
                              "\nclock_tokens %" PRIu64 "\nstep %" PRIu64 "\ntokens %" PRIu64
                              "\norigin %016" PRIx64 "\nunix_s %" PRIu64 "\nend\n",
                              hex, reached->rounds, reached->clock_tokens, reached->step,
                              reached->tokens, reached->origin, reached->unix_s);
    TW_ASSERT(size > 0 && size < TEXT_BYTES);
    TW_TRY(tw_durable_begin(&file, ops, dir, FILE_NAME, (uint64_t)size, err));
    const enum tw_status status = tw_durable_write(&file, text, (size_t)size, 0, err);
    if (status != TW_OK) {
        tw_durable_abort(&file);
        return status;
    }
    return tw_durable_commit(&file, err);
}
