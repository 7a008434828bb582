/* pace.h - configured pacing rate of payloads on one link (`network.pace`), and rate of links that
 * this node relays for others (`network.relay`). */
#ifndef TW_DAEMON_CONFIG_PACE_H
#define TW_DAEMON_CONFIG_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum tw_link_pace_mode { TW_LINK_PACE_AUTO, TW_LINK_PACE_OFF, TW_LINK_PACE_FIXED };

struct tw_link_pace {
    enum tw_link_pace_mode mode; /* AUTO: the rate follows the measured path (net/pacer.h) */
    uint64_t bytes_per_s;        /* FIXED */
};

struct tw_relay_config {
    bool is_on;
    /* cap of relayed traffic, both directions together; 0: none besides the node's other caps */
    uint64_t bytes_per_s;
};

#endif
