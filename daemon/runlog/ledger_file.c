#include "daemon/runlog/ledger_file.h"

#include <stdlib.h>

#include "base/log.h"
#include "daemon/api/ledger.h"
#include "daemon/store/cache_file.h"

enum { MINUTE_US = 60 * 1000 * 1000 };

static const char FILE_NAME[] = "ledger";

struct tw_ledger_file {
    const char *folder;
    struct tw_ledger table;
    bool is_changed; /* changed since it was last saved */
    uint64_t due_us;
    char text[TW_LEDGER_TEXT_MAX]; /* scratch of loading and saving */
};

enum tw_status tw_ledger_file_open(struct tw_ledger_file **out, const char *folder,
                                   struct tw_error *err) {
    struct tw_ledger_file *const file = *out = calloc(1, sizeof(*file));
    if (file == NULL) return tw_fail(err, TW_NOMEM, "no memory for the ledger");
    file->folder = folder;
    const size_t size = tw_cache_file_load(folder, FILE_NAME, file->text, TW_LEDGER_TEXT_MAX);
    if (size > 0 && tw_ledger_decode(&file->table, file->text, size) != TW_OK)
        tw_log(TW_LOG_WARN, "ledger_damaged", "text=\"the ledger begins anew\"");
    return TW_OK;
}

const struct tw_ledger *tw_ledger_file_table(const struct tw_ledger_file *file) {
    return &file->table;
}

void tw_ledger_file_begin(struct tw_ledger_file *file, const struct tw_record *tip) {
    tw_ledger_begin(&file->table, tip);
}

void tw_ledger_file_note(struct tw_ledger_file *file, const struct tw_record *record) {
    tw_ledger_note(&file->table, record);
    file->is_changed = true;
}

static void save(struct tw_ledger_file *file) {
    if (!file->is_changed) return;
    const size_t size = tw_ledger_encode(&file->table, file->text);
    tw_cache_file_save(file->folder, FILE_NAME, file->text, size);
    file->is_changed = false;
}

void tw_ledger_file_tick(struct tw_ledger_file *file, uint64_t now_us) {
    if (now_us < file->due_us) return;
    file->due_us = now_us + MINUTE_US;
    save(file);
}

void tw_ledger_file_close(struct tw_ledger_file *file) {
    if (file != NULL) save(file);
}

void tw_ledger_file_free(struct tw_ledger_file *file) {
    free(file);
}
