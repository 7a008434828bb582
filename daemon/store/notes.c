#include "daemon/store/notes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "daemon/store/file.h"

/* Reads the whole file into text[capacity], and terminates it. A missing file is empty. `way_out`
 * is for the error sentence of a file that is too long. */
static enum tw_status read_text(const struct tw_file_ops *ops, int dir, const char *name,
                                char *text, size_t capacity, size_t *length, const char *way_out,
                                struct tw_error *err) {
    text[0] = '\0';
    *length = 0;
    const int file = ops->open(ops->ctx, dir, name);
    if (file == -ENOENT) return TW_OK;
    if (file < 0) return tw_fail(err, TW_IO, "cannot open `%s`: %s", name, strerror(-file));
    const int64_t size = ops->size(ops->ctx, file);
    enum tw_status status = TW_OK;
    if (size < 0 || size > (int64_t)capacity - 1) {
        status = tw_fail(err, TW_CORRUPT, "the file `%s` is too long: %s", name, way_out);
    } else {
        status = tw_durable_read(ops, file, name, text, (size_t)size, 0, err);
    }
    (void)ops->close(ops->ctx, file);
    if (status != TW_OK) return status;
    text[size] = '\0';
    *length = (size_t)size;
    return TW_OK;
}

static enum tw_status write_text(const struct tw_file_ops *ops, int dir, const char *name,
                                 const char *text, size_t size, struct tw_error *err) {
    struct tw_durable file;
    TW_TRY(tw_durable_begin(&file, ops, dir, name, size, err));
    const enum tw_status status = tw_durable_write(&file, text, size, 0, err);
    if (status != TW_OK) {
        tw_durable_abort(&file);
        return status;
    }
    return tw_durable_commit(&file, err);
}

/* ==== refused lineages ======================================================================== */

enum { LINE_BYTES = TW_ID_HEX_BYTES /* size of a line in the file: an id in hex and a newline */ };

static const char REFUSED[] = "refused";

static enum tw_status parse_lineages(const char *text, size_t size, struct tw_lineages *list,
                                     struct tw_error *err) {
    for (size_t at = 0; at < size; at += LINE_BYTES) {
        char hex[TW_ID_HEX_BYTES];
        struct tw_id id;
        const bool is_line = size - at >= LINE_BYTES && text[at + LINE_BYTES - 1] == '\n';
        if (is_line) memcpy(hex, text + at, LINE_BYTES);
        hex[TW_ID_HEX_BYTES - 1] = '\0';
        if (!is_line || list->count == TW_REFUSED_MAX || !tw_id_parse(hex, &id)) {
            return tw_fail(err, TW_CORRUPT,
                           "line %u of the file `refused` is no lineage: repair or remove it",
                           (unsigned)(at / LINE_BYTES) + 1);
        }
        list->ids[list->count++] = id;
    }
    return TW_OK;
}

enum tw_status tw_lineages_read(const struct tw_file_ops *ops, int dir, struct tw_lineages *list,
                                struct tw_error *err) {
    char text[TW_REFUSED_MAX * LINE_BYTES + 1];
    size_t size;
    memset(list, 0, sizeof(*list));
    TW_TRY(read_text(ops, dir, REFUSED, text, sizeof(text), &size, "repair or remove it", err));
    return parse_lineages(text, size, list, err);
}

void tw_lineages_add(struct tw_lineages *list, const struct tw_id *id) {
    for (uint32_t i = 0; i < list->count; i++) {
        if (tw_id_equal(&list->ids[i], id)) return;
    }
    if (list->count == TW_REFUSED_MAX) {
        memmove(&list->ids[0], &list->ids[1], (TW_REFUSED_MAX - 1) * sizeof(list->ids[0]));
        list->count--;
    }
    list->ids[list->count++] = *id;
}

enum tw_status tw_lineages_write(const struct tw_file_ops *ops, int dir,
                                 const struct tw_lineages *list, struct tw_error *err) {
    char text[TW_REFUSED_MAX * LINE_BYTES];
    const size_t size = list->count * (size_t)LINE_BYTES;
    for (uint32_t i = 0; i < list->count; i++) {
        char hex[TW_ID_HEX_BYTES];
        tw_id_hex(&list->ids[i], hex);
        hex[TW_ID_HEX_BYTES - 1] = '\n';
        memcpy(text + i * LINE_BYTES, hex, LINE_BYTES);
    }
    return write_text(ops, dir, REFUSED, text, size, err);
}

/* ==== the farthest round ====================================================================== */

enum { TEXT_BYTES = 320 };

static const char REACHED[] = "reached";

static enum tw_status parse_reached(const char *text, struct tw_reached *reached,
                                    struct tw_error *err) {
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
    char text[TEXT_BYTES];
    size_t size;
    memset(reached, 0, sizeof(*reached));
    TW_TRY(read_text(ops, dir, REACHED, text, sizeof(text), &size, "remove it", err));
    return size > 0 ? parse_reached(text, reached, err) : TW_OK;
}

enum tw_status tw_reached_write(const struct tw_file_ops *ops, int dir,
                                const struct tw_reached *reached, struct tw_error *err) {
    char text[TEXT_BYTES], hex[TW_ID_HEX_BYTES];
    tw_id_hex(&reached->lineage, hex);
    const int size = snprintf(text, sizeof(text),
                              "thinwire reached 2\nlineage %s\nrounds %" PRIu64
                              "\nclock_tokens %" PRIu64 "\nstep %" PRIu64 "\ntokens %" PRIu64
                              "\norigin %016" PRIx64 "\nunix_s %" PRIu64 "\nend\n",
                              hex, reached->rounds, reached->clock_tokens, reached->step,
                              reached->tokens, reached->origin, reached->unix_s);
    TW_ASSERT(size > 0 && size < TEXT_BYTES);
    return write_text(ops, dir, REACHED, text, (size_t)size, err);
}
