/* owner.c - `thinwire owner new, import, show`: the run owner's key, and the files that it signed.
 */
#include "daemon/cli/node/owner.h"

#include "daemon/cli/common/json_path.h"
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/nearest.h"
#include "base/units.h"
#include "daemon/auth/gate.h"
#include "daemon/auth/identity.h"
#include "daemon/cli/common/node_user.h"
#include "daemon/cli/run/manifest_text.h"

/* ---- the key beside the manifest ------------------------------------------------------------- */

enum {
    DAY_S = 24 * 3600,
    /* A node beside the owner's key: its holder shuts it out, not the calendar. Certificates for
     * others cannot last longer, so a short life would end the whole run's admission. */
    DAYS_BESIDE = 3650,
};

bool owner_key_beside(const char *manifest, char path[TW_PATH_BYTES]) {
    const char *const slash = strrchr(manifest, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - manifest) + 1;
    return snprintf(path, TW_PATH_BYTES, "%.*s%s", folder, manifest, OWNER_KEY_FILE) <
           TW_PATH_BYTES;
}

enum tw_status owner_key_have(const char *path, struct tw_id *owner, bool *is_new,
                              struct tw_error *err) {
    struct tw_identity key;
    *is_new = access(path, F_OK) != 0;
    if (*is_new) TW_TRY(tw_identity_create(path, err));
    TW_TRY(tw_identity_open(path, &key, err));
    *owner = tw_public_key(key.key);
    tw_identity_close(&key);
    return TW_OK;
}

enum owner_key_state owner_key_look(const struct tw_run *run, const char *manifest,
                                    char path[TW_PATH_BYTES], struct tw_identity *key) {
    struct tw_error err;
    if (!owner_key_beside(manifest, path) || access(path, F_OK) != 0) return OWNER_KEY_NONE;
    if (access(path, R_OK) != 0 || tw_identity_open(path, key, &err) != TW_OK)
        return OWNER_KEY_HIDDEN;
    const struct tw_id owner = tw_public_key(key->key);
    if (tw_id_equal(&owner, &run->security.owner)) return OWNER_KEY_HERE;
    tw_identity_close(key);
    return OWNER_KEY_NONE;
}

void owner_key_sign(const struct tw_identity *key, uint64_t days, struct tw_cert *cert) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    const uint64_t now_s = cert->from_s;
    cert->from_s = now_s > TW_CERT_SLACK_S ? now_s - TW_CERT_SLACK_S : 0;
    cert->until_s = now_s + days * DAY_S;
    cert->serial = now_s;
    cert->issuer = tw_public_key(key->key);
    tw_cert_signed(cert, text);
    tw_sign(key->key, text, sizeof(text), cert->signature);
}

/* With sudo, the certificate belongs to the user of the state folder, as the other files there. */
static enum tw_status give_to_user(const char *folder, struct tw_error *err) {
    char path[TW_PATH_BYTES + 32];
    struct stat info;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, TW_CERT_FILE);
    if (geteuid() != 0 || (stat(folder, &info) == 0 && chown(path, info.st_uid, info.st_gid) == 0))
        return TW_OK;
    return tw_fail(err, TW_IO, "%.200s: %s", path, strerror(errno));
}

enum tw_status owner_key_admit(const struct tw_config *config, const struct tw_run *run,
                               const struct tw_id *node, char key_path[TW_PATH_BYTES],
                               struct tw_error *err) {
    struct tw_identity key;
    struct tw_certs certs = {.count = 1};
    if (owner_key_look(run, config->node.run, key_path, &key) != OWNER_KEY_HERE)
        return tw_fail(err, TW_AGAIN, "the owner's key is not beside %.150s", config->node.run);
    certs.certs[0] = (struct tw_cert){.may = TW_CERT_TRAIN | TW_CERT_ADMIT,
                                      .from_s = (uint64_t)time(NULL),
                                      .run = tw_run_id(run),
                                      .node = *node};
    owner_key_sign(&key, DAYS_BESIDE, &certs.certs[0]);
    tw_identity_close(&key);
    TW_TRY(tw_certs_save(config->node.state_dir, TW_CERT_FILE, &certs, err));
    return give_to_user(config->node.state_dir, err);
}

/* ---- place ---------------------------------------------------------------------------------- */

enum tw_exit owner_place_find(struct cli *cli, const char *run_path, struct owner_place *place) {
    struct tw_config *const config = &place->config;
    struct tw_error err;
    memset(place, 0, sizeof(*place));
    /* With --run, this machine may have no node, or a node of another run. */
    place->has_config = run_path == NULL || cli->config_option != NULL;
    if (place->has_config) {
        enum tw_exit rc = cli_config(cli, config);
        if (rc == TW_EXIT_OK && geteuid() != 0) rc = owner_become_node(cli, place);
        if (rc != TW_EXIT_OK) return rc;
        memcpy(place->state_dir, config->node.state_dir, sizeof(place->state_dir));
        if (run_path == NULL) run_path = config->node.run;
    }
    if (cli_manifest_load(run_path, &place->run, &err) != TW_OK)
        return cli_fail(TW_EXIT_MANIFEST, "%s", err.message);
    if (place->run.security.admission != TW_ADMISSION_OWNER)
        return cli_fail(TW_EXIT_MANIFEST,
                        "the run of %s has no owner (security.admission); a new run has one, and "
                        "no run can be changed",
                        run_path);
    place->run_id = tw_run_id(&place->run);
    (void)snprintf(place->run_path, sizeof(place->run_path), "%s", run_path);
    return TW_EXIT_OK;
}

enum tw_exit owner_become_node(const struct cli *cli, const struct owner_place *place) {
    struct tw_error err;
    if (!place->has_config || cli_become_node_user(cli, &place->config, &err) == TW_OK)
        return TW_EXIT_OK;
    return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
}

bool owner_path(const struct owner_place *place, const char *name, char path[TW_PATH_BYTES]) {
    const int size = snprintf(path, TW_PATH_BYTES, "%s/%s", place->state_dir, name);
    return size > 0 && size < TW_PATH_BYTES;
}

const char *owner_folder(const char *path, char copy[TW_PATH_BYTES]) {
    (void)snprintf(copy, TW_PATH_BYTES, "%s", path);
    return dirname(copy);
}

const char *owner_file(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- new ----------------------------------------------------------------------------------- */

static enum tw_exit owner_new(struct cli *cli) {
    const char *path = cli_operand(cli);
    struct tw_identity key;
    struct tw_error err;
    char hex[TW_ID_HEX_BYTES];
    const enum tw_exit rc = cli_done(cli, "owner new");
    if (rc != TW_EXIT_OK) return rc;
    if (path == NULL) path = "owner.key";
    if (tw_identity_create(path, &err) != TW_OK || tw_identity_open(path, &key, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    const struct tw_id public_key = tw_public_key(key.key);
    tw_identity_close(&key);
    tw_id_hex(&public_key, hex);
    if (cli->json) {
        (void)printf("{\"key\": \"%s\"}\n", hex);
        return TW_EXIT_OK;
    }
    (void)printf(
        "The owner's key is in %s: the holder of this file decides which nodes are in the run.\n"
        "For a run that is described where the key is not, its public half:\n\n"
        "  thinwire run new NAME --set security.owner=%s\n\n"
        "Then sign a certificate for each node: `thinwire owner sign NODE_ID`.\n",
        path, hex);
    return TW_EXIT_OK;
}

/* ---- import -------------------------------------------------------------------------------- */

/* Imports only valid certificates: they replace those by which the node is admitted now. */
static enum tw_exit import_certs(const struct owner_place *place, struct tw_gate *gate,
                                 const struct tw_certs *certs) {
    struct tw_error err;
    char until[TW_UNITS_BYTES];
    if (tw_gate_judge(gate, certs, &gate->identity->id, TW_CERT_TRAIN, 0, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s: no node would admit this one with it", err.message);
    if (tw_certs_save(place->state_dir, TW_CERT_FILE, certs, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
    const bool has_vote = tw_certs_has_vote(certs);
    const bool is_change = gate->own.count > 0 && has_vote != tw_certs_has_vote(&gate->own);
    (void)printf("This node is admitted until %s%s.%s\n",
                 tw_units_utc(until, tw_certs_until(certs)),
                 has_vote ? "" : " (it trains, but does not vote)",
                 !is_change ? ""
                 : has_vote ? " It votes from the next start of its daemon."
                            : " It votes no more from the next start of its daemon.");
    return TW_EXIT_OK;
}

static enum tw_exit import_list(const struct owner_place *place, struct tw_gate *gate,
                                const struct tw_revoked *list) {
    static uint8_t bytes[TW_REVOKED_BYTES_MAX];
    struct tw_error err;
    const enum tw_status status = tw_gate_revoke(gate, bytes, tw_revoked_encode(list, bytes), &err);
    if (status != TW_OK)
        return cli_fail(status == TW_AGAIN ? TW_EXIT_FAILURE : TW_EXIT_IDENTITY, "%s", err.message);
    const enum tw_status saved = tw_revoked_save_newer(place->state_dir, list, &err);
    if (saved != TW_OK) /* AGAIN: the daemon has just stored a newer list */
        return cli_fail(saved == TW_AGAIN ? TW_EXIT_FAILURE : TW_EXIT_STATE_DIR, "%s", err.message);
    (void)printf("List %llu revokes %u %s; the daemon here passes it on within seconds.\n",
                 (unsigned long long)list->version, list->count,
                 list->count == 1 ? "node" : "nodes");
    return TW_EXIT_OK;
}

static enum tw_exit import_recall(const struct owner_place *place, struct tw_gate *gate,
                                  const struct tw_recall *recall) {
    uint8_t bytes[TW_RECALL_BYTES];
    struct tw_error err;
    tw_recall_encode(recall, bytes);
    enum tw_status status = tw_gate_recall(gate, bytes, sizeof(bytes), &err);
    if (status != TW_OK)
        return cli_fail(status == TW_AGAIN ? TW_EXIT_FAILURE : TW_EXIT_IDENTITY, "%s", err.message);
    status = tw_recall_save_newer(place->state_dir, recall, &err);
    if (status != TW_OK) /* AGAIN: the daemon has just stored a newer recall */
        return cli_fail(status == TW_AGAIN ? TW_EXIT_FAILURE : TW_EXIT_STATE_DIR, "%s",
                        err.message);
    (void)printf("Recall %llu returns the run to round %llu; the daemon here passes it on within "
                 "seconds.\n",
                 (unsigned long long)recall->version, (unsigned long long)recall->rounds);
    return TW_EXIT_OK;
}

static enum tw_exit owner_import(struct cli *cli) {
    static struct owner_place place;
    static struct tw_gate gate;
    static struct tw_revoked list;
    const char *const from = cli_operand(cli);
    char path[TW_PATH_BYTES];
    struct tw_identity identity;
    struct tw_certs certs;
    struct tw_recall recall;
    struct tw_error err, no_list;
    enum tw_exit rc = cli_done_text(cli, "owner import");
    if (rc != TW_EXIT_OK) return rc;
    if (from == NULL) return cli_fail(TW_EXIT_USAGE, "owner import: which file?");
    const bool is_certs = tw_certs_load(from, &certs, &err) == TW_OK;
    const bool is_list = !is_certs && tw_revoked_load(from, &list, &no_list) == TW_OK;
    const bool is_recall =
        !is_certs && !is_list && tw_recall_load(from, &recall, &no_list) == TW_OK;
    if (!is_certs && !is_list && !is_recall) return cli_fail(TW_EXIT_USAGE, "%s", err.message);
    rc = owner_place_find(cli, NULL, &place);
    if (rc == TW_EXIT_OK) rc = owner_become_node(cli, &place);
    if (rc != TW_EXIT_OK) return rc;
    if (!owner_path(&place, "identity.key", path) ||
        tw_identity_open(path, &identity, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    tw_gate_init(&gate, &place.run_id, &place.run.security.owner, &identity);
    /* loads the valid ones of this node's files; none needs to exist */
    (void)tw_gate_load(&gate, place.state_dir, &err);
    rc = is_certs  ? import_certs(&place, &gate, &certs)
         : is_list ? import_list(&place, &gate, &list)
                   : import_recall(&place, &gate, &recall);
    tw_identity_close(&identity);
    return rc;
}

/* ---- show ---------------------------------------------------------------------------------- */

static json_t *hex_json(const struct tw_id *id) {
    char hex[TW_ID_HEX_BYTES];
    tw_id_hex(id, hex);
    return json_string(hex);
}

static json_t *time_json(uint64_t at_s) {
    char text[TW_UNITS_BYTES];
    return json_string(tw_units_utc(text, at_s));
}

/* `has_vote`: the certificate gives its node a vote. */
static json_t *cert_json(const struct tw_cert *cert, bool has_vote) {
    json_t *const may = json_array();
    if ((cert->may & TW_CERT_TRAIN) != 0) (void)json_array_append_new(may, json_string("train"));
    if ((cert->may & TW_CERT_ADMIT) != 0) (void)json_array_append_new(may, json_string("admit"));
    return json_pack("{s:o,s:o,s:o,s:b,s:o,s:o,s:o,s:I}", "node", hex_json(&cert->node), "run",
                     hex_json(&cert->run), "may", may, "votes", (int)has_vote, "from",
                     time_json(cert->from_s), "until", time_json(cert->until_s), "issuer",
                     hex_json(&cert->issuer), "serial", (json_int_t)(cert->serial & INT64_MAX));
}

static json_t *list_json(const struct tw_revoked *list) {
    json_t *const nodes = json_array();
    for (uint32_t i = 0; i < list->count; i++)
        if (!tw_id_equal(&list->nodes[i], &tw_revoked_pause_entry))
            (void)json_array_append_new(nodes, hex_json(&list->nodes[i]));
    return json_pack("{s:I,s:o,s:o,s:s,s:o}", "list", (json_int_t)(list->version & INT64_MAX),
                     "run", hex_json(&list->run), "made", time_json(list->made_s), "training",
                     tw_revoked_is_paused(list) ? "paused" : "on", "revoked", nodes);
}

/* Prints keys and values, one per line; nested values are indented. */
static void print_value(const json_t *value, unsigned indent) {
    const char *key;
    json_t *each;
    json_object_foreach((json_t *)(uintptr_t)value, key, each) {
        (void)printf("%*s%-9s", (int)indent, "", key);
        if (json_is_string(each)) (void)printf(" %s", json_string_value(each));
        if (json_is_boolean(each)) (void)printf(" %s", json_is_true(each) ? "yes" : "no");
        if (json_is_integer(each)) (void)printf(" %lld", (long long)json_integer_value(each));
        for (size_t i = 0; json_is_array(each) && i < json_array_size(each); i++) {
            const json_t *const item = json_array_get(each, i);
            if (json_is_string(item)) (void)printf(" %s", json_string_value(item));
            if (!json_is_object(item)) continue;
            (void)printf("\n");
            print_value(item, indent + 2);
        }
        if (!json_is_array(each) || json_array_size(each) == 0 ||
            json_is_string(json_array_get(each, 0)))
            (void)printf("\n");
    }
}

static enum tw_exit show_json(const struct cli *cli, json_t *json) {
    if (json == NULL) return cli_fail(TW_EXIT_FAILURE, "out of memory");
    if (cli->json) return json_print(json);
    print_value(json, 0);
    json_decref(json);
    return TW_EXIT_OK;
}

static json_t *certs_json(const struct tw_certs *certs) {
    json_t *const list = json_array();
    for (uint32_t i = 0; i < certs->count; i++) {
        const struct tw_certs rest = {.count = 1, .certs = {certs->certs[i]}};
        const bool has_vote = tw_certs_has_vote(i == 0 ? certs : &rest);
        (void)json_array_append_new(list, cert_json(&certs->certs[i], has_vote));
    }
    return json_pack("{s:o}", "certificates", list);
}

static json_t *recall_json(const struct tw_recall *recall) {
    return json_pack("{s:I,s:o,s:o,s:o,s:I}", "recall", (json_int_t)(recall->version & INT64_MAX),
                     "run", hex_json(&recall->run), "made", time_json(recall->made_s), "lineage",
                     hex_json(&recall->lineage), "round", (json_int_t)(recall->rounds & INT64_MAX));
}

static enum tw_exit show_file(const struct cli *cli, const char *path) {
    static struct tw_revoked list;
    struct tw_identity key;
    struct tw_certs certs;
    struct tw_recall recall;
    struct tw_error err;
    if (tw_certs_load(path, &certs, &err) == TW_OK) return show_json(cli, certs_json(&certs));
    if (tw_revoked_load(path, &list, &err) == TW_OK) return show_json(cli, list_json(&list));
    if (tw_recall_load(path, &recall, &err) == TW_OK) return show_json(cli, recall_json(&recall));
    if (tw_identity_open(path, &key, &err) != TW_OK)
        return cli_fail(TW_EXIT_USAGE,
                        "%s is not a readable key, a certificate, a list or a recall", path);
    const struct tw_id public_key = tw_public_key(key.key);
    tw_identity_close(&key);
    return show_json(cli, json_pack("{s:o}", "key", hex_json(&public_key)));
}

/* Shows this node's certificates, and whether other nodes would admit it. */
static enum tw_exit show_node(struct cli *cli) {
    static struct owner_place place;
    static struct tw_gate gate;
    char path[TW_PATH_BYTES];
    struct tw_identity identity;
    struct tw_error err = {0};
    enum tw_exit rc = owner_place_find(cli, NULL, &place);
    if (rc == TW_EXIT_OK) rc = owner_become_node(cli, &place);
    if (rc != TW_EXIT_OK) return rc;
    if (!owner_path(&place, "identity.key", path) ||
        tw_identity_open(path, &identity, &err) != TW_OK)
        return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
    tw_gate_init(&gate, &place.run_id, &place.run.security.owner, &identity);
    enum tw_status status = tw_gate_load(&gate, place.state_dir, &err);
    if (status == TW_OK)
        status = tw_gate_judge(&gate, &gate.own, &identity.id, TW_CERT_TRAIN, 0, &err);
    tw_identity_close(&identity);
    json_t *const json = certs_json(&gate.own);
    if (gate.revoked.version > 0) (void)json_object_update(json, list_json(&gate.revoked));
    (void)show_json(cli, json);
    return status == TW_OK ? TW_EXIT_OK : cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

static enum tw_exit owner_show(struct cli *cli) {
    const char *const path = cli_operand(cli);
    const enum tw_exit rc = cli_done(cli, "owner show");
    if (rc != TW_EXIT_OK) return rc;
    return path != NULL ? show_file(cli, path) : show_node(cli);
}

/* ---- `thinwire owner` ---------------------------------------------------------------------- */

enum tw_exit cli_owner(struct cli *cli) {
    static const char *const NAMES[] = {"new", "sign", "revoke", "recall", "import", "show"};
    static enum tw_exit (*const DO[])(struct cli *) = {owner_new,    owner_sign,   owner_revoke,
                                                       owner_recall, owner_import, owner_show};
    enum { COUNT = sizeof(NAMES) / sizeof(NAMES[0]) };
    const char *const what = cli_operand(cli);
    if (what == NULL) {
        (void)fputs(cli_help_text("owner"), stdout);
        return TW_EXIT_USAGE;
    }
    for (unsigned i = 0; i < COUNT; i++) {
        if (strcmp(what, NAMES[i]) == 0) return DO[i](cli);
    }
    const char *const near = tw_nearest(what, NAMES, COUNT);
    return cli_fail(TW_EXIT_USAGE, "there is no `owner %s`; %s%s%s", what,
                    near != NULL ? "did you mean `owner "
                                 : "`thinwire help owner` lists the commands",
                    near != NULL ? near : "", near != NULL ? "`?" : "");
}
