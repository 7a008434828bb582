/* content.h - the bytes of every payload in the world, stored once, by SHA-256.
 *
 * Contents are small. A payload's size on the simulated wire may be far larger. */
#ifndef TW_SIM_CONTENT_H
#define TW_SIM_CONTENT_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "tests/sim/map.h"

enum { TW_SIM_CONTENT_BYTES_MAX = 8 + 2 * 4 * 16 }; /* (phi, u) of the largest fragment */

struct tw_sim_content {
    struct tw_id hash;
    uint32_t size;
    uint8_t bytes[];
};

struct tw_sim_contents {
    struct tw_sim_map map;
};

void tw_sim_contents_init(struct tw_sim_contents *contents);
void tw_sim_contents_deinit(struct tw_sim_contents *contents);

/* Returns the content with these bytes, added if it is new. It lives as long as `contents`. */
const struct tw_sim_content *tw_sim_contents_put(struct tw_sim_contents *contents,
                                                 const void *bytes, size_t size);

/* Returns the content with this hash, or NULL. */
const struct tw_sim_content *tw_sim_contents_find(const struct tw_sim_contents *contents,
                                                  const struct tw_id *hash);

#endif
