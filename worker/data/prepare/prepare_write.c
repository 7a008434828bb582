#include "worker/data/prepare/prepare_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/whole_file.h"

enum { PLACE_BYTES = 160 };

void tw_prepare_writer_begin(struct tw_prepare_writer *writer) {
    const uint64_t file = writer->state.next.file;
    writer->before_bytes = 0;
    for (uint64_t i = 0; i < file; i++) writer->before_bytes += writer->inputs->files[i].bytes;
    /* offset in the file's text; a compressed file is shorter than its text */
    const uint64_t at = writer->state.next.at;
    const uint64_t bytes = file < writer->inputs->count ? writer->inputs->files[file].bytes : 0;
    writer->taken_bytes = writer->before_bytes + (at < bytes ? at : bytes);
    writer->is_end = false;
}

/* ---- the state ------------------------------------------------------------------------------- */

/* All files that the new state refers to are durable before the new state is written. Files that
 * only the old state referred to are removed after that. */
enum tw_status tw_prepare_save(struct tw_prepare_writer *writer, struct tw_error *err) {
    char *text;
    size_t size;
    TW_TRY(tw_prepare_pending_save(&writer->shards, err));
    tw_prepare_shards_sort(&writer->shards.dataset);
    writer->state.pending = writer->shards.pending;
    writer->state.dataset = writer->shards.dataset;
    TW_TRY(tw_prepare_state_encode(&writer->state, &text, &size, err));
    const enum tw_status status = tw_whole_file_write(writer->options->out, TW_PREPARE_STATE_FILE,
                                                      &(struct tw_range){text, size}, 1, err);
    free(text);
    if (status == TW_OK) tw_prepare_pending_forget(&writer->shards);
    return status;
}

/* ---- sources --------------------------------------------------------------------------------- */

static enum tw_status fail_empty(const struct tw_prepare_writer *writer, const char *name,
                                 struct tw_error *err) {
    if (writer->binary == NULL)
        return tw_fail(err, TW_DATA, "the source %s has no text: its files are empty or blank",
                       name);
    return tw_fail(err, TW_DATA,
                   "the source %.16s has no text: %.60s%s binary. Token numbers need no dataset: "
                   "`thinwire run new NAME --data FILE --set data.tokenizer=ids --set "
                   "model.vocab=N`",
                   name, tw_prepare_shown_path(writer->binary),
                   writer->binary_files > 1 ? " and others are" : " is");
}

static enum tw_status check_source(const struct tw_prepare_writer *writer, struct tw_error *err) {
    const struct tw_dataset *const dataset = &writer->shards.dataset;
    const char *const name = dataset->sources[writer->shards.source].name;
    bool has_train = false, has_heldout = dataset->heldout_millionths == 0;
    for (uint32_t i = 0; i < dataset->shards_count; i++) {
        if (dataset->shards[i].source != writer->shards.source) continue;
        if (dataset->shards[i].is_heldout) has_heldout = true;
        if (!dataset->shards[i].is_heldout) has_train = true;
    }
    if (has_train && has_heldout) return TW_OK;
    if (!has_train && !has_heldout) return fail_empty(writer, name, err);
    return tw_fail(
        err, TW_DATA,
        "none of the documents of the source %s is %s: they are too few, or copies of one another; "
        "give more text, cut it into shorter documents (--text lines), or choose another "
        "--heldout, "
        "with --restart",
        name, has_train ? "held out to measure the loss" : "left for training");
}

static enum tw_status end_source(struct tw_prepare_writer *writer, struct tw_error *err) {
    TW_TRY(tw_prepare_shards_close(&writer->shards, false, err));
    TW_TRY(tw_prepare_shards_close(&writer->shards, true, err));
    TW_TRY(check_source(writer, err));
    writer->binary = NULL;
    writer->binary_files = 0;
    return tw_prepare_save(writer, err);
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Keeps the message about the first skipped input. A path may contain control characters, but a
 * line of the state must not. */
static void keep_first_bad(struct tw_prepare_state *state, const char *sentence) {
    (void)snprintf(state->first_bad, sizeof(state->first_bad), "%s", sentence);
    for (char *at = state->first_bad; *at != 0; at++) {
        if ((unsigned char)*at < ' ') *at = '?';
    }
}

/* Describes where the document is, so that a person finds it, for example "a.jsonl:7". */
static void place_of(const struct tw_prepare_writer *writer, const struct tw_block *block,
                     uint32_t i, char place[PLACE_BYTES]) {
    const struct tw_block_document *const document = &block->documents[i];
    const char *const path = tw_prepare_shown_path(writer->inputs->files[block->file].path);
    const uint64_t line = writer->state.line + document->lines_before;
    if (block->kind == TW_INPUT_TAR) {
        (void)snprintf(place, PLACE_BYTES, "%s", path);
    } else if (block->kind == TW_INPUT_ARRAY || block->kind == TW_INPUT_OBJECTS) {
        (void)snprintf(place, PLACE_BYTES, "%s:%" PRIu64 ", record at byte %" PRIu64, path, line,
                       block->at + document->begin);
    } else {
        (void)snprintf(place, PLACE_BYTES, "%s:%" PRIu64, path, line);
    }
}

static enum tw_status take_bad(struct tw_prepare_writer *writer, const struct tw_block *block,
                               uint32_t i, struct tw_error *err) {
    if (i == block->bad_document && (!writer->options->skip_bad || writer->state.counts.bad == 0)) {
        char place[PLACE_BYTES];
        struct tw_error bad;
        place_of(writer, block, i, place);
        (void)tw_fail(&bad, TW_DATA, "%s: %s", place, block->bad.message);
        if (!writer->options->skip_bad) {
            writer->can_skip = true;
            if (err != NULL) *err = bad;
            return TW_DATA;
        }
        keep_first_bad(&writer->state, bad.message);
    }
    writer->state.counts.bad++;
    return TW_OK;
}

static enum tw_status take_document(struct tw_prepare_writer *writer, const struct tw_block *block,
                                    const struct tw_block_document *document,
                                    struct tw_error *err) {
    struct tw_prepare_counts *const counts = &writer->state.counts;
    const bool is_heldout = document->fate == TW_DOCUMENT_HELDOUT;
    if (!tw_prepare_shards_has_room(&writer->shards, is_heldout, document->tokens_count)) {
        TW_TRY(tw_prepare_shards_close(&writer->shards, is_heldout, err));
        if (!is_heldout) TW_TRY(tw_prepare_save(writer, err));
    }
    TW_TRY(tw_prepare_shards_add(&writer->shards, is_heldout,
                                 block->tokens.tokens + document->tokens_begin,
                                 document->tokens_count, err));
    counts->documents++;
    counts->tokens += document->tokens_count;
    counts->text_bytes += document->bytes;
    counts->invalid_bytes += document->invalid_bytes;
    counts->lost_bytes += document->lost_bytes;
    if (is_heldout) {
        counts->heldout_documents++;
        counts->heldout_tokens += document->tokens_count;
    }
    return TW_OK;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static enum tw_status end_file(struct tw_prepare_writer *writer, const struct tw_block *block,
                               struct tw_error *err) {
    struct tw_prepare_counts *const counts = &writer->state.counts;
    if (block->end == TW_BLOCK_FILE_END) {
        counts->files++;
        counts->kinds[block->kind]++;
    }
    if (block->end == TW_BLOCK_FILE_BINARY) {
        counts->binary_files++;
        if (writer->binary_files++ == 0) writer->binary = writer->inputs->files[block->file].path;
    }
    if (block->end == TW_BLOCK_FILE_EMPTY) counts->empty_files++;
    if (block->end == TW_BLOCK_FILE_BAD) {
        if (!writer->options->skip_bad) {
            writer->can_skip = true;
            if (err != NULL) *err = block->file_bad;
            return block->file_bad.status;
        }
        if (counts->bad++ == 0) keep_first_bad(&writer->state, block->file_bad.message);
    }
    writer->before_bytes += writer->inputs->files[block->file].bytes;
    writer->state.next = (struct tw_prepare_place){.file = block->file + 1};
    writer->state.line = 1;
    return TW_OK;
}

enum tw_status tw_prepare_write(struct tw_prepare_writer *writer, const struct tw_block *block,
                                struct tw_error *err) {
    if (block->failure.status != TW_OK) {
        if (err != NULL) *err = block->failure;
        return block->failure.status;
    }
    if (block->end == TW_BLOCK_INPUTS_END) {
        writer->is_end = true;
        return end_source(writer, err);
    }
    const uint32_t source = writer->inputs->files[block->file].source;
    if (source != writer->shards.source) {
        TW_TRY(end_source(writer, err));
        tw_prepare_shards_next_source(&writer->shards, source);
    }
    writer->taken_bytes = writer->before_bytes + block->taken;
    for (uint32_t i = 0; i < block->documents_count; i++) {
        const struct tw_block_document *const document = &block->documents[i];
        if (document->fate == TW_DOCUMENT_BAD) TW_TRY(take_bad(writer, block, i, err));
        if (document->fate == TW_DOCUMENT_PASSED) writer->state.counts.passed_members++;
        if (document->fate == TW_DOCUMENT_TRAIN || document->fate == TW_DOCUMENT_HELDOUT) {
            TW_TRY(take_document(writer, block, document, err));
        }
        writer->state.next.at = block->at + document->at + document->taken;
        writer->state.line += document->lines;
    }
    return block->end == TW_BLOCK_GOES_ON ? TW_OK : end_file(writer, block, err);
}
