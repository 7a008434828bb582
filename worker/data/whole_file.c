#include "worker/data/whole_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "worker/support/out_file.h"

enum tw_status tw_whole_file_write(const char *folder, const char *name,
                                   const struct tw_range *parts, size_t count,
                                   struct tw_error *err) {
    char path[TW_OUT_PATH_BYTES + 1];
    struct tw_out_file file;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    TW_TRY(tw_out_hold(&file, path, err));
    enum tw_status status = TW_OK;
    for (size_t i = 0; i < count && status == TW_OK; i++) {
        status = tw_out_write(&file, parts[i].bytes, parts[i].size, err);
    }
    if (status == TW_OK) status = tw_out_save(&file, err);
    tw_out_abort(&file);
    return status;
}

enum tw_status tw_whole_file_read(const char *path, size_t bytes_max, char **bytes, size_t *size,
                                  struct tw_error *err) {
    struct stat info;
    *bytes = NULL;
    FILE *const file = fopen(path, "rbe");
    if (file == NULL) {
        return tw_fail(err, errno == ENOENT ? TW_AGAIN : TW_IO, "%s: %s", path, strerror(errno));
    }
    enum tw_status status = TW_OK;
    if (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)) {
        status = tw_fail(err, TW_IO, "%s is not a plain file", path);
    } else if ((uint64_t)info.st_size > bytes_max) {
        status =
            tw_fail(err, TW_LIMIT, "%s: %lld bytes, more than the %zu that such a file may have",
                    path, (long long)info.st_size, bytes_max);
    } else {
        *bytes = malloc((size_t)info.st_size + 1);
        if (*bytes == NULL) status = tw_fail(err, TW_NOMEM, "%s: no memory to read it", path);
    }
    if (status == TW_OK) {
        *size = fread(*bytes, 1, (size_t)info.st_size, file);
        (*bytes)[*size] = 0;
        if (*size < (size_t)info.st_size) {
            status = tw_fail(err, TW_IO, "%s cannot be read whole", path);
            free(*bytes);
            *bytes = NULL;
        }
    }
    (void)fclose(file);
    return status;
}
