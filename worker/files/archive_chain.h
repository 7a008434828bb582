/* archive_chain.h - reads an archive (proto/archive.h): the chain of records that leads to its
 * newest one, and the votes of each.
 *
 * Every file is untrusted. A record is in the chain because the next one names its digest, and
 * counts because enough members that the record before it seats have signed it. */
#ifndef TW_WORKER_FILES_ARCHIVE_CHAIN_H
#define TW_WORKER_FILES_ARCHIVE_CHAIN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/record.h"
#include "proto/run/run.h"

struct tw_chain_row;

enum { TW_CHAIN_MEMBERS_MAX = 1024 };

struct tw_archive_chain {
    const char *folder; /* borrowed */
    struct tw_id run;
    bool has_owner; /* only nodes that the run's owner certified may vote */
    struct tw_id owner;
    uint32_t members_count;
    struct tw_id members[TW_CHAIN_MEMBERS_MAX]; /* voters whose certificates are right */
    char uncertified[TW_ID_HEX_BYTES]; /* first voter without certificates in the archive; "": none
                                        */
    uint32_t files;                    /* rounds that the folder holds */
    uint32_t count;                    /* rounds of the chain, oldest first */
    struct tw_chain_row *rows;         /* (files), owned; the chain comes first */
};

/* How a record became part of the run. */
enum tw_chain_link {
    TW_CHAIN_BEGIN,   /* the oldest one here: its members are taken as given */
    TW_CHAIN_DECIDED, /* decided by voters of the record before it */
    TW_CHAIN_FORK,    /* begins a lineage: one node founded it from the record before */
};

struct tw_chain_round {
    struct tw_record record;
    struct tw_proof proof;
    char name[TW_ID_HEX_BYTES]; /* of the file, without its ending */
    enum tw_chain_link link;
    uint32_t signers, voters; /* votes that were checked, and members that may vote */
    struct tw_id founder;     /* FORK, and BEGIN with round 0: node that decided it alone */
    bool had_seat;            /* FORK: the founder is a member in the record before */
};

/* Reads the folder's records and finds the chain to the newest one: that with the largest run
 * clock, of these the highest round. TW_IO, TW_CORRUPT (the sentence names the file), TW_DATA if
 * there is no round. */
enum tw_status tw_archive_chain_open(struct tw_archive_chain *chain, const char *folder,
                                     const struct tw_run *run, struct tw_error *err);
void tw_archive_chain_close(struct tw_archive_chain *chain);

/* Reads round `i` of the chain and checks its votes, and the certificates of its voters in a run
 * with an owner; chain->uncertified if the archive lacks some. `before` is round i - 1; NULL for i
 * = 0. TW_CORRUPT: the file changed, too few valid votes, or a lineage that begins out of nowhere.
 */
enum tw_status tw_archive_chain_read(struct tw_archive_chain *chain, uint32_t i,
                                     const struct tw_chain_round *before,
                                     struct tw_chain_round *round, struct tw_error *err);

/* Reads all bytes of a file of the archive into *bytes, owned by the caller. TW_IO, also if the
 * file has another size than `size`. */
enum tw_status tw_archive_read(const char *folder, const char *inner, const char *name,
                               uint64_t size, uint8_t **bytes, struct tw_error *err);

#endif
