/* hello.h - the lists of typed fields with which a connection begins: the extensions of HELLO, and
 * WELCOME. PROTOCOL.md section 3. A receiver skips unknown types. Pure.
 *
 *    count u32, then per field, types ascending and none twice: type u16, bytes u16, bytes */
#ifndef TW_PROTO_HELLO_H
#define TW_PROTO_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/status.h"
#include "proto/cert.h"

/* ---- extensions of HELLO -------------------------------------------------------------------- */

enum tw_extension_type {
    TW_EXTENSION_FEATURES = 1,     /* u64: features of this node beyond version 1 */
    TW_EXTENSION_SOFTWARE = 2,     /* text: name and version of the program */
    TW_EXTENSION_TICKET = 3,       /* sent by a guest: id of the ticket that lets it in */
    TW_EXTENSION_CERTIFICATES = 4, /* admission certificates, in runs with an owner */
    TW_EXTENSION_RELAY = 5,        /* in role relay: the token of a call and, from the caller, the
                                      id of the node to call */
    TW_EXTENSION_PROCESS = 6,  /* in role control: u64, number of the sending process: frame.h */
    TW_EXTENSION_SEEN = 7,     /* sent by a relay: addresses of the two ends of a pipe */
    TW_EXTENSION_ASK_SEEN = 8, /* sent by a probe: u64, token of the PUNCH that it asks for */
    TW_EXTENSION_NAME = 9,     /* in roles control and guest: name of the node, for people */
};

/* Features that other nodes of the same wire version may lack, one bit each. The meaning of a bit
 * never changes. A feature is used only with peers that also have its bit; unknown bits are
 * ignored. */
#define TW_FEATURE_OWNER (UINT64_C(1) << 0)     /* understands REVOKE, RENEW and CERTS */
#define TW_FEATURE_DIAL_BACK (UINT64_C(1) << 1) /* answers PROBE with PROBED */
#define TW_FEATURE_LINKS (UINT64_C(1) << 2)     /* understands LINKS */
#define TW_FEATURE_RELAY (UINT64_C(1) << 3)     /* understands RELAY_CALL and the role relay */
#define TW_FEATURE_PUNCH (UINT64_C(1) << 4)     /* understands PUNCH */
#define TW_FEATURE_ROLES (UINT64_C(1) << 5)     /* goes by the role in STATUS */

/* Features of this program. */
#define TW_FEATURES                                                                                \
    (TW_FEATURE_OWNER | TW_FEATURE_DIAL_BACK | TW_FEATURE_LINKS | TW_FEATURE_RELAY |               \
     TW_FEATURE_PUNCH | TW_FEATURE_ROLES)

/* Returns the feature that a node needs to understand this kind of control frame; 0 if every node
 * of this wire version understands it. */
uint64_t tw_feature_of(uint16_t kind);

enum {
    TW_EXTENSIONS_HEADER_BYTES = 4,
    TW_SOFTWARE_BYTES = 24,  /* text, including NUL */
    TW_SEEN_BYTES_MAX = 47,  /* "[", an IPv6 address, "]:65535" */
    TW_NODE_NAME_BYTES = 33, /* name of a node, including NUL */
};

struct tw_extensions {
    uint32_t count;
    uint32_t bytes_count;                     /* size of `bytes` */
    uint8_t bytes[TW_HELLO_EXTENSIONS_BYTES]; /* wire form, without the count */
};

/* Appends an extension. Asserts that its type is higher than that of the last extension, and that
 * it fits. */
void tw_extensions_add(struct tw_extensions *list, uint16_t type, const void *bytes,
                       uint32_t bytes_count);

/* Returns the bytes of one extension, borrowed from `list`, or NULL if it is absent. */
const uint8_t *tw_extensions_find(const struct tw_extensions *list, uint16_t type,
                                  uint32_t *bytes_count);

/* Writes the count and the whole list to `out`. Returns the number of bytes. */
uint32_t tw_extensions_encode(const struct tw_extensions *list, uint8_t *out);

/* Decodes untrusted bytes[size], which must hold the list and nothing else. Returns TW_PROTO for a
 * wrong order, number or length, or for a malformed extension of a known type. */
enum tw_status tw_extensions_decode(const uint8_t *bytes, size_t size, struct tw_extensions *list,
                                    struct tw_error *err);

/* Returns the features of the node that sent the list; 0 if it states none. */
uint64_t tw_extensions_features(const struct tw_extensions *list);

/* Adds extension SEEN: the addresses at which a relay sees the receiver of the HELLO and the other
 * end of the pipe. Each has at most TW_SEEN_BYTES_MAX bytes, without NUL. */
void tw_extensions_add_seen(struct tw_extensions *list, const char *own, const char *other);

/* Reads the two addresses of extension SEEN. Returns false if the list has none. */
bool tw_extensions_seen(const struct tw_extensions *list, char own[TW_ADDR_BYTES],
                        char other[TW_ADDR_BYTES]);
/* Returns the number of the process that sent the list; 0 if it states none. */
uint64_t tw_extensions_process(const struct tw_extensions *list);

/* Writes the name as other nodes may show it: letters, digits and ".", "_", "-", at most
 * TW_NODE_NAME_BYTES - 1 of them. Each run of other bytes becomes one "-". Such a name needs no
 * escapes on a terminal, in a log line or on a page. */
void tw_node_name_clean(const char *name, char out[TW_NODE_NAME_BYTES]);

/* Adds extension NAME, unless nothing of the name is left once it is cleaned. */
void tw_extensions_add_name(struct tw_extensions *list, const char *name);

/* Writes the name of the node that sent the list; "" if it states none. */
void tw_extensions_name(const struct tw_extensions *list, char out[TW_NODE_NAME_BYTES]);

/* Writes the program name and version of the node that sent the list; "" if it states none. */
void tw_extensions_software(const struct tw_extensions *list, char out[TW_SOFTWARE_BYTES]);

/* ---- WELCOME -------------------------------------------------------------------------------- */

/* WELCOME, the answer to a machine with a valid ticket (a guest). It contains all data
 * that the machine needs to become a node of the run. PROTOCOL.md section 3. Pure. */

enum {
    TW_WELCOME_SECRETS_MAX = 2,
    TW_WELCOME_SECRET_BYTES = 32,
    TW_WELCOME_PEERS_MAX = 16,
};

struct tw_welcome_peer {
    struct tw_id id;
    char addr[TW_ADDR_BYTES];
};

struct tw_welcome {
    uint32_t manifest_bytes;
    char manifest[TW_MANIFEST_BYTES_MAX + 1]; /* canonical text, with NUL */
    uint32_t secrets_count;                   /* number of secrets, of which a node uses the first;
                                                 0: the run has none */
    uint8_t secrets[TW_WELCOME_SECRETS_MAX][TW_WELCOME_SECRET_BYTES];
    struct tw_certs certs; /* empty: the run has no owner */
    uint32_t peers_count;  /* other nodes of the run and their addresses */
    struct tw_welcome_peer peers[TW_WELCOME_PEERS_MAX];
};

/* Writes the body and returns its size in bytes. */
uint32_t tw_welcome_encode(const struct tw_welcome *welcome, uint8_t body[TW_WELCOME_BYTES_MAX]);

/* Decodes untrusted bytes. The TW_PROTO error names the field. The caller reads the manifest
 * (proto/run/run.h) and compares its run id with the ticket's. */
enum tw_status tw_welcome_decode(const uint8_t *body, size_t size, struct tw_welcome *welcome,
                                 struct tw_error *err);

#endif
