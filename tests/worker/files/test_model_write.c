/* test_model_write.c - folders and GGUF files are written whole or not at all, and never over
 * another file, with every system call and allocation failing in turn. ARGS: the folder
 * tests/golden/hf.
 *
 * The program is linked with --wrap, so these calls reach this file first. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "tests/test.h"
#include "tests/worker/files/model_folder.h"
#include "worker/files/gguf_write.h"
#include "worker/files/hf_write.h"
#include "worker/files/model_source.h"
#include "worker/support/out_file.h"

/* ---- faults ---------------------------------------------------------------------------------- */

enum call { ALLOCATION, PREAD, OPEN, FALLOCATE, WRITE, FSYNC, RENAME, MKDIR, CALLS_COUNT };
static const char *const CALL_NAMES[] = {"allocation", "pread", "open",     "fallocate",
                                         "write",      "fsync", "renameat", "mkdir"};

static struct {
    enum call call;
    unsigned countdown; /* 0: no fault */
    int why;
    bool is_lasting; /* the fault stays, like a full disk */
    unsigned hits;
} fault;

static bool is_faulty(enum call call) {
    if (fault.countdown == 0 || call != fault.call) return false;
    if (fault.countdown > 1) {
        fault.countdown--;
        return false;
    }
    if (!fault.is_lasting) fault.countdown = 0;
    fault.hits++;
    errno = fault.why;
    return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
ssize_t __real_pread(int fd, void *to, size_t size, off_t at);
int __real_open(const char *path, int flags, ...);
int __real_fallocate(int fd, int mode, off_t at, off_t size);
ssize_t __real_write(int fd, const void *from, size_t size);
int __real_fsync(int fd);
int __real_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __real_mkdir(const char *path, mode_t mode);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_fallocate(int fd, int mode, off_t at, off_t size);
ssize_t __wrap_write(int fd, const void *from, size_t size);
int __wrap_fsync(int fd);
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags);
int __wrap_mkdir(const char *path, mode_t mode);

void *__wrap_malloc(size_t size) {
    return is_faulty(ALLOCATION) ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
    return is_faulty(ALLOCATION) ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *old, size_t size) {
    return is_faulty(ALLOCATION) ? NULL : __real_realloc(old, size);
}
ssize_t __wrap_pread(int fd, void *to, size_t size, off_t at) {
    /* Reads are short, as on some file systems. */
    return is_faulty(PREAD) ? -1 : __real_pread(fd, to, size < 1000 ? size : 1000, at);
}
int __wrap_open(const char *path, int flags, mode_t mode) {
    return is_faulty(OPEN) ? -1 : __real_open(path, flags, mode);
}
int __wrap_fallocate(int fd, int mode, off_t at, off_t size) {
    return is_faulty(FALLOCATE) ? -1 : __real_fallocate(fd, mode, at, size);
}
ssize_t __wrap_write(int fd, const void *from, size_t size) {
    return is_faulty(WRITE) ? -1 : __real_write(fd, from, size < 1000 ? size : 1000);
}
int __wrap_fsync(int fd) {
    return is_faulty(FSYNC) ? -1 : __real_fsync(fd);
}
int __wrap_renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    return is_faulty(RENAME) ? -1 : __real_renameat2(a, from, b, to, flags);
}
int __wrap_mkdir(const char *path, mode_t mode) {
    return is_faulty(MKDIR) ? -1 : __real_mkdir(path, mode);
}

/* ---- under test -------------------------------------------------------------------------------
 */

static const char *golden;
static char folder[FOLDER_PATH_BYTES], out[FOLDER_PATH_BYTES];
static struct tw_run run;
static struct tw_layout layout;
static struct tw_error err;

static int start(void **state) {
    folder_make(folder);
    folder_path(out, folder, "out");
    return 0;
}

static int stop(void **state) {
    fault.countdown = 0;
    folder_remove(folder);
    return 0;
}

#define FACT(name) TEST_IN(start, stop, name)

enum form { FILE_FORM, FOLDER_FORM, GGUF_FORM, FORMS_COUNT };

static uint64_t told; /* elements reported to the progress callback */

static void tell(void *user, uint64_t count) {
    *(uint64_t *)user += count;
}

static enum tw_status write_form(const struct tw_model_source *source, enum form form) {
    const struct tw_model_feed feed = {
        .run = &run, .layout = &layout, .source = source, .progress = tell, .user = &told};
    struct tw_hf_folder result = {.dtype = TW_DTYPE_F32, .shard_bytes = 12000};
    switch (form) {
    case FILE_FORM: return tw_hf_write_file(out, &feed, (enum tw_dtype)TW_FEED_KEEP, NULL, &err);
    case FOLDER_FORM: return tw_hf_write_folder(out, &feed, &result, &err);
    case GGUF_FORM:
        return tw_gguf_write(out, &feed, &(struct tw_gguf_options){.dtype = TW_DTYPE_BF16}, NULL,
                             &err);
    case FORMS_COUNT: break;
    }
    return TW_CONFIG;
}

/* Converts as `thinwire import` and `export` do. */
static enum tw_status convert(const char *model, enum form form) {
    char path[FOLDER_PATH_BYTES];
    struct tw_model_source source;
    folder_path(path, golden, model);
    TW_TRY(tw_model_source_open(&source, path, &err));
    enum tw_status status = tw_engine_manifest_make(&source, "test", 0, &run, NULL, &err);
    if (status == TW_OK) status = tw_layout_init(&layout, &run, &err);
    if (status == TW_OK) status = tw_model_source_bind(&source, &layout, "live", &err);
    if (status == TW_OK) status = write_form(&source, form);
    tw_model_source_close(&source);
    return status;
}

static void remove_out(void) {
    struct stat info;
    if (lstat(out, &info) != 0) return;
    if (S_ISDIR(info.st_mode)) {
        folder_remove(out);
    } else {
        assert_int_equal(unlink(out), 0);
    }
}

FACT(every_failing_call_is_an_error_that_leaves_nothing) {
    static const struct {
        enum call call;
        int why;
        bool is_lasting;
    } FAULTS[] = {
        {ALLOCATION, ENOMEM, false}, {ALLOCATION, ENOMEM, true}, {PREAD, EIO, false},
        {OPEN, EMFILE, false},       {OPEN, EACCES, true},       {FALLOCATE, ENOSPC, false},
        {WRITE, ENOSPC, false},      {WRITE, EIO, true},         {FSYNC, EIO, false},
        {RENAME, EIO, false},        {MKDIR, ENOSPC, false},
    };
    static const char *const MODELS[] = {"gpt2", "llama-untied"};
    unsigned total = 0;
    for (unsigned i = 0; i < 2 * FORMS_COUNT * sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        const unsigned f = i / (2 * FORMS_COUNT);
        const enum form form = (enum form)(i / 2 % FORMS_COUNT);
        for (unsigned at = 1;; at++) {
            fault.call = FAULTS[f].call;
            fault.why = FAULTS[f].why;
            fault.is_lasting = FAULTS[f].is_lasting;
            fault.hits = 0;
            fault.countdown = at;
            told = 0;
            err.message[0] = 0;
            const enum tw_status status = convert(MODELS[i % 2], form);
            fault.countdown = 0;
            if (fault.hits == 0) { /* no fault was hit: every call has failed once */
                assert_int_equal(status, TW_OK);
                assert_int_equal(told, layout.params);
                remove_out();
                break;
            }
            total++;
            const enum tw_status wanted = fault.call == ALLOCATION ? TW_NOMEM : TW_IO;
            const unsigned left = folder_count(folder);
            /* A folder that cannot be opened for reading cannot be synced either, so this fault is
             * tolerated. */
            if (status == TW_OK && fault.call == OPEN && fault.why == EACCES) {
                remove_out();
                continue;
            }
            if (status != wanted || err.message[0] == 0 || left != 0) {
                fail_msg("%s %u, form %u of %s: status %d, %u left: %s", CALL_NAMES[fault.call], at,
                         form, MODELS[i % 2], (int)status, left, err.message);
            }
            remove_out();
        }
    }
    print_message("%u faults\n", total);
    assert_true(total > 100);
}

FACT(nothing_is_overwritten) {
    char part[FOLDER_PATH_BYTES];
    folder_path(part, folder, "out.part");
    for (unsigned form = 0; form < FORMS_COUNT; form++) {
        static uint8_t bytes[FOLDER_FILE_BYTES];
        file_write(out, "precious", 8);
        assert_int_equal(convert("llama", (enum form)form), TW_CONFIG);
        assert_non_null(strstr(err.message, "is not overwritten"));
        assert_int_equal(unlink(out), 0);
        file_write(part, "precious", 8);
        const int writer = open(part, O_RDONLY);
        assert_int_equal(flock(writer, LOCK_EX | LOCK_NB), 0);
        assert_int_equal(convert("llama", (enum form)form), TW_CONFIG);
        assert_non_null(strstr(err.message, "another process"));
        assert_int_equal(file_read(part, bytes), 8);
        assert_memory_equal(bytes, "precious", 8);
        assert_int_equal(close(writer), 0);
        assert_int_equal(unlink(part), 0);
        /* A dangling link counts as an existing file. */
        assert_int_equal(symlink("/nowhere/at/all", out), 0);
        assert_int_equal(convert("llama", (enum form)form), TW_CONFIG);
        assert_int_equal(unlink(out), 0);
        assert_int_equal(folder_count(folder), 0);
    }
}

/* Fails unless the file, or the folder and each file in it, belongs to the user. */
static void check_owner(const char *path, uid_t user) {
    struct stat info;
    assert_int_equal(lstat(path, &info), 0);
    assert_int_equal(info.st_uid, user);
    assert_int_equal(info.st_gid, user);
    DIR *const dir = S_ISDIR(info.st_mode) ? opendir(path) : NULL;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        assert_int_equal(fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(info.st_uid, user);
    }
    if (dir != NULL) assert_int_equal(closedir(dir), 0);
}

FACT(output_under_sudo_belongs_to_whom_ran_sudo) {
    if (geteuid() != 0) skip();
    for (unsigned form = 0; form < FORMS_COUNT; form++) {
        assert_int_equal(setenv("SUDO_UID", "1234", 1), 0);
        assert_int_equal(setenv("SUDO_GID", "1234", 1), 0);
        assert_int_equal(convert("llama", (enum form)form), TW_OK);
        check_owner(out, 1234);
        remove_out();
        /* a group that is no number */
        assert_int_equal(setenv("SUDO_GID", "12x", 1), 0);
        assert_int_equal(convert("llama", (enum form)form), TW_OK);
        check_owner(out, 0);
        remove_out();
        assert_int_equal(unsetenv("SUDO_UID"), 0);
        assert_int_equal(unsetenv("SUDO_GID"), 0);
    }
}

/* A killed export leaves no lock, so its unfinished output is replaced. A folder with other files
 * in it is kept. */
FACT(rest_of_a_killed_export_is_taken_over) {
    static const char *const LEFT[] = {"config.json", "model-00001-of-00009.safetensors",
                                       "model-00002-of-00009.safetensors.part"};
    char part[FOLDER_PATH_BYTES], name[FOLDER_PATH_BYTES];
    folder_path(part, folder, "out.part");
    file_write(part, "left", 4);
    assert_int_equal(convert("llama", FILE_FORM), TW_OK);
    remove_out();
    file_write(part, "left", 4);
    assert_int_equal(convert("llama", GGUF_FORM), TW_OK);
    remove_out();
    assert_int_equal(mkdir(part, 0755), 0);
    for (unsigned i = 0; i < 3; i++) {
        folder_path(name, part, LEFT[i]);
        file_write(name, "left", 4);
    }
    folder_path(name, part, "model.txt");
    file_write(name, "mine", 4);
    assert_int_equal(convert("llama", FOLDER_FORM), TW_CONFIG);
    assert_non_null(strstr(err.message, "files that no export writes"));
    assert_int_equal(folder_count(part), 4);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(convert("llama", FOLDER_FORM), TW_OK);
    folder_path(name, out, LEFT[1]);
    assert_int_not_equal(access(name, F_OK), 0);
    assert_int_equal(folder_count(folder), 1);
    remove_out();
}

/* If another process creates the file while the export is being written, that process's file stays.
 */
FACT(file_that_appears_meanwhile_is_not_overwritten) {
    static uint8_t bytes[FOLDER_FILE_BYTES];
    struct tw_out_file file;
    assert_int_equal(tw_out_open(&file, out, 5, &err), TW_OK);
    assert_int_equal(tw_out_write(&file, "ours!", 5, &err), TW_OK);
    file_write(out, "theirs", 6);
    assert_int_equal(tw_out_commit(&file, &err), TW_CONFIG);
    assert_int_equal(file_read(out, bytes), 6);
    assert_memory_equal(bytes, "theirs", 6);
    assert_int_equal(folder_count(folder), 1);
}

FACT(a_folder_that_is_not_there_is_named) {
    folder_path(out, folder, "no/where");
    for (unsigned form = 0; form < FORMS_COUNT; form++) {
        assert_int_equal(convert("llama", (enum form)form), TW_IO);
        assert_non_null(strstr(err.message, "no/where.part"));
    }
}

FACT(a_number_too_large_for_float16_is_named) {
    static float params[200000];
    tw_run_defaults(&run);
    run.model.width = 8;
    run.model.heads = 1;
    run.model.context = 8;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_in_range(layout.elements, 1, 200000);
    const struct tw_tensor *const tensor = tw_layout_find(&layout, "h.0.mlp.c_fc.weight");
    params[tensor->offset + 3] = 70000;
    const struct tw_model_feed feed = {.run = &run, .layout = &layout, .params = params};
    struct tw_hf_folder result = {.dtype = TW_DTYPE_F16};
    assert_int_equal(tw_hf_write_folder(out, &feed, &result, &err), TW_CONFIG);
    assert_non_null(strstr(err.message, "h.0.mlp.c_fc.weight holds numbers too large for F16"));
    assert_int_equal(
        tw_gguf_write(out, &feed, &(struct tw_gguf_options){.dtype = TW_DTYPE_F16}, NULL, &err),
        TW_CONFIG);
    assert_int_equal(
        tw_gguf_write(out, &feed, &(struct tw_gguf_options){.dtype = TW_DTYPE_BF16}, NULL, &err),
        TW_OK);
}

/* Checks the first bytes of a GGUF file; tests/interop checks the rest with the gguf package. */
FACT(gguf_starts_as_it_should) {
    static uint8_t bytes[FOLDER_FILE_BYTES];
    assert_int_equal(convert("qwen2", GGUF_FORM), TW_OK);
    const size_t size = file_read(out, bytes);
    static const uint8_t START[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0};
    assert_memory_equal(bytes, START, sizeof(START));
    static const char FIRST[] = "\x14\0\0\0\0\0\0\0general.architecture\x08\0\0\0"
                                "\x05\0\0\0\0\0\0\0qwen2";
    assert_memory_equal(bytes + 24, FIRST, sizeof(FIRST) - 1);
    assert_int_equal(size % 32, 0);
}

/* ---- a small reader of GGUF, for the order of elements --------------------------------------- */

struct gguf {
    uint8_t bytes[FOLDER_FILE_BYTES];
    size_t at;
};

static uint64_t take(struct gguf *gguf, unsigned size) {
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++) value |= (uint64_t)gguf->bytes[gguf->at++] << 8 * i;
    return value;
}

static void skip_value(struct gguf *gguf, uint64_t type) {
    static const unsigned SIZES[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    assert_in_range(type, 0, 12);
    if (type == 8) {
        const uint64_t size = take(gguf, 8);
        gguf->at += size;
    } else if (type == 9) {
        const uint64_t inner = take(gguf, 4), count = take(gguf, 8);
        assert_int_not_equal(inner, 9);
        for (uint64_t i = 0; i < count; i++) skip_value(gguf, inner);
    } else {
        gguf->at += SIZES[type];
    }
}

/* Finds the float32 matrix `wanted` (rows, cols) of the file in `gguf`. */
static const uint8_t *find_matrix(struct gguf *gguf, const char *wanted, uint64_t rows,
                                  uint64_t cols) {
    uint64_t found = UINT64_MAX;
    gguf->at = 8;
    const uint64_t tensors = take(gguf, 8), pairs = take(gguf, 8);
    for (uint64_t i = 0; i < pairs; i++) {
        const uint64_t size = take(gguf, 8);
        gguf->at += size;
        const uint64_t type = take(gguf, 4);
        skip_value(gguf, type);
    }
    for (uint64_t i = 0; i < tensors; i++) {
        const uint64_t size = take(gguf, 8);
        const bool is_it =
            size == strlen(wanted) && memcmp(gguf->bytes + gguf->at, wanted, size) == 0;
        gguf->at += size;
        const uint64_t rank = take(gguf, 4), inner = take(gguf, 8);
        const uint64_t outer = rank == 2 ? take(gguf, 8) : 0, type = take(gguf, 4);
        const uint64_t offset = take(gguf, 8);
        if (!is_it) continue;
        assert_true(type == 0 && inner == cols && outer == rows);
        found = offset;
    }
    assert_true(found != UINT64_MAX);
    return gguf->bytes + (gguf->at + 31) / 32 * 32 + found;
}

/* Checks the order of a matrix's elements in GGUF. If head_size is not 0, rows are permuted within
 * heads of that many rows. */
static void check_order(const char *model, const char *ours, const char *theirs, bool is_transposed,
                        uint32_t head_size) {
    static struct gguf gguf;
    static float values[4096];
    struct tw_model_source source;
    char path[FOLDER_PATH_BYTES];
    folder_path(path, golden, model);
    assert_int_equal(tw_model_source_open(&source, path, &err), TW_OK);
    assert_int_equal(tw_engine_manifest_make(&source, "test", 0, &run, NULL, &err), TW_OK);
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    assert_int_equal(tw_model_source_bind(&source, &layout, "live", &err), TW_OK);
    const struct tw_model_feed feed = {.run = &run, .layout = &layout, .source = &source};
    assert_int_equal(
        tw_gguf_write(out, &feed, &(struct tw_gguf_options){.dtype = TW_DTYPE_F32}, NULL, &err),
        TW_OK);
    const struct tw_tensor *const tensor = tw_layout_find(&layout, ours);
    assert_non_null(tensor);
    assert_in_range((uint64_t)tensor->rows * tensor->cols, 1, 4096);
    assert_int_equal(tw_model_source_read(&source, (uint32_t)(tensor - layout.tensors), 0,
                                          (uint64_t)tensor->rows * tensor->cols, values, &err),
                     TW_OK);
    tw_model_source_close(&source);
    (void)file_read(out, gguf.bytes);
    const uint32_t rows = is_transposed ? tensor->cols : tensor->rows;
    const uint32_t cols = is_transposed ? tensor->rows : tensor->cols;
    const uint8_t *const there = find_matrix(&gguf, theirs, rows, cols);
    for (uint32_t row = 0; row < rows; row++) {
        /* RoPE pairs (2 * j, 2 * j + 1) in Meta's order are (j, j + head_size / 2) in Hugging
         * Face's. */
        const uint32_t within = head_size == 0 ? 0 : row % head_size;
        const uint32_t from = head_size == 0    ? row
                              : within % 2 == 0 ? row - within + within / 2
                                                : row - within + within / 2 + head_size / 2;
        for (uint32_t col = 0; col < cols; col++) {
            const float wanted = is_transposed ? values[(size_t)col * rows + row]
                                               : values[(size_t)from * cols + col];
            assert_memory_equal(there + ((size_t)row * cols + col) * 4, &wanted, 4);
        }
    }
    assert_int_equal(unlink(out), 0);
}

FACT(gguf_has_its_own_order_of_elements) {
    check_order("llama", "model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", false, 6);
    check_order("llama", "model.layers.0.self_attn.k_proj.weight", "blk.0.attn_k.weight", false, 6);
    check_order("llama", "model.layers.0.self_attn.v_proj.weight", "blk.0.attn_v.weight", false, 0);
    check_order("llama-untied", "lm_head.weight", "output.weight", false, 0);
    check_order("qwen3", "model.layers.0.self_attn.q_proj.weight", "blk.0.attn_q.weight", false, 0);
    check_order("gpt2", "h.0.attn.c_attn.weight", "blk.0.attn_qkv.weight", true, 0);
    check_order("gpt2", "h.0.mlp.c_proj.weight", "blk.0.ffn_down.weight", true, 0);
    check_order("gpt2", "wpe.weight", "position_embd.weight", false, 0);
}

FACT(a_model_gguf_cannot_compute_is_refused) {
    tw_run_defaults(&run);
    run.model.family = TW_FAMILY_LLAMA;
    run.model.qk_norm = TW_YES;
    run.model.rope_factor_millionths = 8000000;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    const struct tw_model_feed feed = {.run = &run, .layout = &layout};
    assert_int_equal(
        tw_gguf_write(out, &feed, &(struct tw_gguf_options){.dtype = TW_DTYPE_F32}, NULL, &err),
        TW_CONFIG);
    assert_non_null(strstr(err.message, "model.rope_factor"));
    assert_int_equal(folder_count(folder), 0);
}

static bool says_yes(void) {
    return true;
}

FACT(an_interrupt_leaves_nothing) {
    static float params[200000];
    tw_run_defaults(&run);
    run.model.width = 16;
    assert_int_equal(tw_layout_init(&layout, &run, &err), TW_OK);
    const struct tw_model_feed feed = {
        .run = &run, .layout = &layout, .params = params, .is_interrupted = says_yes};
    struct tw_hf_folder result = {.dtype = TW_DTYPE_F32};
    assert_int_equal(tw_hf_write_folder(out, &feed, &result, &err), TW_AGAIN);
    assert_int_equal(
        tw_gguf_write(out, &feed, &(struct tw_gguf_options){.dtype = TW_DTYPE_F32}, NULL, &err),
        TW_AGAIN);
    assert_int_equal(folder_count(folder), 0);
}

int main(int argc, char **argv) {
    golden = argc > 1 ? argv[1] : "tests/golden/hf";
    return test_run(NULL, NULL);
}
