/* limits.h - bounds that several libraries share, and sizes on the wire, each with its unit. A
 * bound that only one file needs stands in that file. */
#ifndef TW_BASE_LIMITS_H
#define TW_BASE_LIMITS_H

enum tw_limits {
    /* the run */
    TW_MEMBERS_MAX = 64,          /* nodes in a group roster: contributors are one 64-bit set */
    TW_FRAGMENTS_MAX = 1024,      /* fragments of a model */
    TW_PARTS_MAX = 16,            /* owners (and so parts) of one round */
    TW_TENSORS_MAX = 4096,        /* tensors of a model */
    TW_TENSOR_NAME_BYTES = 128,   /* name of a tensor and NUL */
    TW_TENSOR_RANK_MAX = 6,       /* sides of a tensor */
    TW_TENSORS_TEXT_BYTES = 8192, /* names and shapes of a run's tensors as text, and NUL */
    TW_PART_ALIGN = 1024, /* boundaries of parts are multiples of this many elements; it is a
                             multiple of every codec's block */
    TW_FRAGMENT_ELEMENTS_MAX =
        120 << 20, /* elements of a fragment, whose (phi, u) travel as one payload */

    /* the node */
    TW_PEERS_MAX = 64,      /* authenticated peers linked at a time */
    TW_PEERS_FREE_MAX = 48, /* peers up to which one host may link any number of new node ids */
    TW_PEERS_FRESH_PER_HOST = 4, /* new node ids that one host may link beyond TW_PEERS_FREE_MAX */
    TW_KNOWN_MAX = 256,          /* members kept in the table */
    TW_BANS_MAX = 256,           /* nodes that broke the protocol, kept across restarts */
    TW_ADDRS_MAX = 4,            /* addresses kept per member */
    TW_ADDR_BYTES = 72,          /* "host:port" and NUL */
    TW_ROUNDS_KEPT = 64,         /* committed round records kept for members that missed them */
    TW_PAYLOADS_MAX = 512,       /* payloads known to a node: wanted, arriving or held */
    TW_ACTIONS_MAX = 4096, /* actions of one node after one event, before the runtime takes them */
    TW_TRANSFERS_MAX = 64, /* payloads arriving at a time */
    TW_STATES_KEPT = 4,    /* packed states for which memory is reserved, of the largest fragment */
    TW_HEARTBEAT_US = 1000 * 1000, /* time between two STATUS on a control link */
    TW_PEER_SILENCE_US =
        6 * 1000 * 1000, /* silence after which the link is closed and the peer counts as dead */

    TW_SIGNATURE_BYTES = 64, /* Ed25519 */

    /* the wire */
    TW_FRAME_HEADER_BYTES = 32,       /* PROTOCOL.md section 2 */
    TW_CONTROL_BYTES_MAX = 64 * 1024, /* body of a control frame */
    TW_CHUNK_BYTES_MAX = 256 * 1024,  /* payload bytes in a bulk frame */
    TW_CHUNK_HEADER_BYTES = 40,       /* payload id (32), chunk index (4), reserved (4) */
    TW_FRAME_BODY_MAX = TW_CHUNK_BYTES_MAX + TW_CHUNK_HEADER_BYTES,
    TW_PAYLOAD_BYTES_MAX = 1 << 30, /* one payload */
    TW_CHUNKS_MAX = TW_PAYLOAD_BYTES_MAX / TW_CHUNK_BYTES_MAX,
    TW_MANIFEST_BYTES_MAX = 24 * 1024, /* canonical text of a run manifest */

    /* connections */
    TW_LISTEN_MAX = 4,           /* addresses a node listens on */
    TW_BIND_MAX = 2,             /* addresses a node dials from, one per family */
    TW_HELLO_BYTES_MAX = 1024,   /* body of a HELLO or GOODBYE */
    TW_HELLO_EXTENSIONS_MAX = 8, /* extensions of a HELLO */
    TW_HELLO_EXTENSIONS_BYTES =
        600, /* bytes of all extensions: the rest of a HELLO with 4 long addresses */
    TW_WELCOME_BYTES_MAX = 28 * 1024, /* body of a WELCOME: a manifest and 4 KiB for the rest */
    TW_ACCEPTS_PER_S = 500,           /* TCP connections taken from the kernel */
    TW_HANDSHAKE_LIMITER_PER_S = 50,  /* handshakes begun by all unknown hosts together */
    TW_HANDSHAKE_LIMITER_BURST = 512, /* handshakes of unknown hosts at once */
    TW_HANDSHAKE_LIMITER_NET_PER_S =
        10, /* handshakes of one /24 or /48, and of one host from which members connected */
    TW_HANDSHAKE_LIMITER_NET_BURST =
        128, /* handshakes that one network may begin at once: all its nodes may restart together */
    TW_MESSAGES_PER_S =
        4000, /* control messages read from one peer per second; some kinds count as several */
    TW_MESSAGES_BURST = 8000,           /* control messages of one peer at once */
    TW_PEER_CONTROL_BYTES = 2 << 20,    /* memory of a peer's control connection, at most */
    TW_PEER_BULK_BYTES = 8 << 20,       /* memory of a peer's bulk connection, at most */
    TW_HANDSHAKES_MAX = 64,             /* connections accepted and not yet admitted */
    TW_HANDSHAKES_PER_HOST = 16,        /* handshakes from one address (/64 of IPv6) at a time */
    TW_HANDSHAKE_US = 5 * 1000 * 1000,  /* time from accept or connect to admission */
    TW_HANDSHAKE_BYTES_MAX = 16 * 1024, /* ciphertext received before admission */
    TW_DIALS_MAX = 32,                  /* outgoing connections under way */
    TW_CONNECT_US = 10 * 1000 * 1000,   /* time for name lookup and TCP connect */
    TW_PROBE_US =
        4 * 1000 * 1000, /* time for name lookup and TCP connect of dials that a peer asked for */
    TW_DIAL_STAGGER_US = 250 * 1000, /* delay between dials to two addresses of one node */
    TW_CONTROL_QUEUE_BYTES =
        256 * 1024, /* bytes of a peer's control queue that the kernel has not taken yet */
    TW_BULK_QUEUE_CHUNKS = 1024, /* chunks queued for one peer, which it pulled ahead */
    TW_BACKGROUND_QUEUE_CHUNKS =
        64, /* dataset chunks queued for one peer, which were read ahead from disk */
    TW_INFLIGHT_BYTES_MAX =
        64 * 1024, /* ciphertext of one connection that is not yet in the kernel */
    /* bytes of one TLS record; a control message waits for one at most */
    TW_TLS_RECORD_BYTES_MAX = 16 * 1024,

    /* relayed links: a member carries connections of two others */
    TW_RELAY_TOKEN_BYTES = 16, /* name of one call */
    TW_RELAY_PIPES_MAX = 64,   /* calls and pipes that a relay carries at a time */
    TW_RELAY_PIPES_PER_PAIR =
        4, /* pipes between the same two nodes: control, bulk, and their successors */
    TW_RELAY_PIPES_PER_PEER = 32, /* pipes and calls from or to one node */
    TW_RELAY_CALLS_MAX = 16,      /* calls of all nodes together that have no pipe yet */
    TW_RELAY_CALLS_PER_PEER = 4,  /* calls without a pipe from or to one node */
    TW_RELAY_CALLS_PER_S = 2,     /* calls begun by one node */
    TW_RELAY_ANSWERS_PER_S = 8,   /* calls answered through one relay */
    TW_RELAY_ANSWERS_BURST = 64,  /* answers through one relay at once */
    TW_RELAY_CALLS_BURST = 16,    /* calls begun by one node at once */
    TW_RELAY_CALL_US =
        10 * 1000 * 1000, /* time from a call to its pipe, after which the call is given up */
    TW_RELAY_QUEUE_BYTES =
        256 * 1024,                /* bytes of one direction of a pipe that were not sent on yet */
    TW_RELAY_ANSWERS_MAX = 8,      /* dials at a time that answer a relay's call */
    TW_RELAY_ANSWERS_PER_PEER = 4, /* dials at a time to one relay that called */
    TW_PUNCHES_MAX = 4,            /* relayed links that are punched at a time */
    TW_PUNCH_US = 4 * 1000 * 1000, /* time for which both ends of a punch dial */
};

_Static_assert(TW_MEMBERS_MAX <= 64, "contributor sets are 64-bit");
_Static_assert(TW_PARTS_MAX <= TW_MEMBERS_MAX, "every part has its own owner");
_Static_assert(TW_FRAGMENT_ELEMENTS_MAX / 1024 * 8 < TW_PAYLOAD_BYTES_MAX / 1024 * 95 / 100,
               "8 bytes per element and 5 % for the packing");
_Static_assert(TW_PEER_SILENCE_US >= 3 * TW_HEARTBEAT_US, "two lost heartbeats are survivable");
_Static_assert(TW_HANDSHAKE_LIMITER_BURST >= 4 * TW_HANDSHAKE_LIMITER_NET_BURST,
               "one network leaves room for others");
_Static_assert(TW_HANDSHAKE_LIMITER_NET_BURST >= 2 * TW_PEERS_MAX,
               "control and bulk of every peer");
_Static_assert(TW_RELAY_PIPES_PER_PEER * 2 <= TW_RELAY_PIPES_MAX,
               "one pair leaves room for others");
_Static_assert(TW_ACTIONS_MAX >= 16 * TW_PEERS_MAX, "one event may talk to every peer");

#endif
