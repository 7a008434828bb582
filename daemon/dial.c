#include "daemon/dial.h"

#include <stdio.h>
#include <string.h>

#include "base/address.h"

static void on_found(uv_getaddrinfo_t *request, int code, struct addrinfo *found) {
    struct tw_lookup *lookup = request->data;
    lookup->is_busy = false;
    lookup->is_done = true;
    for (const struct addrinfo *entry = found; code == 0 && entry != NULL; entry = entry->ai_next) {
        if (lookup->count == TW_DIAL_CANDIDATES_MAX) break;
        if (entry->ai_addrlen > sizeof(lookup->candidates[0])) continue;
        memcpy(&lookup->candidates[lookup->count++], entry->ai_addr, entry->ai_addrlen);
    }
    uv_freeaddrinfo(found);
    if (lookup->count == 0)
        (void)tw_fail(&lookup->error, TW_IO, "%s", code != 0 ? uv_strerror(code) : "no address");
    lookup->done(lookup);
}

enum tw_status tw_lookup_start(struct tw_lookup *lookup, uv_loop_t *loop, const char *address,
                               void (*done)(struct tw_lookup *lookup), struct tw_error *err) {
    char host[TW_ADDR_BYTES], service[8];
    uint16_t port = 0;
    *lookup = (struct tw_lookup){.done = done};
    if (!tw_address_split(address, host, &port) || port == 0)
        return tw_fail(err, TW_CONFIG, "%.80s is not host:port", address);
    struct sockaddr_in *in4 = (struct sockaddr_in *)&lookup->candidates[0];
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&lookup->candidates[0];
    if (uv_ip4_addr(host, port, in4) == 0 || uv_ip6_addr(host, port, in6) == 0) {
        lookup->count = 1;
        lookup->is_done = true;
        return TW_OK;
    }
    (void)snprintf(service, sizeof(service), "%u", (unsigned)port);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG,
    };
    lookup->request.data = lookup;
    const int code = uv_getaddrinfo(loop, &lookup->request, on_found, host, service, &hints);
    if (code != 0) return tw_fail(err, TW_IO, "cannot look up %s: %s", host, uv_strerror(code));
    lookup->is_busy = true;
    return TW_OK;
}

void tw_lookup_cancel(struct tw_lookup *lookup) {
    /* A lookup that runs cannot be cancelled: its `done` then comes when the resolver gives up. */
    if (lookup->is_busy) (void)uv_cancel((uv_req_t *)&lookup->request);
}

uint64_t tw_dial_share_us(uint64_t now_us, uint64_t deadline_us, uint32_t remaining) {
    if (now_us >= deadline_us || remaining == 0) return 0;
    return (deadline_us - now_us) / remaining;
}
