#include "daemon/cli/run/node_memory.h"

#include "proto/shm.h"

enum { ENGINE_ELEMENT_BYTES = 4 * 4 };

struct node_memory node_memory(const struct tw_layout *layout, enum tw_snapshot_mode mode) {
    struct tw_shm_geometry geometry = {0};
    /* A model that exceeds any shared memory has no geometry: 0, because it cannot run anyway. */
    const bool is_possible = tw_shm_geometry_init(&geometry, layout, mode, 0, NULL) == TW_OK;
    return (struct node_memory){.shared = is_possible ? geometry.bytes : UINT64_MAX / 2,
                                .engine = layout->elements * ENGINE_ELEMENT_BYTES};
}
