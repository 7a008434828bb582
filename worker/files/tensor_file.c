#include "worker/files/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "worker/files/elements.h"

const char *tw_tensor_file_base(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL && slash[1] != 0 ? slash + 1 : path;
}

/* O_NONBLOCK, because opening a FIFO would block before the FIFO is refused. */
static enum tw_status open_regular(const char *path, int *fd_out, uint64_t *bytes_out,
                                   struct tw_error *err) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tw_fail(err, TW_IO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        (void)close(fd);
        return tw_fail(err, TW_IO, "%s is not a regular file", path);
    }
    *fd_out = fd;
    *bytes_out = (uint64_t)info.st_size;
    return TW_OK;
}

/* 0: all bytes read; ENODATA: the file ends early; else errno. */
static int read_at(int fd, void *to, size_t size, uint64_t at) {
    char *into = to;
    while (size > 0) {
        const ssize_t n = pread(fd, into, size, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n == 0 ? ENODATA : errno;
        into += n;
        size -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

static const char *reason(int why) {
    return why == ENODATA ? "it ends before its header says" : strerror(why);
}

enum tw_status tw_text_file_read(const char *path, size_t bytes_max, char **text_out,
                                 size_t *size_out, struct tw_error *err) {
    int fd = -1;
    uint64_t bytes = 0;
    TW_TRY(open_regular(path, &fd, &bytes, err));
    enum tw_status status = TW_OK;
    char *text = NULL;
    if (bytes > bytes_max) {
        status = tw_fail(err, TW_CORRUPT, "%s has %llu bytes; at most %zu are read", path,
                         (unsigned long long)bytes, bytes_max);
    } else if ((text = malloc(bytes + 1)) == NULL) {
        status = tw_fail(err, TW_NOMEM, "no memory for %s", path);
    } else {
        const int why = read_at(fd, text, bytes, 0);
        if (why != 0) status = tw_fail(err, TW_IO, "%s: %s", path, reason(why));
        text[bytes] = 0;
    }
    (void)close(fd);
    if (status != TW_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *size_out = bytes;
    return TW_OK;
}

/* Names a file of another kind by its first bytes. */
static enum tw_status check_kind(const struct tw_tensor_file *file, const uint8_t *first,
                                 struct tw_error *err) {
    static const struct {
        const char *bytes;
        const char *kind;
    } KINDS[] = {
        {"GGUF", "a GGUF file: take the model as safetensors"},
        {"PK\x03\x04", "a file of torch.save, not safetensors: save the model by save_pretrained"},
        {"\x80\x02", "a pickle, not safetensors: save the model by save_pretrained"},
        {"version ", "a pointer of Git LFS, not the file itself: run `git lfs pull` in its folder"},
        {"<!DOCTYP", "a web page, not the file itself: fetch the raw file"},
        {"<!doctyp", "a web page, not the file itself: fetch the raw file"},
        {"<html", "a web page, not the file itself: fetch the raw file"},
    };
    for (unsigned i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        if (memcmp(first, KINDS[i].bytes, strlen(KINDS[i].bytes)) != 0) continue;
        return tw_fail(err, TW_CONFIG, "%s is %s", file->name, KINDS[i].kind);
    }
    return TW_OK;
}

static enum tw_status read_header(struct tw_tensor_file *file, uint64_t bytes,
                                  struct tw_error *err) {
    enum { ENTRY_BYTES_MIN = 48 }; /* "":{"dtype":"F32","shape":[],"data_offsets":[0,4]} */
    uint8_t prefix[TW_SAFETENSORS_PREFIX_BYTES];
    uint64_t json_bytes;
    struct tw_error why;
    if (bytes < sizeof(prefix)) {
        return tw_fail(err, TW_CORRUPT, "%s is too short for a safetensors file", file->name);
    }
    int failed = read_at(file->fd, prefix, sizeof(prefix), 0);
    if (failed != 0) return tw_fail(err, TW_IO, "%s: %s", file->name, reason(failed));
    TW_TRY(check_kind(file, prefix, err));
    if (tw_safetensors_prefix(prefix, bytes, TW_SAFETENSORS_JSON_MAX, &json_bytes, &why) != TW_OK) {
        return tw_fail(err, TW_CORRUPT, "%s: %s", file->name, why.message);
    }
    if (json_bytes > TW_TENSOR_FILE_JSON_MAX) {
        return tw_fail(err, TW_CONFIG,
                       "%s has a header of %llu bytes; at most %d are read, enough for every "
                       "supported model",
                       file->name, (unsigned long long)json_bytes, TW_TENSOR_FILE_JSON_MAX);
    }
    const uint64_t room = json_bytes / ENTRY_BYTES_MIN + 1;
    file->st.tensors_capacity =
        room < TW_TENSOR_FILE_COUNT_MAX ? (uint32_t)room : TW_TENSOR_FILE_COUNT_MAX;
    file->json = malloc(json_bytes + 1);
    file->st.tensors = calloc(file->st.tensors_capacity, sizeof(*file->st.tensors));
    if (file->json == NULL || file->st.tensors == NULL) {
        return tw_fail(err, TW_NOMEM, "no memory for the header of %s", file->name);
    }
    failed = read_at(file->fd, file->json, json_bytes, sizeof(prefix));
    if (failed != 0) return tw_fail(err, TW_IO, "%s: %s", file->name, reason(failed));
    file->data_at = sizeof(prefix) + json_bytes;
    const enum tw_status status =
        tw_safetensors_parse(&file->st, file->json, json_bytes, bytes - file->data_at, &why);
    if (status == TW_OK) return TW_OK;
    const bool is_damage = status == TW_CORRUPT && !file->st.is_unsupported;
    return tw_fail(err, is_damage ? TW_CORRUPT : TW_CONFIG, "%s: %s", file->name, why.message);
}

enum tw_status tw_tensor_file_open(struct tw_tensor_file *file, const char *path,
                                   struct tw_error *err) {
    uint64_t bytes = 0;
    memset(file, 0, sizeof(*file));
    TW_TRY(open_regular(path, &file->fd, &bytes, err));
    (void)snprintf(file->name, sizeof(file->name), "%s", tw_tensor_file_base(path));
    const enum tw_status status = read_header(file, bytes, err);
    if (status != TW_OK) tw_tensor_file_close(file);
    return status;
}

void tw_tensor_file_close(struct tw_tensor_file *file) {
    (void)close(file->fd);
    free(file->json);
    free(file->st.tensors);
    memset(file, 0, sizeof(*file));
    file->fd = -1;
}

enum tw_status tw_tensor_file_read(const struct tw_tensor_file *file,
                                   const struct tw_safetensors_tensor *tensor, uint64_t first,
                                   uint64_t count, float *to, struct tw_error *err) {
    const uint32_t size = tw_dtype_bytes(tensor->dtype);
    TW_ASSERT(tw_elements_can(tensor->dtype));
    TW_ASSERT(first <= (tensor->end - tensor->begin) / size);
    TW_ASSERT(count <= (tensor->end - tensor->begin) / size - first);
    /* The raw elements are read to the end of `to`, then widened from the start. */
    uint8_t *const raw = (uint8_t *)to + (sizeof(float) - size) * count;
    const int why =
        read_at(file->fd, raw, size * count, file->data_at + tensor->begin + size * first);
    if (why != 0) {
        return tw_fail(err, TW_IO, "%s: %s cannot be read: %s", file->name, tensor->name,
                       reason(why));
    }
    const uint64_t bad = tw_elements_load(tensor->dtype, to, raw, count);
    if (bad < count) {
        return tw_fail(err, TW_CORRUPT, "%s: element %llu of %s is not a finite number", file->name,
                       (unsigned long long)(first + bad), tensor->name);
    }
    return TW_OK;
}
