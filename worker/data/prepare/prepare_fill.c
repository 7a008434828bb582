#include "worker/data/prepare/prepare_fill.h"

#include <string.h>

#include "base/assert.h"

void tw_prepare_fill_stop(struct tw_prepare_fill *fill, const struct tw_error *failure) {
    fill->block->failure = *failure;
    (void)tw_blocks_put(fill->reader->blocks, fill->block);
    fill->block = NULL;
}

void tw_prepare_fill_send(struct tw_prepare_fill *fill, enum tw_block_end end, uint64_t dropped) {
    struct tw_block *const block = fill->block;
    struct tw_block *next = NULL;
    struct tw_error err;
    const size_t rest = block->bytes - fill->cut_bytes;
    block->end = end;
    block->taken = fill->taken;
    enum tw_status status = tw_blocks_create(fill->reader->blocks, &next, &err);
    if (status == TW_OK) status = tw_block_reserve(next, rest, &err);
    if (status != TW_OK) {
        tw_block_destroy(next);
        tw_prepare_fill_stop(fill, &err);
        return;
    }
    next->file = block->file;
    next->kind = block->kind;
    next->at = block->at + fill->cut_bytes + dropped;
    next->bytes = rest;
    memcpy(next->text, block->text + fill->cut_bytes, rest);
    block->bytes = fill->cut_bytes;
    fill->cut_bytes = 0;
    fill->block = next;
    if (tw_blocks_put(fill->reader->blocks, block)) return;
    tw_block_destroy(next);
    fill->block = NULL;
}

void tw_prepare_fill_add(struct tw_prepare_fill *fill, struct tw_text_cut cut,
                         enum tw_document_fate fate) {
    struct tw_block *const block = fill->block;
    TW_ASSERT(block->documents_count < TW_BLOCK_DOCUMENTS_MAX);
    block->documents[block->documents_count++] =
        (struct tw_block_document){.at = fill->cut_bytes,
                                   .taken = cut.taken,
                                   .begin = fill->cut_bytes + cut.begin,
                                   .bytes = cut.bytes,
                                   .fate = fate};
    fill->cut_bytes += cut.taken;
}
