/* port_mapper.c - asks the router to map a port, as the daemon does but with a short lease, until
 * its input ends. Then the port is released.
 *
 *     port_mapper HOST PORT LEASE_S [pcp]
 *
 * With "pcp", it tries PCP first.
 *
 * Prints one line for each answer: the name of the state, the address or "-", the number of
 * renewals, and the protocol. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uv.h>

#include "daemon/router/port_mapping.h"
#include "daemon/router/port_router.h"

enum { TURN_MS = 50 };

static void show(const struct tw_port_mapping *mapping) {
    char address[TW_ADDR_BYTES];
    tw_port_mapping_address(mapping, address);
    printf("%s %s %llu %s\n", tw_port_mapping_name(mapping), address[0] != '\0' ? address : "-",
           (unsigned long long)mapping->renewals, tw_port_protocol_name(mapping->answer.protocol));
    (void)fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc < 4 || argc > 5) return 2;
    const bool is_pcp = argc == 5 && strcmp(argv[4], "pcp") == 0;
    struct tw_port_mapping mapping = {.lease_s = (uint32_t)strtoul(argv[3], NULL, 10)};
    struct tw_port_want want = {.need = TW_PORT_NEEDED,
                                .port = (uint16_t)strtoul(argv[2], NULL, 10)};
    struct tw_port_router *router = tw_port_router_create();
    struct tw_port_order order;
    struct tw_port_answer answer;
    if (router == NULL) return 1;
    (void)snprintf(want.host, sizeof(want.host), "%.15s", argv[1]);
    while (want.need == TW_PORT_NEEDED || tw_port_mapping_is_held(&mapping)) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (want.need == TW_PORT_NEEDED && poll(&input, 1, TURN_MS) != 0)
            want.need = TW_PORT_DIAL_ONLY;
        tw_port_mapping_look(&mapping, &want, uv_hrtime() / 1000);
        if (!tw_port_mapping_next(&mapping, uv_hrtime() / 1000, &order)) continue;
        if (is_pcp && order.protocol == TW_PORT_NO_PROTOCOL) order.protocol = TW_PORT_PCP;
        tw_port_router_do(router, &order, &answer);
        tw_port_mapping_done(&mapping, &answer, uv_hrtime() / 1000);
        show(&mapping);
    }
    tw_port_router_destroy(router);
    return 0;
}
