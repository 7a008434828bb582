/* owner_words.c - `thinwire owner sign`, `revoke`, `recall`, and the pause of a whole run. */
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/page.h"
#include "base/units.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/json_path.h"
#include "daemon/cli/common/node_id.h"
#include "daemon/cli/node/owner.h"
#include "daemon/store/checkpoint.h"
#include "proto/cert.h"

/* ---- the owner's key ------------------------------------------------------------------------- */

enum { DAY_S = 24 * 3600, DAYS_OWNER = 365, DAYS_MAX = 3650 };

static enum tw_exit parse_node(const char *text, struct tw_id *node) {
    if (tw_id_parse(text, node)) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "%.80s is no node id: 64 hex digits, as `thinwire status --json` of that node "
                    "prints it",
                    text);
}

/* Opens the key `given` (--key). NULL: the one beside the manifest, or else in this folder. Writes
 * its path. */
static enum tw_exit owner_key_open(const struct owner_place *place, const char *given,
                                   char path[TW_PATH_BYTES], struct tw_identity *key) {
    struct tw_error err;
    const bool is_beside = given == NULL && owner_key_beside(place->run_path, path);
    if (given == NULL && (!is_beside || access(path, F_OK) != 0) &&
        access(OWNER_KEY_FILE, F_OK) == 0)
        given = OWNER_KEY_FILE;
    if (given != NULL && snprintf(path, TW_PATH_BYTES, "%s", given) >= TW_PATH_BYTES)
        return cli_fail(TW_EXIT_USAGE, "--key: the path is too long");
    if (access(path, F_OK) != 0)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s: %s; name the owner's key with --key FILE (`thinwire run new` made it "
                        "beside the manifest)",
                        path, strerror(errno));
    if (tw_identity_open(path, key, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

/* ---- sign ---------------------------------------------------------------------------------- */

struct sign {
    const char *run, *key, *out, *days_text;
    char key_path[TW_PATH_BYTES];
    struct tw_id node;
    uint32_t may;
    bool lacks_vote;
    uint64_t days; /* 0: not given */
};

static enum tw_exit sign_options(struct cli *cli, struct sign *sign) {
    const char *may = "train";
    *sign = (struct sign){.lacks_vote = cli_flag(cli, "--no-vote")};
    (void)cli_option(cli, "--key", &sign->key);
    (void)cli_option(cli, "--run", &sign->run);
    (void)cli_option(cli, "--out", &sign->out);
    (void)cli_option(cli, "--may", &may);
    (void)cli_option(cli, "--days", &sign->days_text);
    const char *const node = cli_operand(cli);
    const enum tw_exit rc = cli_done(cli, "owner sign");
    if (rc != TW_EXIT_OK) return rc;
    if (node == NULL) return cli_fail(TW_EXIT_USAGE, "owner sign: for which node id?");
    if (strcmp(may, "train") == 0) sign->may = TW_CERT_TRAIN;
    if (strcmp(may, "train,admit") == 0) sign->may = TW_CERT_TRAIN | TW_CERT_ADMIT;
    if (sign->may == 0) return cli_fail(TW_EXIT_USAGE, "--may %s: it is train or train,admit", may);
    if (sign->days_text != NULL) {
        char *end;
        sign->days = strtoull(sign->days_text, &end, 10);
        if (*end != 0 || sign->days == 0 || sign->days > DAYS_MAX || sign->days_text[0] == '-')
            return cli_fail(TW_EXIT_USAGE, "--days %s: it is 1 to %d", sign->days_text, DAYS_MAX);
    }
    return parse_node(node, &sign->node);
}

/* Signs with the owner's key. */
static void sign_as_owner(const struct sign *sign, const struct tw_gate *gate,
                          struct tw_certs *certs) {
    *certs = (struct tw_certs){.count = 1};
    certs->certs[0] = (struct tw_cert){.may = sign->may | (sign->lacks_vote ? TW_CERT_VOTELESS : 0),
                                       .from_s = gate->clock_s(),
                                       .run = gate->run,
                                       .node = sign->node};
    owner_key_sign(gate->identity, sign->days > 0 ? sign->days : DAYS_OWNER, &certs->certs[0]);
}

/* Signs with the key of a node that may admit others, and appends that node's own certificate. */
static enum tw_exit sign_as_admitter(const struct sign *sign, struct tw_gate *gate,
                                     const struct owner_place *place, struct tw_certs *certs) {
    struct tw_error err;
    if (!place->has_config)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s is not the key of the run's owner; for a node that may admit name its "
                        "--config, and its identity.key as --key",
                        sign->key_path);
    if (sign->may != TW_CERT_TRAIN)
        return cli_fail(TW_EXIT_USAGE, "--may: only the owner lets nodes admit");
    enum tw_status status = tw_gate_load(gate, place->state_dir, &err);
    if (status == TW_OK) {
        const struct tw_gate_admission admission = {
            .node = sign->node,
            .life_s = sign->days > 0 ? sign->days * DAY_S : TW_GATE_LIFE_S,
            .lacks_vote = sign->lacks_vote,
        };
        status = tw_gate_admit(gate, &admission, certs, &err);
    }
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

static enum tw_exit certs_print(const struct cli *cli, const struct sign *sign,
                                const struct tw_certs *certs) {
    uint8_t bytes[TW_CERTS_MAX * TW_CERT_BYTES];
    char text[TW_ARMOUR_BYTES(TW_CERTS_MAX * TW_CERT_BYTES)];
    char until[TW_UNITS_BYTES], folder[TW_PATH_BYTES], hex[TW_ID_HEX_BYTES];
    struct tw_error err;
    (void)tw_armour_encode(TW_ARMOUR_CERTS, bytes, tw_certs_encode(certs, bytes), text);
    (void)tw_units_utc(until, certs->certs[0].until_s);
    tw_id_hex(&sign->node, hex);
    if (sign->out != NULL &&
        tw_certs_save(owner_folder(sign->out, folder), owner_file(sign->out), certs, &err) != TW_OK)
        return cli_fail(TW_EXIT_FAILURE, "%s", err.message);
    if (cli->json) {
        json_t *const json = json_pack("{s:s,s:s,s:b,s:s}", "node", hex, "until", until, "votes",
                                       (int)tw_certs_has_vote(certs), "certificate", text);
        (void)json_print(json);
    } else if (sign->out == NULL) {
        (void)fputs(text, stdout);
    }
    tw_page_say(
        "Node %.8s is admitted until %s%s, once it has this: `thinwire owner import FILE` there.",
        hex, until, tw_certs_has_vote(certs) ? "" : " (it trains, but does not vote)");
    return TW_EXIT_OK;
}

enum tw_exit owner_sign(struct cli *cli) {
    static struct owner_place place;
    static struct tw_gate gate;
    struct sign sign;
    struct tw_identity key;
    struct tw_certs certs;
    struct tw_error err;
    enum tw_exit rc = sign_options(cli, &sign);
    if (rc == TW_EXIT_OK) rc = owner_place_find(cli, sign.run, &place);
    if (rc == TW_EXIT_OK) rc = owner_key_open(&place, sign.key, sign.key_path, &key);
    if (rc != TW_EXIT_OK) return rc;
    tw_gate_init(&gate, &place.run_id, &place.run.security.owner, &key);
    const struct tw_id public_key = tw_public_key(key.key);
    if (tw_id_equal(&public_key, &gate.owner)) {
        /* Loads this node's revocation list, if there is one. */
        if (place.has_config) (void)tw_gate_load(&gate, place.state_dir, &err);
        sign_as_owner(&sign, &gate, &certs);
    } else {
        rc = sign_as_admitter(&sign, &gate, &place, &certs);
    }
    tw_identity_close(&key);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_revoked_check(&gate.revoked, &certs, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    return certs_print(cli, &sign, &certs);
}

/* ---- revoke -------------------------------------------------------------------------------- */

struct revoke {
    const char *run, *key, *list;
    bool lifts, is_pause;
};

/* Loads the list to extend. A missing file is an empty list, an invalid one is an error. */
static enum tw_exit list_open(const struct revoke *revoke, const struct owner_place *place,
                              struct tw_revoked *list, char path[TW_PATH_BYTES]) {
    struct tw_error err;
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    if (revoke->list != NULL) {
        (void)snprintf(path, TW_PATH_BYTES, "%s", revoke->list);
    } else if (!place->has_config) {
        return cli_fail(TW_EXIT_USAGE, "there is no node here, so name the list: --list FILE");
    } else if (!owner_path(place, TW_REVOKED_FILE, path)) {
        return cli_fail(TW_EXIT_USAGE, "node.state_dir is too long");
    }
    memset(list, 0, sizeof(*list));
    list->run = place->run_id;
    if (access(path, F_OK) != 0) return TW_EXIT_OK;
    if (tw_revoked_load(path, list, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    tw_revoked_signed(list, text);
    if (tw_id_equal(&list->run, &place->run_id) &&
        tw_is_signed(&place->run.security.owner, text, sizeof(text), list->signature))
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY, "%s is not a list of this run's owner", path);
}

/* Nodes whose certificates have expired need no revocation. */
static enum tw_exit fail_full(void) {
    return cli_fail(TW_EXIT_FAILURE,
                    "the list is full at %d nodes: `thinwire owner revoke --lift` nodes whose "
                    "certificates have expired",
                    TW_REVOKED_MAX);
}

static enum tw_exit list_change(struct cli *cli, const struct revoke *revoke,
                                struct tw_revoked *list) {
    unsigned count = 0;
    for (const char *text = cli_operand(cli); text != NULL; text = cli_operand(cli), count++) {
        struct tw_id node;
        const enum tw_exit rc = cli_node_id(cli, text, &node);
        if (rc != TW_EXIT_OK) return rc;
        if (revoke->lifts ? tw_revoked_remove(list, &node) : tw_revoked_add(list, &node)) continue;
        if (list->count == TW_REVOKED_MAX && !tw_revoked_has(list, &node)) return fail_full();
        return cli_fail(TW_EXIT_FAILURE, "%.64s is %s the list", text,
                        revoke->lifts ? "not on" : "already on");
    }
    return count > 0 ? TW_EXIT_OK : cli_fail(TW_EXIT_USAGE, "owner revoke: which node id?");
}

static void list_sign(struct tw_revoked *list, const struct tw_identity *key) {
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    list->version++;
    list->made_s = (uint64_t)time(NULL);
    tw_revoked_signed(list, text);
    tw_sign(key->key, text, sizeof(text), list->signature);
}

/* Signs the changed list with the owner's key, and saves it. Prints errors itself. */
static enum tw_exit list_publish(const struct cli *cli, const struct revoke *revoke,
                                 const struct owner_place *place, const char *path,
                                 struct tw_revoked *list) {
    char folder[TW_PATH_BYTES], key_path[TW_PATH_BYTES];
    struct tw_identity key;
    struct tw_error err;
    enum tw_exit rc = owner_key_open(place, revoke->key, key_path, &key);
    if (rc != TW_EXIT_OK) return rc;
    const struct tw_id public_key = tw_public_key(key.key);
    const bool is_owner = tw_id_equal(&public_key, &place->run.security.owner);
    if (is_owner) list_sign(list, &key);
    tw_identity_close(&key);
    if (!is_owner)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s is not the key of the run's owner, and only the owner %s", key_path,
                        revoke->is_pause ? "pauses the run" : "revokes");
    if (revoke->list == NULL) rc = owner_become_node(cli, place);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_revoked_save(owner_folder(path, folder), owner_file(path), list, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
    return TW_EXIT_OK;
}

static const char *describe_way(const struct revoke *revoke) {
    return revoke->list == NULL ? "The daemon here passes it on within seconds."
                                : "Give it to any node of the run: `thinwire owner import FILE` "
                                  "there. It spreads by itself.";
}

enum tw_exit owner_revoke(struct cli *cli) {
    static struct owner_place place;
    static struct tw_revoked list;
    struct revoke revoke = {.lifts = cli_flag(cli, "--lift")};
    char path[TW_PATH_BYTES];
    (void)cli_option(cli, "--key", &revoke.key);
    (void)cli_option(cli, "--run", &revoke.run);
    (void)cli_option(cli, "--list", &revoke.list);
    enum tw_exit rc = owner_place_find(cli, revoke.run, &place);
    if (rc == TW_EXIT_OK) rc = list_open(&revoke, &place, &list, path);
    if (rc == TW_EXIT_OK) rc = list_change(cli, &revoke, &list);
    if (rc == TW_EXIT_OK) rc = cli_done_text(cli, "owner revoke");
    if (rc == TW_EXIT_OK) rc = list_publish(cli, &revoke, &place, path, &list);
    if (rc != TW_EXIT_OK) return rc;
    const unsigned count = tw_revoked_nodes(&list);
    (void)printf("List %llu revokes %u %s. %s\n", (unsigned long long)list.version, count,
                 count == 1 ? "node" : "nodes", describe_way(&revoke));
    return TW_EXIT_OK;
}

/* ---- pause --run --------------------------------------------------------------------------- */

enum tw_exit owner_pause_run(struct cli *cli, bool is_paused) {
    static struct owner_place place;
    static struct tw_revoked list;
    const char *const verb = is_paused ? "pause" : "resume";
    struct revoke revoke = {.is_pause = true};
    char path[TW_PATH_BYTES];
    (void)cli_option(cli, "--key", &revoke.key);
    (void)cli_option(cli, "--manifest", &revoke.run);
    (void)cli_option(cli, "--list", &revoke.list);
    enum tw_exit rc = cli_done_text(cli, verb);
    if (rc == TW_EXIT_OK) rc = owner_place_find(cli, revoke.run, &place);
    if (rc == TW_EXIT_MANIFEST)
        tw_page_say("Without an owner no node obeys another: use `thinwire %s` on each node.",
                    verb);
    if (rc == TW_EXIT_OK) rc = list_open(&revoke, &place, &list, path);
    if (rc != TW_EXIT_OK) return rc;
    if (tw_revoked_is_paused(&list) == is_paused)
        return cli_fail(TW_EXIT_FAILURE, "the run is %s by list %llu",
                        is_paused ? "already paused" : "not paused",
                        (unsigned long long)list.version);
    if (!(is_paused ? tw_revoked_add : tw_revoked_remove)(&list, &tw_revoked_pause_entry))
        return fail_full();
    rc = list_publish(cli, &revoke, &place, path, &list);
    if (rc != TW_EXIT_OK) return rc;
    (void)printf("List %llu %s training in the whole run. %s\n", (unsigned long long)list.version,
                 is_paused ? "pauses" : "resumes", describe_way(&revoke));
    return TW_EXIT_OK;
}

/* ---- recall ---------------------------------------------------------------------------------- */

struct wish {
    const char *run, *key, *out;
    bool has_lineage;
    struct tw_id lineage;
    uint64_t rounds;
};

static enum tw_exit read_wish(struct cli *cli, struct wish *wish) {
    const char *lineage = NULL;
    char *end = NULL;
    *wish = (struct wish){0};
    (void)cli_option(cli, "--key", &wish->key);
    (void)cli_option(cli, "--run", &wish->run);
    (void)cli_option(cli, "--out", &wish->out);
    wish->has_lineage = cli_option(cli, "--lineage", &lineage);
    const char *const round = cli_operand(cli);
    const enum tw_exit rc = cli_done_text(cli, "owner recall");
    if (rc != TW_EXIT_OK) return rc;
    if (round == NULL)
        return cli_fail(TW_EXIT_USAGE, "owner recall: to which round? `thinwire rollback` lists "
                                       "those that this node has");
    errno = 0;
    wish->rounds = strtoull(round, &end, 10);
    if (round[0] < '1' || round[0] > '9' || *end != 0 || errno != 0)
        return cli_fail(TW_EXIT_USAGE, "%.40s is no round: it is a number above 0", round);
    if (wish->has_lineage && !tw_id_parse(lineage, &wish->lineage))
        return cli_fail(TW_EXIT_USAGE,
                        "--lineage %.80s: it is 64 hex digits, as `thinwire rollback --json` "
                        "prints them",
                        lineage);
    return TW_EXIT_OK;
}

/* ---- the state ----------------------------------------------------------------------------- */

/* Finds the recalled state's lineage from this node's checkpoints of that round. Fails if they are
 * of two lineages. */
static enum tw_exit choose_lineage(const struct tw_checkpoint_about *about, struct wish *wish) {
    bool is_found = false;
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) {
        if (!about[i].exists || about[i].refused[0] != '\0' || !about[i].has_position ||
            about[i].rounds != wish->rounds)
            continue;
        if (is_found && !tw_id_equal(&wish->lineage, &about[i].lineage))
            return cli_fail(TW_EXIT_USAGE,
                            "owner recall: two lineages have a round %" PRIu64
                            " here; name one with --lineage (`thinwire rollback --json` lists "
                            "them)",
                            wish->rounds);
        wish->lineage = about[i].lineage;
        is_found = true;
    }
    if (is_found) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "owner recall: this node has no checkpoint of round %" PRIu64
                    "; `thinwire rollback` lists its checkpoints. If another node has one, name "
                    "its --lineage",
                    wish->rounds);
}

static enum tw_exit find_lineage(const struct owner_place *place, struct wish *wish) {
    static struct tw_layout layout;
    struct tw_checkpoint_about about[TW_CHECKPOINT_FILES];
    struct tw_checkpoint *files;
    struct tw_error err = {0};
    char hex[TW_ID_HEX_BYTES], folder[TW_PATH_BYTES];
    if (wish->has_lineage) return TW_EXIT_OK;
    if (!place->has_config)
        return cli_fail(TW_EXIT_USAGE, "owner recall: no node here, so name the --lineage too");
    tw_id_hex(&place->run_id, hex);
    hex[16] = '\0';
    if (!owner_path(place, hex, folder))
        return cli_fail(TW_EXIT_USAGE, "node.state_dir is too long");
    if (tw_layout_init(&layout, &place->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    if (tw_checkpoint_create(&files, tw_file_system(), folder, &layout, &place->run_id, &err) !=
        TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "owner recall: %s", err.message);
    for (uint32_t i = 0; i < TW_CHECKPOINT_FILES; i++) tw_checkpoint_look(files, i, &about[i]);
    tw_checkpoint_destroy(files);
    return choose_lineage(about, wish);
}

/* ---- the recall ---------------------------------------------------------------------------- */

/* Sets *version to one more than that of the recall in the file, or to 1 if there is no file. */
static enum tw_exit find_version(const struct owner_place *place, const char *path,
                                 uint64_t *version) {
    struct tw_recall there;
    struct tw_error err;
    *version = 1;
    if (access(path, F_OK) != 0) return TW_EXIT_OK;
    if (tw_recall_load(path, &there, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    if (!tw_id_equal(&there.run, &place->run_id))
        return cli_fail(TW_EXIT_IDENTITY, "%s is a recall of another run", path);
    *version = there.version + 1;
    return TW_EXIT_OK;
}

static enum tw_exit sign_recall(const struct owner_place *place, const struct wish *wish,
                                struct tw_recall *recall) {
    uint8_t text[TW_RECALL_SIGNED_BYTES];
    char path[TW_PATH_BYTES];
    struct tw_identity key;
    const enum tw_exit rc = owner_key_open(place, wish->key, path, &key);
    if (rc != TW_EXIT_OK) return rc;
    const struct tw_id public_key = tw_public_key(key.key);
    const bool is_owner = tw_id_equal(&public_key, &place->run.security.owner);
    tw_recall_signed(recall, text);
    if (is_owner) tw_sign(key.key, text, sizeof(text), recall->signature);
    tw_identity_close(&key);
    if (is_owner) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY,
                    "%s is not the key of the run's owner, and only the owner recalls", path);
}

static enum tw_exit save_recall(const char *path, const struct tw_recall *recall) {
    char copy[TW_PATH_BYTES];
    struct tw_error err;
    const char *const slash = strrchr(path, '/');
    (void)snprintf(copy, sizeof(copy), "%s", path);
    if (tw_recall_save(dirname(copy), slash != NULL ? slash + 1 : path, recall, &err) == TW_OK)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
}

enum tw_exit owner_recall(struct cli *cli) {
    static struct owner_place place;
    struct wish wish;
    struct tw_recall recall = {.made_s = (uint64_t)time(NULL)};
    char path[TW_PATH_BYTES], lineage[9];
    enum tw_exit rc = read_wish(cli, &wish);
    if (rc == TW_EXIT_OK) rc = owner_place_find(cli, wish.run, &place);
    if (rc != TW_EXIT_OK) return rc;
    if (place.run.sync.topology == TW_TOPOLOGY_PAIR)
        return cli_fail(TW_EXIT_MANIFEST, "owner recall: in a run of pairs each node has a history "
                                          "of its own; use `thinwire rollback` on each node");
    if (wish.out == NULL && !place.has_config)
        return cli_fail(TW_EXIT_USAGE, "owner recall: no node here, so name the file: --out FILE");
    if (wish.out != NULL)
        (void)snprintf(path, sizeof(path), "%s", wish.out);
    else if (!owner_path(&place, TW_RECALL_FILE, path))
        return cli_fail(TW_EXIT_USAGE, "node.state_dir is too long");
    rc = find_lineage(&place, &wish);
    if (rc == TW_EXIT_OK) rc = find_version(&place, path, &recall.version);
    recall.run = place.run_id;
    recall.lineage = wish.lineage;
    recall.rounds = wish.rounds;
    if (rc == TW_EXIT_OK) rc = sign_recall(&place, &wish, &recall);
    if (rc == TW_EXIT_OK && wish.out == NULL) rc = owner_become_node(cli, &place);
    if (rc == TW_EXIT_OK) rc = save_recall(path, &recall);
    if (rc != TW_EXIT_OK) return rc;
    tw_id_short(&recall.lineage, lineage);
    (void)printf("Recall %" PRIu64 " returns the run to round %" PRIu64 " of lineage %s. %s\n",
                 recall.version, recall.rounds, lineage,
                 wish.out == NULL ? "The daemon here passes it on within seconds."
                                  : "Give it to any node of the run: `thinwire owner import FILE` "
                                    "there. It spreads by itself.");
    return TW_EXIT_OK;
}
