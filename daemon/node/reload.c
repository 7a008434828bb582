#include "daemon/node/reload.h"

#include <stdio.h>
#include <string.h>

#include "daemon/api/api.h"
#include "daemon/config/config_table.h"
#include "daemon/net/transport.h"
#include "daemon/node/budget.h"
#include "daemon/node/caps.h"
#include "daemon/node/links.h"
#include "daemon/node/relays.h"
#include "daemon/node/workers.h"

enum { LIST_BYTES = 160 };

static void add_name(char list[LIST_BYTES], const struct tw_config_key *key) {
    const size_t used = strlen(list);
    (void)snprintf(list + used, LIST_BYTES - used, "%s%s.%s", used > 0 ? ", " : "", key->section,
                   key->name);
}

static bool is_equal(const struct tw_config *a, const struct tw_config *b,
                     const struct tw_config_key *key) {
    char text_a[TW_PATH_BYTES], text_b[TW_PATH_BYTES];
    for (uint32_t i = 0;; i++) {
        const bool has_a = tw_config_get(a, key, i, text_a, sizeof(text_a));
        const bool has_b = tw_config_get(b, key, i, text_b, sizeof(text_b));
        if (has_a != has_b) return false;
        if (!has_a) return true;
        if (strcmp(text_a, text_b) != 0) return false;
    }
}

static void copy_key(struct tw_config *to, const struct tw_config *from,
                     const struct tw_config_key *key) {
    memcpy((char *)to + key->offset, (const char *)from + key->offset, key->size);
    if (key->type == TW_CONFIG_PEERS || key->type == TW_CONFIG_ADDRESSES)
        memcpy((char *)to + key->count_offset, (const char *)from + key->count_offset,
               sizeof(uint32_t));
    if (key->type == TW_CONFIG_ADDRESS) /* has_web */
        memcpy((char *)to + key->count_offset, (const char *)from + key->count_offset,
               sizeof(bool));
}

/* Adds the configured peers. Known ones keep their history, and removed ones stay known until a
 * restart. */
static void learn_peers(struct tw_daemon *daemon) {
    struct tw_error err = {0};
    if (daemon->transport == NULL) return;
    if (tw_daemon_links_bootstrap(daemon, &err) != TW_OK)
        tw_daemon_note(daemon, TW_LOG_WARN, "peers_not_read", "text=\"%s\"", err.message);
}

/* Returns true if the key turns the web page on, which verbs.h does. */
static bool opens_page(const struct tw_daemon *daemon, const struct tw_config *fresh,
                       const struct tw_config_key *key) {
    return strcmp(key->section, "api") == 0 && strcmp(key->name, "web") == 0 &&
           fresh->api.has_web && tw_api_web_url(daemon->api) == NULL;
}

enum tw_status tw_daemon_reload(struct tw_daemon *daemon, struct tw_error *answer) {
    static struct tw_config fresh; /* static, because it is too large for the stack; only the loop
                                      uses it */
    struct tw_config *config = &daemon->setup->config;
    char taken[LIST_BYTES] = "", left[LIST_BYTES] = "";
    const enum tw_status status = tw_config_load(&fresh, config->path, answer);
    if (status != TW_OK) {
        tw_daemon_note(daemon, TW_LOG_ERROR, "not_reloaded", "text=\"%s\"", answer->message);
        return status;
    }
    size_t count;
    bool has_budget = false;
    const struct tw_config_key *const keys = tw_config_keys(&count);
    for (size_t i = 0; i < count; i++) {
        if (is_equal(config, &fresh, &keys[i])) continue;
        const bool is_live =
            tw_config_key_is_live(&keys[i]) || opens_page(daemon, &fresh, &keys[i]);
        add_name(is_live ? taken : left, &keys[i]);
        if (is_live) copy_key(config, &fresh, &keys[i]);
        has_budget |= is_live && keys[i].type == TW_CONFIG_BUDGET;
    }
    tw_daemon_caps_apply(daemon);
    tw_daemon_workers_apply(daemon);
    if (has_budget) tw_daemon_budget_apply(daemon);
    tw_daemon_relays_apply(daemon);
    if (daemon->transport != NULL) tw_transport_set_pace(daemon->transport, &config->network.pace);
    learn_peers(daemon);
    (void)snprintf(answer->message, sizeof(answer->message), "%s%.100s%s%.100s",
                   taken[0] != '\0' ? "taken over: " : "no reloadable key has changed", taken,
                   left[0] != '\0' ? "; needs a restart: " : "", left);
    tw_daemon_note(daemon, TW_LOG_INFO, "reloaded", "text=\"%s\"", answer->message);
    return TW_OK;
}
