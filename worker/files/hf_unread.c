/* hf_unread.c - replaces hf_config.c and hf_index_parse.c in a build without jansson. */
#include <string.h>

#include "worker/files/hf_config.h"
#include "worker/files/hf_index.h"

static const char WHY[] = "this program was built without jansson, which reads such files";

enum tw_status tw_hf_config_parse(struct tw_run *run, const char *json, size_t size,
                                  struct tw_error *err) {
    (void)run;
    (void)json;
    (void)size;
    return tw_fail(err, TW_CONFIG, "%s", WHY);
}

enum tw_status tw_hf_index_parse(struct tw_hf_index *index, const char *json, size_t size,
                                 struct tw_error *err) {
    (void)json;
    (void)size;
    memset(index, 0, sizeof(*index));
    return tw_fail(err, TW_CONFIG, "%s", WHY);
}
