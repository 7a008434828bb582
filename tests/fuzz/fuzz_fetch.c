/* fuzz_fetch.c - libFuzzer target: the fetcher against any order of events that a runtime can
 * deliver.
 *
 * The input is a list of events: two bytes each, and their arguments. Peers are unrestricted:
 * chunks and MISSING arrive at any time, with hash, index and size close to those of a request. The
 * runtime keeps its contract: every taken chunk is answered once, every CHECK once. The fetcher is
 * audited throughout. */
#include <stdlib.h>

#include "base/assert.h"
#include "sync/fetch/fetch_internal.h"
#include "tests/sync/fetch_audit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PEERS = 8, FILES_MAX = 12, PULLS_MAX = 512, SAME_TIME_TICKS_MAX = 4 };

static struct {
    const uint8_t *data;
    size_t size;
    uint64_t now_us;
    struct tw_fetch *fetch;
    void *memory;
    struct tw_fetch_file files[FILES_MAX];
    uint32_t files_count, index_bytes;
    bool is_started, has_files, is_up[PEERS];
    bool is_checking[FILES_MAX], is_index_checking;
    bool is_whole[FILES_MAX];
    struct tw_fetch_action pulls[PULLS_MAX]; /* the newest ones */
    uint32_t pulls_count;
    struct {
        bool is_open;
        uint32_t file, idx, size;
    } chunks[TW_FETCH_ASKED_MAX];
} rig;

static uint8_t take(void) {
    if (rig.size == 0) return 0;
    rig.size--;
    return *rig.data++;
}

static const struct tw_id index_name = {{0xDD}};

static const struct tw_fetch_file *file_at(uint32_t number) {
    static struct tw_fetch_file index;
    index = (struct tw_fetch_file){.hash = index_name, .bytes = rig.index_bytes};
    return number == TW_FETCH_INDEX ? &index : &rig.files[number];
}

/* ---- the runtime's side ---------------------------------------------------------------------- */

static void on_pull(const struct tw_fetch_action *pull) {
    TW_ASSERT(pull->peer < PEERS && rig.is_up[pull->peer]);
    TW_ASSERT(pull->count > 0 && pull->count <= TW_FETCH_WINDOW_MAX);
    TW_ASSERT(tw_id_equal(&pull->hash, &file_at(pull->file)->hash));
    if (pull->file != TW_FETCH_INDEX) {
        TW_ASSERT(pull->first + pull->count <= tw_fetch_chunks(&rig.files[pull->file]));
        TW_ASSERT(!rig.is_whole[pull->file]);
        TW_ASSERT(pull->first + pull->count == 1 || !tw_fetch_needs_first(rig.fetch, pull->file));
    }
    rig.pulls[rig.pulls_count++ % PULLS_MAX] = *pull;
}

static void drain(void) {
    struct tw_fetch_action action;
    while (tw_fetch_next_action(rig.fetch, &action)) {
        switch (action.kind) {
        case TW_FETCH_PULL: on_pull(&action); break;
        case TW_FETCH_CHECK:
            if (action.file == TW_FETCH_INDEX)
                rig.is_index_checking = true;
            else
                rig.is_checking[action.file] = true;
            break;
        case TW_FETCH_WHOLE:
            TW_ASSERT(!rig.is_whole[action.file]);
            rig.is_whole[action.file] = true;
            break;
        case TW_FETCH_STRIKE:
            TW_ASSERT(action.peer == TW_FETCH_NO_PEER || rig.is_up[action.peer]);
            TW_ASSERT(action.until_us > rig.now_us && action.count > 0);
            break;
        }
    }
    static struct tw_fetch_view view;
    tw_fetch_view(rig.fetch, rig.now_us, &view);
    uint32_t whole = 0;
    for (uint32_t i = 0; i < rig.files_count; i++) whole += rig.is_whole[i];
    TW_ASSERT(!rig.has_files || view.files_whole == whole);
    TW_ASSERT(view.bytes_here <= view.bytes_count && view.bytes_whole <= view.bytes_here);
    if (rig.size % 8 == 0)
        tw_fetch_audit(rig.fetch); /* a broken invariant stays broken, so sampling suffices */
}

static void feed(const struct tw_fetch_event *event) {
    tw_fetch_event(rig.fetch, event, rig.now_us);
    drain();
}

static void know(uint8_t how) {
    struct tw_error err;
    size_t bytes = 0;
    TW_ASSERT(tw_fetch_plan(rig.files, rig.files_count, &bytes, &err) == TW_OK);
    free(rig.memory);
    rig.memory = malloc(bytes > 0 ? bytes : 1);
    TW_ASSERT(rig.memory != NULL);
    tw_fetch_files(rig.fetch, rig.files, rig.files_count, rig.memory, rig.now_us);
    rig.has_files = true;
    for (uint32_t i = 0; i < rig.files_count; i++) {
        if ((how >> (i % 8) & 1) == 0) continue;
        tw_fetch_have_file(rig.fetch, i);
        rig.is_whole[i] = true;
    }
    drain();
}

/* ---- events -------------------------------------------------------------------------------- */

static void start(uint8_t how) {
    if (rig.is_started || rig.has_files) return;
    if (how < 128) {
        know(how);
        return;
    }
    rig.is_started = true;
    feed(&(struct tw_fetch_event){.kind = TW_FETCH_START, .id = index_name});
}

static void link_change(uint8_t how) {
    const uint16_t peer = how % PEERS;
    struct tw_fetch_event event = {.kind = TW_FETCH_PEER_UP, .peer = peer};
    event.id.bytes[0] = (uint8_t)(1 + how % (2 * PEERS)); /* a peer that returns, or a new one */
    if (rig.is_up[peer] && how < 240) event.kind = TW_FETCH_PEER_DOWN;
    rig.is_up[peer] = event.kind == TW_FETCH_PEER_UP;
    feed(&event);
}

static void arrive(const struct tw_fetch_arrival *arrival) {
    struct tw_fetch_taken taken;
    const enum tw_fetch_verdict verdict = tw_fetch_chunk(rig.fetch, arrival, &taken, rig.now_us);
    if (verdict == TW_FETCH_TAKE) {
        TW_ASSERT(taken.number < TW_FETCH_ASKED_MAX && !rig.chunks[taken.number].is_open);
        TW_ASSERT(arrival->size > 0 && arrival->size <= TW_CHUNK_BYTES_MAX);
        TW_ASSERT(tw_id_equal(&file_at(taken.file)->hash, &arrival->hash));
        rig.chunks[taken.number].is_open = true;
        rig.chunks[taken.number].file = taken.file;
        rig.chunks[taken.number].idx = arrival->idx;
        rig.chunks[taken.number].size = arrival->size;
    }
    drain();
}

/* Delivers the chunk of a PULL, or nearly that chunk. */
static void deliver(uint8_t how) {
    if (rig.pulls_count == 0) return;
    const uint32_t back = 1 + how % 16;
    if (back > rig.pulls_count) return;
    const struct tw_fetch_action *pull = &rig.pulls[(rig.pulls_count - back) % PULLS_MAX];
    const struct tw_fetch_file *file = file_at(pull->file);
    struct tw_fetch_arrival arrival = {.peer = pull->peer, .hash = pull->hash};
    uint64_t offset = 0;
    const uint8_t what = take();
    arrival.idx = pull->first + what % pull->count;
    tw_fetch_range(file, arrival.idx, &offset, &arrival.size);
    if (what > 248) arrival.size = how;
    if (what > 250) arrival.idx += how;
    if (what > 252) arrival.peer = how % TW_PEERS_MAX;
    arrive(&arrival);
}

static void stored(uint8_t how) {
    uint32_t row = how % TW_FETCH_ASKED_MAX;
    for (uint32_t i = 0; i < TW_FETCH_ASKED_MAX && !rig.chunks[row].is_open; i++)
        row = (row + 1) % TW_FETCH_ASKED_MAX;
    if (!rig.chunks[row].is_open) return;
    const uint8_t what = take();
    struct tw_fetch_event event = {.kind = TW_FETCH_STORED, .number = row};
    if (what > 230) event.result = what > 245 ? TW_FETCH_FAILED : TW_FETCH_WRONG;
    if (rig.chunks[row].file == TW_FETCH_INDEX && rig.chunks[row].idx == 0)
        event.index_bytes =
            what < 200 ? rig.index_bytes : 1 + 65535u * what; /* a size claimed by a lying peer */
    rig.chunks[row].is_open = false;
    feed(&event);
}

static void checked(uint8_t how) {
    struct tw_fetch_event event = {.kind = TW_FETCH_CHECKED, .file = how % FILES_MAX};
    const uint8_t what = take();
    if (what > 128) event.result = what > 192 ? TW_FETCH_FAILED : TW_FETCH_WRONG;
    if (rig.is_index_checking) {
        event.file = TW_FETCH_INDEX;
        rig.is_index_checking = false;
        feed(&event);
        /* The index is known now, unless the checked one was given up meanwhile. */
        static struct tw_fetch_view view;
        tw_fetch_view(rig.fetch, rig.now_us, &view);
        if (event.result == TW_FETCH_OK && view.stage == TW_FETCH_IDLE) know(0);
        return;
    }
    if (event.file >= rig.files_count || !rig.is_checking[event.file]) return;
    rig.is_checking[event.file] = false;
    feed(&event);
}

static void missing(uint8_t how) {
    struct tw_fetch_event event = {.kind = TW_FETCH_MISSING, .peer = how % PEERS};
    const uint32_t back = 1 + take() % 16;
    if (back <= rig.pulls_count) {
        const struct tw_fetch_action *pull = &rig.pulls[(rig.pulls_count - back) % PULLS_MAX];
        event.id = pull->hash;
        if (how < 200) event.peer = pull->peer;
    }
    feed(&event);
}

static void lost(uint8_t how) {
    const uint32_t file = how % FILES_MAX;
    if (!rig.has_files || file >= rig.files_count || how > 64) return;
    rig.is_whole[file] = false;
    feed(&(struct tw_fetch_event){.kind = TW_FETCH_LOST, .file = file});
}

static void have(uint8_t how) {
    const uint32_t file = how % FILES_MAX, idx = take();
    if (!rig.has_files || file >= rig.files_count || how > 96) return;
    if (rig.files[file].head_bytes == 0) {
        tw_fetch_have_file(rig.fetch, file);
        rig.is_whole[file] = true;
    } else if (idx < tw_fetch_chunks(&rig.files[file])) {
        tw_fetch_have(rig.fetch, file, idx);
    }
    drain();
}

static void pass_time(uint8_t how) {
    static const uint64_t spans_us[] = {1000,     50000,    400000,    3000000,
                                        11000000, 61000000, 3600000000};
    rig.now_us += spans_us[how % 7];
    uint32_t count = 0;
    do {
        feed(&(struct tw_fetch_event){.kind = TW_FETCH_TICK});
        TW_ASSERT(++count < SAME_TIME_TICKS_MAX); /* in a real runtime, this would be a busy loop */
    } while (tw_fetch_deadline(rig.fetch) <= rig.now_us);
}

static void begin(void) {
    struct tw_fetch *fetch = rig.fetch;
    void *memory = rig.memory;
    const uint8_t *data = rig.data;
    const size_t size = rig.size;
    memset(&rig, 0, sizeof(rig));
    rig.fetch = fetch;
    rig.memory = memory;
    rig.data = data;
    rig.size = size;
    rig.now_us = 1000000;
    if (rig.fetch == NULL) rig.fetch = aligned_alloc(64, (tw_fetch_bytes() + 63) / 64 * 64);
    TW_ASSERT(rig.fetch != NULL);
    rig.index_bytes = 1 + 3000 * (uint32_t)take();
    rig.files_count = take() % (FILES_MAX + 1);
    for (uint32_t i = 0; i < rig.files_count; i++) {
        const uint8_t what = take();
        struct tw_fetch_file *file = &rig.files[i];
        *file = (struct tw_fetch_file){.hash = {{1, (uint8_t)i}}};
        file->kind = (enum tw_fetch_kind)(what % 3);
        file->head_bytes = what % 16 == 0 ? 0 : 4096;
        file->bytes = file->head_bytes + 1 + (uint64_t)take() * (what > 200 ? 100000 : 8000);
        if (what == 255 && i > 0) file->hash = rig.files[0].hash; /* lists the same file twice */
    }
    const struct tw_id self = {{take()}};
    tw_fetch_init(rig.fetch, &self, rig.now_us);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const events[])(uint8_t) = {
        pass_time, link_change, start,  deliver, deliver, deliver, deliver, stored,
        stored,    stored,      stored, checked, missing, lost,    have,
    };
    if (size > 4096) return 0;
    rig.data = data;
    rig.size = size;
    begin();
    while (rig.size > 0) {
        const uint8_t which = take();
        events[which % (sizeof(events) / sizeof(events[0]))](take());
    }
    return 0;
}
