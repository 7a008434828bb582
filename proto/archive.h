/* archive.h - files of an archive: the decided rounds of a run, with which anybody can prove a
 * model.
 *
 *     run.manifest
 *     rounds/ROUND-LINEAGE.round      a record, and the votes that decided it
 *     rounds/ROUND-LINEAGE.results    its results, one part after the other
 *     states/DIGEST.state             phi, then u, of a fragment that no archived round gives
 *     members/NODE.certs              certificates of a member, in runs with an owner (cert.h)
 *
 * ROUND is decimal; LINEAGE, DIGEST and NODE are the first digits of the ids. A name only helps to
 * find a file: the content of each is named by hashes in a record. A web server can serve the
 * folder as it is.
 *
 * Bytes of a round:  "TWD1" || u32 bytes of the record || record || proof (record.h), both
 * little-endian. */
#ifndef TW_PROTO_ARCHIVE_H
#define TW_PROTO_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "base/status.h"
#include "proto/record.h"

enum {
    TW_ARCHIVE_NAME_BYTES = 48,
    TW_ARCHIVE_ROUND_BYTES_MAX = 8 + TW_RECORD_BYTES_MAX + TW_PROOF_BYTES_MAX,
};

/* Write the name of a file: of a round with `ending` "round" or "results", of a state, and of a
 * member's certificates. */
void tw_archive_round_name(const struct tw_record *record, const char *ending,
                           char name[TW_ARCHIVE_NAME_BYTES]);
void tw_archive_state_name(const struct tw_id *digest, char name[TW_ARCHIVE_NAME_BYTES]);
void tw_archive_member_name(const struct tw_id *node, char name[TW_ARCHIVE_NAME_BYTES]);

/* Writes the bytes of a round and returns their number. The record must pass tw_record_check. A
 * proof with ballot 0 is none. */
size_t tw_archive_round_encode(const struct tw_record *record, const struct tw_proof *proof,
                               uint8_t bytes[TW_ARCHIVE_ROUND_BYTES_MAX]);

/* Decodes untrusted bytes. Checks the forms of record and proof, but no signature. On TW_PROTO
 * *record and *proof are undefined. */
enum tw_status tw_archive_round_decode(const uint8_t *bytes, size_t size, struct tw_record *record,
                                       struct tw_proof *proof, struct tw_error *err);

#endif
