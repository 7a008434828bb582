#include "worker/data/data.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "kernels/ops.h"
#include "proto/dataset.h"
#include "worker/data/corpus.h"
#include "worker/data/stream.h"

/* ---- curriculum ------------------------------------------------------------------------------ */

enum { FRACTION_BITS = 16, BLOCK_TOKENS = 1 << 14 };

struct rated {
    uint64_t surprisal; /* total over the window's tokens, which are equally many in all windows */
    uint32_t window;
};

/* log2(x) for x >= 1, in units of 1/65536, rounded down. Squaring y yields one fraction bit at a
 * time. */
static uint32_t log2_fixed(uint64_t x) {
    uint32_t whole = 63;
    while (x >> whole == 0) whole--;
    uint64_t y = whole >= 31 ? x >> (whole - 31) : x << (31 - whole); /* in [2^31, 2^32) */
    uint32_t value = whole;
    for (unsigned i = 0; i < FRACTION_BITS; i++) {
        y = y * y >> 31;
        const bool is_set = y >> 32 != 0;
        value = value << 1 | (is_set ? 1 : 0);
        if (is_set) y >>= 1;
    }
    return value;
}

struct work {
    struct tw_token_reader *reader;
    struct tw_token_file *file;
    uint64_t first, count; /* range of the tokens of all windows */
    uint32_t context;
    uint32_t tokens[BLOCK_TOKENS];
    uint32_t *bits; /* (vocab): count of each token, later its surprisal */
    struct rated *rated;
};

static enum tw_status count_tokens(struct work *work, struct tw_error *err) {
    for (uint64_t at = 0; at < work->count; at += BLOCK_TOKENS) {
        const uint64_t left = work->count - at;
        const uint32_t n = left < BLOCK_TOKENS ? (uint32_t)left : BLOCK_TOKENS;
        TW_TRY(tw_token_read(work->reader, work->file, work->first + at, n, work->tokens, err));
        for (uint32_t i = 0; i < n; i++) work->bits[work->tokens[i] & ~TW_TOKEN_UNSCORED]++;
    }
    return TW_OK;
}

static enum tw_status rate_windows(struct work *work, struct tw_error *err) {
    for (uint64_t at = 0; at < work->count; at += BLOCK_TOKENS) {
        const uint64_t left = work->count - at;
        const uint32_t n = left < BLOCK_TOKENS ? (uint32_t)left : BLOCK_TOKENS;
        TW_TRY(tw_token_read(work->reader, work->file, work->first + at, n, work->tokens, err));
        for (uint32_t i = 0; i < n; i++) {
            work->rated[(at + i) / work->context].surprisal +=
                work->bits[work->tokens[i] & ~TW_TOKEN_UNSCORED];
        }
    }
    return TW_OK;
}

static int by_surprisal(const void *a, const void *b) {
    const struct rated *const x = a, *const y = b;
    if (x->surprisal != y->surprisal) return x->surprisal < y->surprisal ? -1 : 1;
    return x->window < y->window ? -1 : x->window > y->window;
}

/* Sorts `windows` windows by difficulty: fills easiest (windows) with their indices, easiest first.
 * Window i begins at token `first` + i * context.
 *
 * Difficulty is the mean surprisal of a window's tokens under the token counts of all these
 * windows: word rarity, Platanios et al. 2019, arXiv 1903.09848, equation 2. Integer arithmetic,
 * with ties broken by index, gives the same order on every machine. Reads the tokens twice. Fails
 * with TW_DATA or TW_NOMEM. */
static enum tw_status sort_easiest(struct tw_token_reader *reader, struct tw_token_file *file,
                                   uint64_t first, uint32_t context, uint32_t windows,
                                   uint32_t *easiest, struct tw_error *err) {
    TW_ASSERT(reader->vocab <= UINT32_MAX);
    struct work *const work = calloc(1, sizeof(*work));
    uint32_t *const bits = calloc((size_t)reader->vocab, sizeof(*bits));
    struct rated *const rated = calloc(windows, sizeof(*rated));
    enum tw_status status = TW_OK;
    if (work == NULL || bits == NULL || rated == NULL) {
        status =
            tw_fail(err, TW_NOMEM, "no memory to sort %u windows for data.curriculum", windows);
    } else {
        work->reader = reader;
        work->file = file;
        work->first = first;
        work->count = (uint64_t)windows * context;
        work->context = context;
        work->bits = bits;
        work->rated = rated;
        for (uint32_t i = 0; i < windows; i++) rated[i].window = i;
        status = count_tokens(work, err);
    }
    if (status == TW_OK) {
        const uint32_t all = log2_fixed(work->count);
        for (uint64_t i = 0; i < reader->vocab; i++) {
            if (bits[i] > 0) bits[i] = all - log2_fixed(bits[i]);
        }
        status = rate_windows(work, err);
    }
    if (status == TW_OK) {
        qsort(rated, windows, sizeof(*rated), by_surprisal);
        for (uint32_t i = 0; i < windows; i++) easiest[i] = rated[i].window;
    }
    free(work);
    free(bits);
    free(rated);
    return status;
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Held-out tokens of one file. `before` is the number of held-out windows in earlier files that
 * have arrived. */
struct heldout {
    uint32_t file;
    uint64_t first, windows, before;
};

struct tw_data_inner {
    struct tw_corpus corpus;
    struct tw_token_reader reader;
    struct tw_stream stream;
    struct heldout *heldout; /* (heldout_files) */
    uint32_t heldout_files;
    uint64_t heldout_windows; /* held-out windows of files that have arrived */
    uint64_t easy_tokens;     /* length of the curriculum in tokens that this node draws */
    bool is_only_measured;    /* every window is held out, none is drawn */
    bool scores_all;          /* marks of answers are ignored: data.loss = all */
};

/* ---- does it match the run ------------------------------------------------------------------- */

static enum tw_status digest_file(struct tw_data_inner *inner, struct tw_id *digest,
                                  struct tw_error *err) {
    enum { BLOCK = 1 << 18 };
    struct tw_sha256_parts parts;
    struct tw_token_file *const file = &inner->corpus.files[0].tokens;
    TW_TRY(tw_token_open(&inner->reader, file, err));
    enum tw_status status = TW_OK;
    tw_sha256_begin(&parts);
    for (uint64_t at = 0; at < file->file_bytes && status == TW_OK; at += BLOCK) {
        const uint64_t left = file->file_bytes - at;
        const size_t size = left < BLOCK ? (size_t)left : BLOCK;
        status = tw_token_file_bytes(file->fd, file->path, at, inner->reader.bytes, size, err);
        if (status == TW_OK) tw_sha256_add(&parts, inner->reader.bytes, size);
    }
    *digest = tw_sha256_end(&parts);
    return status;
}

static enum tw_status check_digest(struct tw_data_inner *inner, const char *path,
                                   const struct tw_run *run, struct tw_error *err) {
    const struct tw_corpus *const corpus = &inner->corpus;
    const bool is_dataset = corpus->kind == TW_CORPUS_DATASET;
    struct tw_id found = corpus->digest;
    char wanted_hex[9], found_hex[9];
    if (tw_id_is_zero(&run->data.sha256)) return TW_OK;
    if (run->data.form == TW_FORM_DATASET && !is_dataset) {
        return tw_fail(
            err, TW_DATA,
            "%.120s is not a dataset, but the manifest names one: name its folder, or leave "
            "the data out and a node fetches them from the others",
            path);
    }
    if (run->data.form == TW_FORM_FILE && (is_dataset || corpus->files_count > 1)) {
        return tw_fail(err, TW_DATA,
                       "%.120s is a folder, and the manifest names one file by its SHA-256: name "
                       "that, or make a run for %s",
                       path,
                       is_dataset ? "the dataset"
                                  : "the dataset that `thinwire data prepare` makes of it");
    }
    if (!is_dataset) {
        TW_TRY(digest_file(inner, &found, err));
    }
    if (tw_id_equal(&found, &run->data.sha256)) return TW_OK;
    tw_id_short(&run->data.sha256, wanted_hex);
    tw_id_short(&found, found_hex);
    return tw_fail(err, TW_DATA,
                   "%.100s is not the %s of this run: its SHA-256 begins with %s, the manifest "
                   "wants %s; get the same %s as the other nodes",
                   path, is_dataset ? "dataset" : "text", found_hex, wanted_hex,
                   is_dataset ? "folder" : "file");
}

/* Opens all files that no hash identifies, so that replacing one on disk later has no effect. Reads
 * the first tokens of each, because a wrong vocabulary usually shows there. */
static enum tw_status open_unpinned(struct tw_data_inner *inner, struct tw_error *err) {
    struct tw_corpus *const corpus = &inner->corpus;
    if (corpus->about.vocab != 0) return TW_OK;
    uint32_t *const tokens = calloc(TW_TOKEN_READ_MAX, sizeof(*tokens));
    if (tokens == NULL) return tw_fail(err, TW_NOMEM, "no memory to read training data");
    enum tw_status status = TW_OK;
    for (uint32_t i = 0; i < corpus->files_count && i < TW_TOKEN_FILES_OPEN; i++) {
        struct tw_token_file *const file = &corpus->files[i].tokens;
        const uint64_t count = file->tokens_count;
        status = tw_token_open(&inner->reader, file, err);
        if (status == TW_OK) {
            status = tw_token_read(&inner->reader, file, 0,
                                   count < TW_TOKEN_READ_MAX ? (uint32_t)count : TW_TOKEN_READ_MAX,
                                   tokens, err);
        }
        if (status != TW_OK) break;
    }
    free(tokens);
    return status;
}

static enum tw_status check_run(struct tw_data_inner *inner, const char *path,
                                const struct tw_run *run, struct tw_error *err) {
    const struct tw_corpus *const corpus = &inner->corpus;
    struct tw_error why;
    const bool has_bytes = corpus->kind == TW_CORPUS_TEXT || corpus->about.vocab != 0;
    if (run->data.tokenizer == TW_TOKENIZER_BYTES && !has_bytes) {
        return tw_fail(err, TW_DATA,
                       "%.100s is %s, but data.tokenizer is bytes: make a run with --set "
                       "data.tokenizer=ids and the vocabulary of its tokenizer",
                       path, tw_corpus_kind_name(corpus->kind));
    }
    if (corpus->about.vocab != 0 && tw_dataset_check_run(&corpus->about, run, &why) != TW_OK) {
        return tw_fail(err, TW_DATA, "%.60s: %.185s", path, why.message);
    }
    return check_digest(inner, path, run, err);
}

/* ---- the split ------------------------------------------------------------------------------- */

static uint64_t share_of(uint64_t tokens, uint64_t millionths) {
    return tokens / 1000000 * millionths + tokens % 1000000 * millionths / 1000000;
}

/* Sets *end to the number of training tokens of data that do not declare their held-out part. */
static enum tw_status find_end(const struct tw_corpus *corpus, uint64_t tokens,
                               const struct tw_run *run, uint64_t *end, struct tw_error *err) {
    *end = tokens - share_of(tokens, run->data.heldout_millionths);
    if (corpus->kind != TW_CORPUS_MEGATRON || *end == tokens) return TW_OK;
    const struct tw_megatron *const pair = &corpus->megatron;
    TW_TRY(tw_megatron_boundary(pair, *end, end, err));
    if (*end < tokens) return TW_OK;
    /* The last document is longer than the held-out share: hold out all of it. */
    return tw_megatron_document(pair, pair->documents_count - 1, end, err);
}

static void add_heldout(struct tw_data_inner *inner, uint32_t file, uint64_t first,
                        uint64_t count) {
    const uint64_t windows = (count - 1) / inner->stream.context;
    inner->heldout[inner->heldout_files++] =
        (struct heldout){.file = file, .first = first, .windows = windows};
}

/* Splits the tokens of all files into training stretches and held-out windows. */
static enum tw_status split_files(struct tw_data *data, const struct tw_run *run,
                                  struct tw_error *err) {
    struct tw_data_inner *const inner = data->inner;
    const struct tw_corpus *const corpus = &inner->corpus;
    const bool is_weighted = corpus->about.sources[0].weight_millionths > 0;
    uint64_t left = 0; /* training tokens not yet assigned, if the end of the data is held out */
    inner->heldout = calloc(corpus->files_count, sizeof(*inner->heldout));
    if (inner->heldout == NULL) return tw_fail(err, TW_NOMEM, "no memory for a list of files");
    if (!corpus->has_heldout && !inner->is_only_measured) {
        TW_TRY(find_end(corpus, data->tokens_count, run, &left, err));
    }
    for (uint32_t i = 0; i < corpus->files_count; i++) {
        const struct tw_corpus_file *const file = &corpus->files[i];
        const uint64_t count = file->tokens.tokens_count;
        uint64_t train = left < count ? left : count;
        if (corpus->has_heldout) train = file->is_heldout || inner->is_only_measured ? 0 : count;
        left -= corpus->has_heldout ? 0 : train;
        data->train_count += train;
        if (train < count) add_heldout(inner, i, train, count - train);
        if (train == 0) continue;
        const uint32_t source = is_weighted ? file->source : 0;
        TW_TRY(tw_stream_add(&inner->stream, source, i, 0, train, err));
    }
    data->heldout_count = data->tokens_count - data->train_count;
    if (inner->is_only_measured) return TW_OK;
    if (!is_weighted) return tw_stream_finish(&inner->stream, NULL, err);
    uint32_t weights[TW_DATASET_SOURCES_MAX];
    for (uint32_t i = 0; i < corpus->about.sources_count; i++) {
        weights[i] = corpus->about.sources[i].weight_millionths;
    }
    return tw_stream_finish(&inner->stream, weights, err);
}

static enum tw_status check_windows(const struct tw_data *data, const char *path,
                                    struct tw_error *err) {
    const struct tw_data_inner *const inner = data->inner;
    const struct tw_corpus *const corpus = &inner->corpus;
    uint64_t heldout = 0;
    for (uint32_t i = 0; i < inner->heldout_files; i++) heldout += inner->heldout[i].windows;
    if (inner->is_only_measured) {
        if (heldout > 0) return TW_OK;
        return tw_fail(err, TW_DATA,
                       "%.120s has %" PRIu64 " tokens, too few for one window of %" PRIu32
                       ": measure a longer text",
                       path, data->tokens_count, data->context + 1);
    }
    const uint32_t sources = inner->stream.has_mixture ? corpus->about.sources_count : 1;
    bool is_enough = inner->stream.sources_count == sources;
    is_enough = is_enough && (data->heldout_count == 0 || heldout > 0);
    for (uint32_t i = 0; i < inner->stream.sources_count; i++) {
        is_enough = is_enough && inner->stream.sources[i].windows > 0;
    }
    if (is_enough) return TW_OK;
    /* same wording as `config check` (cli/run/data_path.c) */
    if (corpus->kind == TW_CORPUS_DATASET) {
        return tw_fail(
            err, TW_DATA,
            "%.80s: for training or held out no shard%s has the %" PRIu32 " tokens of one window: "
            "prepare it with more text or larger --shard-tokens, or use a shorter context",
            path, sources > 1 ? " of a source" : "", data->context + 1);
    }
    return tw_fail(err, TW_DATA,
                   "training text %.80s has %" PRIu64 " %s%s, too few for one window of %" PRIu32
                   " on either side of the held-out split: use a longer text or a shorter context",
                   path, data->tokens_count, corpus->kind == TW_CORPUS_TEXT ? "bytes" : "tokens",
                   sources > 1 ? " in several sources" : "", data->context + 1);
}

/* ---- files present --------------------------------------------------------------------------- */

static void update_files(struct tw_data *data) {
    struct tw_data_inner *const inner = data->inner;
    const struct tw_corpus *const corpus = &inner->corpus;
    data->files_count = corpus->files_count;
    data->files_here = 0;
    for (uint32_t i = 0; i < corpus->files_count; i++) {
        data->files_here += corpus->files[i].is_here ? 1 : 0;
    }
    for (uint32_t i = 0; i < inner->stream.stretches_count; i++) {
        struct tw_stretch *const stretch = &inner->stream.stretches[i];
        stretch->is_here = corpus->files[stretch->file].is_here;
    }
    tw_stream_update(&inner->stream);
    inner->heldout_windows = 0;
    for (uint32_t i = 0; i < inner->heldout_files; i++) {
        inner->heldout[i].before = inner->heldout_windows;
        if (corpus->files[inner->heldout[i].file].is_here) {
            inner->heldout_windows += inner->heldout[i].windows;
        }
    }
}

void tw_data_refresh(struct tw_data *data) {
    if (data->files_here == data->files_count) return;
    if (tw_corpus_refresh(&data->inner->corpus)) update_files(data);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum tw_status open_inner(struct tw_data *data, const char *path, const struct tw_run *run,
                                 struct tw_error *err) {
    struct tw_data_inner *const inner = data->inner;
    const struct tw_corpus_hint hint = {.is_ids = run->data.tokenizer == TW_TOKENIZER_IDS,
                                        .vocab = run->model.vocab};
    TW_TRY(tw_token_reader_init(&inner->reader, run->model.vocab, err));
    TW_TRY(tw_corpus_open(&inner->corpus, path, &hint, err));
    TW_TRY(check_run(inner, path, run, err));
    TW_TRY(open_unpinned(inner, err));
    data->bytes = inner->corpus.bytes;
    data->tokens_count =
        tw_corpus_tokens(&inner->corpus, false) + tw_corpus_tokens(&inner->corpus, true);
    inner->stream.context = run->model.context;
    inner->scores_all = run->data.loss == TW_LOSS_ALL;
    TW_TRY(split_files(data, run, err));
    TW_TRY(check_windows(data, path, err));
    const uint64_t planned = run->train.tokens / run->sync.nodes;
    inner->easy_tokens = share_of(planned, run->data.curriculum_millionths);
    update_files(data);
    if (inner->stream.here_count > 0 || inner->is_only_measured) return TW_OK;
    return tw_fail(err, TW_AGAIN,
                   "%.120s has no whole shard for training yet: fetch or copy those that its index "
                   "names",
                   path);
}

static enum tw_status open_data(struct tw_data *data, const char *path, const struct tw_run *run,
                                bool is_only_measured, struct tw_error *err) {
    *data =
        (struct tw_data){.context = run->model.context, .inner = calloc(1, sizeof(*data->inner))};
    if (data->inner == NULL) return tw_fail(err, TW_NOMEM, "no memory to read training data");
    data->inner->is_only_measured = is_only_measured;
    const enum tw_status status = open_inner(data, path, run, err);
    if (status != TW_OK) tw_data_close(data);
    return status;
}

enum tw_status tw_data_open(struct tw_data *data, const char *path, const struct tw_run *run,
                            struct tw_error *err) {
    return open_data(data, path, run, false, err);
}

enum tw_status tw_data_open_whole(struct tw_data *data, const char *path, const struct tw_run *run,
                                  struct tw_error *err) {
    return open_data(data, path, run, true, err);
}

void tw_data_close(struct tw_data *data) {
    struct tw_data_inner *const inner = data->inner;
    if (inner != NULL) {
        tw_token_reader_deinit(&inner->reader);
        tw_stream_deinit(&inner->stream);
        free(inner->heldout);
        tw_corpus_close(&inner->corpus);
        free(inner);
    }
    *data = (struct tw_data){0};
}

/* ---- windows --------------------------------------------------------------------------------- */

static enum tw_status read_window(struct tw_data_inner *inner, uint32_t file, uint64_t first,
                                  uint32_t *tokens, struct tw_error *err) {
    const uint32_t count = inner->stream.context + 1;
    TW_TRY(tw_token_read(&inner->reader, &inner->corpus.files[file].tokens, first, count, tokens,
                         err));
    for (uint32_t i = 0; i < count && inner->scores_all; i++) tokens[i] &= ~TW_TOKEN_UNSCORED;
    return TW_OK;
}

/* Draws a window while the curriculum lasts. The windows of a stretch (stream.h) are sorted at the
 * first draw from it. */
static enum tw_status draw_easy(struct tw_data_inner *inner, uint64_t seed, uint64_t cursor,
                                uint32_t *tokens, struct tw_error *err) {
    const uint32_t context = inner->stream.context;
    const uint32_t share = tw_order_competence(cursor, inner->easy_tokens);
    const struct tw_window window =
        tw_stream_easy_window(&inner->stream, seed, cursor / context, share);
    struct tw_stretch *const stretch = &inner->stream.stretches[window.stretch];
    if (stretch->easiest == NULL) {
        uint32_t *const easiest = calloc((size_t)stretch->windows, sizeof(*easiest));
        if (easiest == NULL) return tw_fail(err, TW_NOMEM, "no memory for data.curriculum");
        const enum tw_status status =
            sort_easiest(&inner->reader, &inner->corpus.files[stretch->file].tokens, stretch->first,
                         context, (uint32_t)stretch->windows, easiest, err);
        if (status != TW_OK) {
            free(easiest);
            return status;
        }
        stretch->easiest = easiest;
    }
    const uint64_t first = stretch->first + (uint64_t)stretch->easiest[window.index] * context;
    return read_window(inner, stretch->file, first, tokens, err);
}

static enum tw_status draw(struct tw_data_inner *inner, uint64_t seed, uint64_t cursor,
                           uint32_t *tokens, struct tw_error *err) {
    if (cursor < inner->easy_tokens) return draw_easy(inner, seed, cursor, tokens, err);
    const struct tw_window window =
        tw_stream_window(&inner->stream, seed, cursor / inner->stream.context);
    const struct tw_stretch *const stretch = &inner->stream.stretches[window.stretch];
    return read_window(inner, stretch->file, tw_stream_first(&inner->stream, &window), tokens, err);
}

enum tw_status tw_data_draw(struct tw_data *data, uint64_t seed, uint64_t *cursor,
                            uint32_t sequences_count, uint32_t *tokens, struct tw_error *err) {
    uint64_t at = *cursor;
    for (uint32_t i = 0; i < sequences_count; i++) {
        TW_TRY(draw(data->inner, seed, at, tokens, err));
        tokens += data->context + 1;
        at += data->context;
    }
    *cursor = at;
    return TW_OK;
}

uint64_t tw_data_heldout_count(const struct tw_data *data) {
    return data->inner->heldout_windows;
}

enum tw_status tw_data_heldout(struct tw_data *data, uint64_t i, uint64_t count, uint32_t *tokens,
                               struct tw_error *err) {
    struct tw_data_inner *const inner = data->inner;
    TW_ASSERT(i < count && count <= inner->heldout_windows);
    /* floor(i * heldout_windows / count). The product does not overflow while count is below
     * 2^38. */
    const uint64_t window = i * inner->heldout_windows / count;
    uint32_t at = inner->heldout_files - 1; /* searched backwards: the last file that has arrived
                                               and whose windows begin at or before `window` */
    while (inner->heldout[at].before > window || inner->heldout[at].windows == 0 ||
           !inner->corpus.files[inner->heldout[at].file].is_here) {
        TW_ASSERT(at > 0);
        at--;
    }
    const struct heldout *const heldout = &inner->heldout[at];
    const uint64_t first = heldout->first + (window - heldout->before) * data->context;
    return read_window(inner, heldout->file, first, tokens, err);
}
