/* address.h - "host:port" as text: "example.org:4300", "10.0.0.1:4300", "[::1]:4300". */
#ifndef TW_BASE_ADDRESS_H
#define TW_BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/* Splits text of unknown origin. The host loses its brackets and has only [A-Za-z0-9.:%_-]; the
 * port is 0..65535 in at most five digits. False, with nothing written, for anything else, and for
 * texts that do not fit into TW_ADDR_BYTES with their NUL. */
bool tw_address_split(const char *address, char host[TW_ADDR_BYTES], uint16_t *port);

/* Can be dialled as far as the form goes: splits, and the port is not 0. */
bool tw_address_is_valid(const char *address);

#endif
