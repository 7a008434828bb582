#include "daemon/store/lineages_file.h"

#include <errno.h>
#include <string.h>

#include "daemon/store/durable.h"

enum { LINE_BYTES = TW_ID_HEX_BYTES /* size of a line in the file: an id in hex and a newline */ };

static const char FILE_NAME[] = "refused";

static enum tw_status parse(const char *text, size_t size, struct tw_lineages *list,
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
    memset(list, 0, sizeof(*list));
    const int file = ops->open(ops->ctx, dir, FILE_NAME);
    if (file == -ENOENT) return TW_OK;
    if (file < 0) return tw_fail(err, TW_IO, "cannot open `refused`: %s", strerror(-file));
    const int64_t size = ops->size(ops->ctx, file);
    enum tw_status status = TW_OK;
    if (size < 0 || size > (int64_t)sizeof(text) - 1) {
        status = tw_fail(err, TW_CORRUPT, "the file `refused` is too long: repair or remove it");
    } else {
        status = tw_durable_read(ops, file, FILE_NAME, text, (size_t)size, 0, err);
    }
    (void)ops->close(ops->ctx, file);
    return status == TW_OK ? parse(text, (size_t)size, list, err) : status;
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
    struct tw_durable file;
    const size_t size = list->count * (size_t)LINE_BYTES;
    for (uint32_t i = 0; i < list->count; i++) {
        char hex[TW_ID_HEX_BYTES];
        tw_id_hex(&list->ids[i], hex);
        hex[TW_ID_HEX_BYTES - 1] = '\n';
        memcpy(text + i * LINE_BYTES, hex, LINE_BYTES);
    }
    TW_TRY(tw_durable_begin(&file, ops, dir, FILE_NAME, size, err));
    const enum tw_status status = tw_durable_write(&file, text, size, 0, err);
    if (status != TW_OK) {
        tw_durable_abort(&file);
        return status;
    }
    return tw_durable_commit(&file, err);
}
