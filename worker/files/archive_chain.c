#include "worker/files/archive_chain.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/signature.h"
#include "proto/archive.h"
#include "proto/cert.h"

enum {
    FILES_MAX = 1 << 24,
    NAME_BYTES = TW_ARCHIVE_NAME_BYTES,
};

/* The part of a record that is kept while the chain is found. */
struct tw_chain_row {
    struct tw_id digest, parent;
    uint64_t round, clock_tokens;
    bool is_linked; /* found on the way back from the newest record */
    char name[NAME_BYTES];
};

/* ---- files ----------------------------------------------------------------------------------- */

static bool make_path(char path[PATH_MAX], const char *folder, const char *inner,
                      const char *name) {
    const int n = snprintf(path, PATH_MAX, "%s/%s/%s", folder, inner, name);
    return n > 0 && n < PATH_MAX;
}

enum tw_status tw_archive_read(const char *folder, const char *inner, const char *name,
                               uint64_t size, uint8_t **bytes, struct tw_error *err) {
    char path[PATH_MAX];
    if (!make_path(path, folder, inner, name)) return tw_fail(err, TW_IO, "the path is too long");
    FILE *const file = fopen(path, "rb");
    if (file == NULL) return tw_fail(err, TW_IO, "%.40s/%s: %s", inner, name, strerror(errno));
    *bytes = malloc(size > 0 ? size : 1);
    const bool is_read = *bytes != NULL && fread(*bytes, 1, size, file) == size &&
                         fgetc(file) == EOF && ferror(file) == 0;
    (void)fclose(file);
    if (is_read) return TW_OK;
    free(*bytes);
    *bytes = NULL;
    return tw_fail(err, TW_IO, "%.40s/%s: it cannot be read, or has not %llu bytes", inner, name,
                   (unsigned long long)size);
}

/* Reads one round. Every name but the ending is the archive's own affair. */
static enum tw_status read_round(const char *folder, const char *name, struct tw_record *record,
                                 struct tw_proof *proof, struct tw_error *err) {
    static uint8_t bytes[TW_ARCHIVE_ROUND_BYTES_MAX + 1];
    char path[PATH_MAX];
    struct tw_error why;
    if (!make_path(path, folder, "rounds", name))
        return tw_fail(err, TW_IO, "the path is too long");
    FILE *const file = fopen(path, "rb");
    if (file == NULL) return tw_fail(err, TW_IO, "rounds/%s: %s", name, strerror(errno));
    const size_t size = fread(bytes, 1, sizeof(bytes), file);
    const bool has_failed = ferror(file) != 0;
    (void)fclose(file);
    if (has_failed) return tw_fail(err, TW_IO, "rounds/%s cannot be read", name);
    if (size < sizeof(bytes) && tw_archive_round_decode(bytes, size, record, proof, &why) == TW_OK)
        return TW_OK;
    return tw_fail(err, TW_CORRUPT, "rounds/%s is damaged: %.200s", name,
                   size < sizeof(bytes) ? why.message : "it is too long");
}

static bool is_round(const char *name) {
    static const char ENDING[] = ".round";
    const size_t size = strlen(name), end = sizeof(ENDING) - 1;
    return size > end && size < NAME_BYTES && strcmp(name + size - end, ENDING) == 0;
}

/* ---- the chain ------------------------------------------------------------------------------- */

static enum tw_status add_row(struct tw_archive_chain *chain, size_t *room, const char *name,
                              struct tw_error *err) {
    static struct tw_record record;
    static struct tw_proof proof;
    TW_TRY(read_round(chain->folder, name, &record, &proof, err));
    if (chain->files == FILES_MAX) return tw_fail(err, TW_LIMIT, "more than %d rounds", FILES_MAX);
    if (chain->files == *room) {
        const size_t more = *room > 0 ? 2 * *room : 1024;
        struct tw_chain_row *const rows = realloc(chain->rows, more * sizeof(*rows));
        if (rows == NULL) return tw_fail(err, TW_NOMEM, "no memory for %zu rounds", more);
        chain->rows = rows;
        *room = more;
    }
    struct tw_chain_row *const row = &chain->rows[chain->files++];
    *row = (struct tw_chain_row){.digest = tw_record_digest(&record),
                                 .parent = record.parent,
                                 .round = record.round,
                                 .clock_tokens = record.clock_tokens};
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    return TW_OK;
}

static enum tw_status read_rows(struct tw_archive_chain *chain, struct tw_error *err) {
    char path[PATH_MAX];
    size_t room = 0;
    if (!make_path(path, chain->folder, "rounds", ""))
        return tw_fail(err, TW_IO, "the path is too long");
    DIR *const dir = opendir(path);
    if (dir == NULL)
        return tw_fail(err, TW_IO, "%.300s: %s: is it an archive (node.archive)?", path,
                       strerror(errno));
    enum tw_status status = TW_OK;
    for (struct dirent *entry = readdir(dir); status == TW_OK && entry != NULL;
         entry = readdir(dir))
        if (is_round(entry->d_name)) status = add_row(chain, &room, entry->d_name, err);
    (void)closedir(dir);
    if (status == TW_OK && chain->files == 0)
        return tw_fail(err, TW_DATA, "%.300s holds no round yet", path);
    return status;
}

static int by_digest(const void *a, const void *b) {
    const struct tw_chain_row *const one = a, *const two = b;
    return memcmp(&one->digest, &two->digest, sizeof(one->digest));
}

static int by_place(const void *a, const void *b) {
    const struct tw_chain_row *const one = a, *const two = b;
    if (one->is_linked != two->is_linked) return one->is_linked ? -1 : 1;
    return (one->round > two->round) - (one->round < two->round);
}

static bool is_newer(const struct tw_chain_row *a, const struct tw_chain_row *b) {
    if (a->clock_tokens != b->clock_tokens) return a->clock_tokens > b->clock_tokens;
    return a->round > b->round;
}

/* Walks back from the newest record. A parent has a lower round, so the walk ends. */
static void link_rows(struct tw_archive_chain *chain) {
    struct tw_chain_row *const rows = chain->rows;
    qsort(rows, chain->files, sizeof(*rows), by_digest);
    struct tw_chain_row *at = &rows[0];
    for (uint32_t i = 1; i < chain->files; i++)
        if (is_newer(&rows[i], at)) at = &rows[i];
    while (at != NULL) {
        const struct tw_chain_row key = {.digest = at->parent};
        struct tw_chain_row *const parent =
            bsearch(&key, rows, chain->files, sizeof(*rows), by_digest);
        at->is_linked = true;
        chain->count++;
        at = parent != NULL && parent->round < at->round ? parent : NULL;
    }
    qsort(rows, chain->files, sizeof(*rows), by_place);
}

enum tw_status tw_archive_chain_open(struct tw_archive_chain *chain, const char *folder,
                                     const struct tw_run *run, struct tw_error *err) {
    *chain = (struct tw_archive_chain){.folder = folder,
                                       .run = tw_run_id(run),
                                       .has_owner = run->security.admission == TW_ADMISSION_OWNER,
                                       .owner = run->security.owner};
    const enum tw_status status = read_rows(chain, err);
    if (status != TW_OK) {
        tw_archive_chain_close(chain);
        return status;
    }
    link_rows(chain);
    TW_ASSERT(chain->count > 0 && chain->count <= chain->files);
    return TW_OK;
}

void tw_archive_chain_close(struct tw_archive_chain *chain) {
    free(chain->rows);
    chain->rows = NULL;
}

/* ---- certificates ---------------------------------------------------------------------------- */

/* Checks that the owner let the node vote. The time of a round is not known, so any time counts at
 * which all certificates held. */
static enum tw_status judge(const struct tw_archive_chain *chain, const struct tw_id *node,
                            const struct tw_certs *certs, struct tw_error *err) {
    struct tw_cert_question question = {
        .owner = chain->owner, .run = chain->run, .node = *node, .may = TW_CERT_TRAIN};
    uint8_t text[TW_CERT_SIGNED_BYTES];
    for (uint32_t i = 0; i < certs->count; i++)
        if (certs->certs[i].from_s > question.now_s) question.now_s = certs->certs[i].from_s;
    TW_TRY(tw_certs_check(certs, &question, err));
    for (uint32_t i = 0; i < certs->count; i++) {
        tw_cert_signed(&certs->certs[i], text);
        if (!tw_is_signed(&certs->certs[i].issuer, text, sizeof(text), certs->certs[i].signature))
            return tw_fail(err, TW_CORRUPT, "a signature is false");
    }
    if (tw_certs_has_vote(certs)) return TW_OK;
    return tw_fail(err, TW_CORRUPT, "it gives no vote");
}

/* Certificates of a voter; each node is looked up once. */
static enum tw_status check_member(struct tw_archive_chain *chain, const struct tw_id *node,
                                   struct tw_error *err) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES + 1];
    char name[TW_ARCHIVE_NAME_BYTES], path[PATH_MAX];
    struct tw_certs certs;
    struct tw_error why;
    for (uint32_t i = 0; i < chain->members_count; i++)
        if (tw_id_equal(&chain->members[i], node)) return TW_OK;
    tw_archive_member_name(node, name);
    if (!make_path(path, chain->folder, "members", name))
        return tw_fail(err, TW_IO, "the path is too long");
    FILE *const file = fopen(path, "rb");
    if (file == NULL) {
        if (chain->uncertified[0] == '\0') tw_id_hex(node, chain->uncertified);
        return TW_OK;
    }
    const size_t size = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    if (tw_certs_decode(bytes, size, &certs, &why) != TW_OK ||
        judge(chain, node, &certs, &why) != TW_OK)
        return tw_fail(err, TW_CORRUPT, "members/%s admits no voter of this run: %.160s", name,
                       why.message);
    if (chain->members_count < TW_CHAIN_MEMBERS_MAX) chain->members[chain->members_count++] = *node;
    return TW_OK;
}

static enum tw_status check_members(struct tw_archive_chain *chain, const struct tw_roster *roster,
                                    const struct tw_proof *proof, struct tw_error *err) {
    for (uint32_t i = 0; chain->has_owner && i < roster->count; i++)
        if ((proof->voters >> i & 1) != 0) TW_TRY(check_member(chain, &roster->members[i].id, err));
    return TW_OK;
}

/* ---- votes ----------------------------------------------------------------------------------- */

/* Returns the number of votes of the roster that the proof has, or 0 if one of them is false or
 * from a member without a vote. */
static uint32_t count_votes(const struct tw_archive_chain *chain, const struct tw_roster *roster,
                            const struct tw_chain_round *round) {
    const struct tw_record *const record = &round->record;
    struct tw_ballot_vote vote = {.run = chain->run,
                                  .lineage = record->lineage,
                                  .round = record->round,
                                  .ballot = round->proof.ballot,
                                  .phase = TW_VOTE_COMMIT,
                                  .digest = tw_record_digest(record)};
    uint8_t text[TW_VOTE_TEXT_BYTES];
    uint32_t votes = 0;
    if ((round->proof.voters & ~tw_roster_voters(roster)) != 0) return 0;
    for (uint32_t i = 0; i < roster->count; i++) {
        if ((round->proof.voters >> i & 1) == 0) continue;
        vote.nonce = roster->members[i].nonce;
        tw_ballot_vote_text(&vote, text);
        if (!tw_is_signed(&roster->members[i].id, text, sizeof(text), round->proof.signatures[i]))
            return 0;
        votes++;
    }
    return votes;
}

static enum tw_status check_votes(struct tw_archive_chain *chain, const struct tw_roster *roster,
                                  struct tw_chain_round *round, struct tw_error *err) {
    round->voters = (uint32_t)__builtin_popcountll(tw_roster_voters(roster));
    round->signers = count_votes(chain, roster, round);
    if (round->voters > 0 && round->signers >= tw_votes_needed(round->voters))
        return check_members(chain, roster, &round->proof, err);
    return tw_fail(err, TW_CORRUPT,
                   "rounds/%s: %u valid votes of %u voters, and %u decide: it was changed, or was "
                   "never decided",
                   round->name, round->signers, round->voters,
                   round->voters > 0 ? tw_votes_needed(round->voters) : 1);
}

/* A lineage begins with one node: its founder decides the first round alone. */
static enum tw_status check_founder(struct tw_archive_chain *chain,
                                    const struct tw_chain_round *before,
                                    struct tw_chain_round *round, struct tw_error *err) {
    const struct tw_record *const record = &round->record;
    for (uint32_t i = 0; i < record->next.count; i++) {
        struct tw_roster alone = {.number = record->roster_number, .count = 1};
        alone.members[0] = record->next.members[i];
        alone.members[0].lacks_vote = false;
        if (count_votes(chain, &alone, round) == 0) continue;
        round->signers = round->voters = 1;
        round->founder = alone.members[0].id;
        round->had_seat =
            before != NULL && tw_roster_find(&before->record.next, &round->founder) >= 0;
        return check_members(chain, &alone, &round->proof, err);
    }
    return tw_fail(err, TW_CORRUPT,
                   "rounds/%s begins a lineage, and no member of it signed that alone",
                   round->name);
}

enum tw_status tw_archive_chain_read(struct tw_archive_chain *chain, uint32_t i,
                                     const struct tw_chain_round *before,
                                     struct tw_chain_round *round, struct tw_error *err) {
    TW_ASSERT(i < chain->count);
    const struct tw_chain_row *const row = &chain->rows[i];
    TW_TRY(read_round(chain->folder, row->name, &round->record, &round->proof, err));
    (void)snprintf(round->name, sizeof(round->name), "%s", row->name);
    const struct tw_id digest = tw_record_digest(&round->record);
    if (!tw_id_equal(&digest, &row->digest))
        return tw_fail(err, TW_CORRUPT, "rounds/%s changed while it was read", row->name);
    round->signers = round->voters = 0;
    if (before == NULL) {
        round->link = TW_CHAIN_BEGIN;
        if (round->record.round > 0) return TW_OK;
        return check_founder(chain, NULL, round, err);
    }
    const bool is_same = tw_id_equal(&before->record.lineage, &round->record.lineage);
    round->link = is_same ? TW_CHAIN_DECIDED : TW_CHAIN_FORK;
    return is_same ? check_votes(chain, &before->record.next, round, err)
                   : check_founder(chain, before, round, err);
}
