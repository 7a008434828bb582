/* content.c - the bytes of every payload in the world, stored once. */
#include "tests/sim/content.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

void tw_sim_contents_init(struct tw_sim_contents *contents) {
    tw_sim_map_init(&contents->map, sizeof(struct tw_sim_content) + TW_SIM_CONTENT_BYTES_MAX);
}

void tw_sim_contents_deinit(struct tw_sim_contents *contents) {
    tw_sim_map_deinit(&contents->map);
}

const struct tw_sim_content *tw_sim_contents_put(struct tw_sim_contents *contents,
                                                 const void *bytes, size_t size) {
    TW_ASSERT(size <= TW_SIM_CONTENT_BYTES_MAX);
    const struct tw_sim_key key = {.id = tw_sha256(bytes, size)};
    bool is_new;
    struct tw_sim_content *content = tw_sim_map_put(&contents->map, &key, &is_new);
    if (is_new) {
        content->hash = key.id;
        content->size = (uint32_t)size;
        memcpy(content->bytes, bytes, size);
    }
    return content;
}

const struct tw_sim_content *tw_sim_contents_find(const struct tw_sim_contents *contents,
                                                  const struct tw_id *hash) {
    const struct tw_sim_key key = {.id = *hash};
    return tw_sim_map_get(&contents->map, &key);
}
