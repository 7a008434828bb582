/* address.h - "host:port" as text: "example.org:4300", "10.0.0.1:4300", "[::1]:4300". */
#ifndef TW_BASE_ADDRESS_H
#define TW_BASE_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/limits.h"

/* Splits untrusted text into host and port. The host loses its brackets and consists of
 * [A-Za-z0-9.:%_-]; the port is 0..65535 in at most five digits. Returns false and writes nothing
 * for any other text, or for text longer than TW_ADDR_BYTES including its NUL. */
bool tw_address_split(const char *address, char host[TW_ADDR_BYTES], uint16_t *port);

/* Returns true if the address can be split and its port is not 0. Resolves no name. */
bool tw_address_is_valid(const char *address);

#endif
