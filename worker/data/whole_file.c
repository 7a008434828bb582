#include "worker/data/whole_file.h"

#include <stdio.h>

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
