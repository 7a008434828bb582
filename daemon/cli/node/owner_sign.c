/* owner_sign.c - `thinwire owner sign, revoke`: both need the key of the owner; sign also works
 * with that of a node that may admit. */
#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/units.h"
#include "daemon/auth/cert_file.h"
#include "daemon/auth/signature.h"
#include "daemon/cli/node/owner.h"
#include "proto/armour.h"

enum { DAY_S = 24 * 3600, DAYS_OWNER = 365, DAYS_MAX = 3650 };

static enum tw_exit node_parse(const char *text, struct tw_id *node) {
    if (tw_id_parse(text, node)) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_USAGE,
                    "%.80s is no node id: 64 hex digits, as `thinwire status --json` of that node "
                    "prints it",
                    text);
}

static enum tw_exit key_open(const char *path, struct tw_identity *key) {
    struct tw_error err;
    if (access(path, F_OK) != 0)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s: %s; name the owner's key with --key FILE (`thinwire owner new` makes "
                        "one for a new run)",
                        path, strerror(errno));
    if (tw_identity_open(path, key, &err) == TW_OK) return TW_EXIT_OK;
    return cli_fail(TW_EXIT_IDENTITY, "%s", err.message);
}

/* Splits a path into FOLDER and NAME, in the caller's copies. */
static const char *folder_of(const char *path, char copy[TW_PATH_BYTES]) {
    (void)snprintf(copy, TW_PATH_BYTES, "%s", path);
    return dirname(copy);
}

static const char *name_of(const char *path) {
    const char *const slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* ---- sign ---------------------------------------------------------------------------------- */

struct sign {
    const char *run, *key, *out, *days_text;
    struct tw_id node;
    uint32_t may;
    uint64_t days; /* 0: not given */
};

static enum tw_exit sign_options(struct cli *cli, struct sign *sign) {
    static const char *const OPTIONS[] = {"--key", "--run",    "--may",  "--days",
                                          "--out", "--config", "--json", NULL};
    const char *may = "train";
    *sign = (struct sign){.key = "owner.key"};
    (void)cli_option(cli, "--key", &sign->key);
    (void)cli_option(cli, "--run", &sign->run);
    (void)cli_option(cli, "--out", &sign->out);
    (void)cli_option(cli, "--may", &may);
    (void)cli_option(cli, "--days", &sign->days_text);
    const char *const node = cli_operand(cli);
    const enum tw_exit rc = cli_done(cli, "owner sign", OPTIONS);
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
    return node_parse(node, &sign->node);
}

/* Signed by the owner. */
static void sign_as_owner(const struct sign *sign, const struct tw_gate *gate,
                          struct tw_certs *certs) {
    uint8_t text[TW_CERT_SIGNED_BYTES];
    const uint64_t now_s = gate->clock_s();
    *certs = (struct tw_certs){.count = 1};
    certs->certs[0] = (struct tw_cert){
        .may = sign->may,
        .from_s = now_s > TW_CERT_SLACK_S ? now_s - TW_CERT_SLACK_S : 0,
        .until_s = now_s + (sign->days > 0 ? sign->days : DAYS_OWNER) * DAY_S,
        .serial = now_s,
        .run = gate->run,
        .node = sign->node,
        .issuer = gate->owner,
    };
    tw_cert_signed(&certs->certs[0], text);
    tw_sign(gate->identity->key, text, sizeof(text), certs->certs[0].signature);
}

/* Signs as a node that may admit, and appends that node's own certificate. */
static enum tw_exit sign_as_admitter(const struct sign *sign, struct tw_gate *gate,
                                     const struct owner_place *place, struct tw_certs *certs) {
    struct tw_error err;
    if (!place->has_config)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s is not the key of the run's owner; for a node that may admit name its "
                        "--config, and its identity.key as --key",
                        sign->key);
    if (sign->may != TW_CERT_TRAIN)
        return cli_fail(TW_EXIT_USAGE, "--may: only the owner lets nodes admit");
    enum tw_status status = tw_gate_load(gate, place->state_dir, &err);
    if (status == TW_OK) {
        const uint64_t life_s = sign->days > 0 ? sign->days * DAY_S : TW_GATE_LIFE_S;
        status = tw_gate_admit(gate, &sign->node, life_s, certs, &err);
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
        tw_certs_save(folder_of(sign->out, folder), name_of(sign->out), certs, &err) != TW_OK)
        return cli_fail(TW_EXIT_FAILURE, "%s", err.message);
    if (cli->json) {
        json_t *const json =
            json_pack("{s:s,s:s,s:s}", "node", hex, "until", until, "certificate", text);
        (void)json_dumpf(json, stdout, JSON_INDENT(1));
        (void)fputc('\n', stdout);
        json_decref(json);
    } else if (sign->out == NULL) {
        (void)fputs(text, stdout);
    }
    (void)fprintf(stderr,
                  "Node %.8s is admitted until %s, once it has this: `thinwire owner import FILE` "
                  "there.\n",
                  hex, until);
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
    if (rc == TW_EXIT_OK) rc = key_open(sign.key, &key);
    if (rc != TW_EXIT_OK) return rc;
    tw_gate_init(&gate, &place.run_id, &place.run.security.owner, &key);
    const struct tw_id public_key = tw_public_key(key.key);
    if (tw_id_equal(&public_key, &gate.owner)) {
        /* Loads this node's list of revocations, if there is one. */
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
    bool lifts;
};

/* Loads the list to extend. A missing list is empty; an invalid one is an error. */
static enum tw_exit list_open(const struct revoke *revoke, const struct owner_place *place,
                              struct tw_revoked *list, char path[TW_PATH_BYTES]) {
    struct tw_error err;
    uint8_t text[TW_REVOKED_SIGNED_BYTES];
    if (revoke->list != NULL) {
        (void)snprintf(path, TW_PATH_BYTES, "%s", revoke->list);
    } else if (!place->has_config) {
        return cli_fail(TW_EXIT_USAGE, "owner revoke: no node here, so name the list: --list FILE");
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

static enum tw_exit list_change(struct cli *cli, const struct revoke *revoke,
                                struct tw_revoked *list) {
    unsigned count = 0;
    for (const char *text = cli_operand(cli); text != NULL; text = cli_operand(cli), count++) {
        struct tw_id node;
        const enum tw_exit rc = node_parse(text, &node);
        if (rc != TW_EXIT_OK) return rc;
        if (revoke->lifts ? tw_revoked_remove(list, &node) : tw_revoked_add(list, &node)) continue;
        if (list->count == TW_REVOKED_MAX && !tw_revoked_has(list, &node))
            return cli_fail(TW_EXIT_FAILURE,
                            "the list is full at %d nodes: --lift nodes whose certificates have "
                            "expired, because these need no revocation",
                            TW_REVOKED_MAX);
        return cli_fail(TW_EXIT_FAILURE, "%.8s is %s the list", text,
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

enum tw_exit owner_revoke(struct cli *cli) {
    static const char *const OPTIONS[] = {"--key", "--run", "--list", "--lift", "--config", NULL};
    static struct owner_place place;
    static struct tw_revoked list;
    struct revoke revoke = {.key = "owner.key", .lifts = cli_flag(cli, "--lift")};
    char path[TW_PATH_BYTES], folder[TW_PATH_BYTES];
    struct tw_identity key;
    struct tw_error err;
    (void)cli_option(cli, "--key", &revoke.key);
    (void)cli_option(cli, "--run", &revoke.run);
    (void)cli_option(cli, "--list", &revoke.list);
    enum tw_exit rc = owner_place_find(cli, revoke.run, &place);
    if (rc == TW_EXIT_OK) rc = list_open(&revoke, &place, &list, path);
    if (rc == TW_EXIT_OK) rc = list_change(cli, &revoke, &list);
    if (rc == TW_EXIT_OK) rc = cli_done(cli, "owner revoke", OPTIONS);
    if (rc == TW_EXIT_OK) rc = key_open(revoke.key, &key);
    if (rc != TW_EXIT_OK) return rc;
    const struct tw_id public_key = tw_public_key(key.key);
    const bool is_owner = tw_id_equal(&public_key, &place.run.security.owner);
    if (is_owner) list_sign(&list, &key);
    tw_identity_close(&key);
    if (!is_owner)
        return cli_fail(TW_EXIT_IDENTITY,
                        "%s is not the key of the run's owner, and only the owner revokes",
                        revoke.key);
    if (tw_revoked_save(folder_of(path, folder), name_of(path), &list, &err) != TW_OK)
        return cli_fail(TW_EXIT_STATE_DIR, "%s", err.message);
    (void)printf("List %llu revokes %u %s. %s\n", (unsigned long long)list.version, list.count,
                 list.count == 1 ? "node" : "nodes",
                 revoke.list == NULL ? "The daemon here passes it on within seconds."
                                     : "Give it to any node of the run: `thinwire owner import "
                                       "FILE` there. It spreads by itself.");
    return TW_EXIT_OK;
}
