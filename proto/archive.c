#include "proto/archive.h"

#include <string.h>

#include "base/assert.h"

static const uint8_t MAGIC[4] = {'T', 'W', 'D', '1'};

enum { HEAD_BYTES = 8, ROUND_DIGITS = 8, LINEAGE_DIGITS = 16, ID_DIGITS = 40 };

void tw_archive_round_name(const struct tw_record *record, const char *ending,
                           char name[TW_ARCHIVE_NAME_BYTES]) {
    char hex[TW_ID_HEX_BYTES];
    uint32_t digits = ROUND_DIGITS;
    uint64_t rest = record->round;
    for (uint64_t more = rest / 100000000; more > 0; more /= 10) digits++;
    tw_id_hex(&record->lineage, hex);
    TW_ASSERT(digits + 1 + LINEAGE_DIGITS + 1 + strlen(ending) < TW_ARCHIVE_NAME_BYTES);
    for (uint32_t i = digits; i > 0; i--, rest /= 10) name[i - 1] = (char)('0' + rest % 10);
    name[digits] = '-';
    memcpy(name + digits + 1, hex, LINEAGE_DIGITS);
    name[digits + 1 + LINEAGE_DIGITS] = '.';
    memcpy(name + digits + 2 + LINEAGE_DIGITS, ending, strlen(ending) + 1);
}

static void id_name(const struct tw_id *id, const char *ending, char name[TW_ARCHIVE_NAME_BYTES]) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(id, hex);
    TW_ASSERT(ID_DIGITS + strlen(ending) < TW_ARCHIVE_NAME_BYTES);
    memcpy(name, hex, ID_DIGITS);
    memcpy(name + ID_DIGITS, ending, strlen(ending) + 1);
}

void tw_archive_state_name(const struct tw_id *digest, char name[TW_ARCHIVE_NAME_BYTES]) {
    id_name(digest, ".state", name);
}

void tw_archive_member_name(const struct tw_id *node, char name[TW_ARCHIVE_NAME_BYTES]) {
    id_name(node, ".certs", name);
}

size_t tw_archive_round_encode(const struct tw_record *record, const struct tw_proof *proof,
                               uint8_t bytes[TW_ARCHIVE_ROUND_BYTES_MAX]) {
    const size_t size = tw_record_encode(record, bytes + HEAD_BYTES);
    memcpy(bytes, MAGIC, sizeof(MAGIC));
    for (unsigned i = 0; i < 4; i++) bytes[4 + i] = (uint8_t)(size >> (8 * i));
    return HEAD_BYTES + size + tw_proof_encode(proof, bytes + HEAD_BYTES + size);
}

enum tw_status tw_archive_round_decode(const uint8_t *bytes, size_t size, struct tw_record *record,
                                       struct tw_proof *proof, struct tw_error *err) {
    if (size < HEAD_BYTES || memcmp(bytes, MAGIC, sizeof(MAGIC)) != 0)
        return tw_fail(err, TW_PROTO, "it does not begin like a round of an archive");
    size_t record_bytes = 0;
    for (unsigned i = 0; i < 4; i++) record_bytes |= (size_t)bytes[4 + i] << (8 * i);
    if (record_bytes > size - HEAD_BYTES)
        return tw_fail(err, TW_PROTO, "it ends within its record");
    TW_TRY(tw_record_decode(bytes + HEAD_BYTES, record_bytes, record, err));
    const size_t rest = size - HEAD_BYTES - record_bytes;
    *proof = (struct tw_proof){.ballot = 0};
    return rest == 0 ? TW_OK : tw_proof_decode(bytes + HEAD_BYTES + record_bytes, rest, proof, err);
}
