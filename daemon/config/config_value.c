/* config_value.c - converts values of the configuration from and to text. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>

#include "base/assert.h"
#include "base/nearest.h"
#include "base/units.h"
#include "daemon/config/config_table.h"

struct unit {
    const char *name;
    uint64_t factor; /* size in base units */
};

/* Rates are read in bits per second, and divided by 8 at the end. */
static const struct unit RATES[] = {
    {"bit", 1}, {"kbit", 1000}, {"mbit", 1000000}, {"gbit", 1000000000}, {NULL, 0}};
static const struct unit DURATIONS[] = {{"ms", 1000},
                                        {"s", 1000000},
                                        {"m", 60000000},
                                        {"h", UINT64_C(3600000000)},
                                        {"d", UINT64_C(86400000000)},
                                        {NULL, 0}};

/* Reads a decimal number with at most six decimals ("12", "2.5") in millionths. *rest is the text
 * after it. Returns false for anything else, or if the number is too large. */
static bool read_decimal(const char *text, uint64_t *millionths, const char **rest) {
    uint64_t value = 0, scale = 1000000;
    if (!isdigit((unsigned char)*text)) return false;
    for (; isdigit((unsigned char)*text); text++) {
        if (value > UINT64_MAX / 100000000) return false;
        value = value * 10 + (uint64_t)(*text - '0');
    }
    if (value > UINT64_MAX / 1000000) return false;
    value *= 1000000;
    if (*text == '.') {
        text++;
        if (!isdigit((unsigned char)*text)) return false;
        for (; isdigit((unsigned char)*text) && scale > 1; text++) {
            scale /= 10;
            value += scale * (uint64_t)(*text - '0');
        }
    }
    while (*text == ' ') text++;
    *millionths = value;
    *rest = text;
    return true;
}

/* Reads a number with its unit into base units. A bare 0 needs no unit. */
static enum tw_status read_quantity(const char *text, const struct unit *units, const char *want,
                                    uint64_t *out, struct tw_error *err) {
    uint64_t millionths;
    const char *rest;
    if (!read_decimal(text, &millionths, &rest)) {
        return tw_fail(err, TW_CONFIG, "`%s` is no number with a unit; write %s", text, want);
    }
    if (*rest == 0 && millionths == 0) {
        *out = 0;
        return TW_OK;
    }
    if (*rest == 0) return tw_fail(err, TW_CONFIG, "`%s` lacks its unit; write %s", text, want);
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (strcmp(rest, unit->name) != 0) continue;
        const uint64_t whole = millionths / 1000000, part = millionths % 1000000;
        if (whole > UINT64_MAX / unit->factor / 2) {
            return tw_fail(err, TW_CONFIG, "`%s` is too large", text);
        }
        *out = whole * unit->factor + part * unit->factor / 1000000;
        return TW_OK;
    }
    return tw_fail(err, TW_CONFIG, "`%s` is no unit here; write %s", rest, want);
}

static enum tw_status read_rate(const struct tw_config_key *key, const char *text, uint64_t *out,
                                struct tw_error *err) {
    uint64_t bits;
    TW_TRY(read_quantity(text, RATES,
                         "a rate in bits such as 800kbit, 5mbit or 1gbit, or 0 for "
                         "no cap",
                         &bits, err));
    *out = bits / 8;
    if (bits > 0 && *out < key->min) {
        return tw_fail(err, TW_CONFIG, "%s is below %" PRIu64 "kbit, which no round would survive",
                       text, key->min * 8 / 1000);
    }
    return TW_OK;
}

static enum tw_status read_bytes(const struct tw_config_key *key, const char *text, uint64_t *out,
                                 struct tw_error *err) {
    char least[TW_UNITS_BYTES];
    uint64_t bytes;
    if (!tw_units_parse_bytes(text, &bytes))
        return tw_fail(err, TW_CONFIG, "`%s` is no size; write one such as 8GB or 512MiB", text);
    if (bytes > 0 && bytes < key->min)
        return tw_fail(err, TW_CONFIG, "%s is too small: at least %s, or 0 for none", text,
                       tw_units_exact_bytes(least, key->min));
    *out = bytes;
    return TW_OK;
}

static enum tw_status read_relay(const struct tw_config_key *key, const char *text,
                                 struct tw_relay_config *out, struct tw_error *err) {
    struct tw_relay_config read = {.is_on = strcmp(text, "off") != 0};
    if (read.is_on && strcmp(text, "on") != 0) {
        if (!isdigit((unsigned char)*text))
            return tw_fail(err, TW_CONFIG, "`%.40s` is neither on nor off nor a rate such as 2mbit",
                           text);
        TW_TRY(read_rate(key, text, &read.bytes_per_s, err));
        read.is_on = read.bytes_per_s > 0;
    }
    *out = read;
    return TW_OK;
}

static enum tw_status read_yield(const struct tw_config_key *key, const char *text, uint32_t *out,
                                 struct tw_error *err) {
    uint64_t millionths = 0;
    const char *rest = "";
    *out = strcmp(text, "on") == 0 ? TW_YIELD_ON_PERCENT : 0;
    if (*out > 0 || strcmp(text, "off") == 0) return TW_OK;
    if (!read_decimal(text, &millionths, &rest) || strcmp(rest, "%") != 0)
        return tw_fail(err, TW_CONFIG,
                       "`%.40s` is neither on nor off nor a percentage such as 40%%", text);
    const uint64_t percent = millionths / 1000000;
    if (millionths % 1000000 != 0 || percent < key->min || percent > key->max)
        return tw_fail(err, TW_CONFIG,
                       "`%.40s`: a whole number from %" PRIu64 "%% to %" PRIu64
                       "%% of all processors",
                       text, key->min, key->max);
    *out = (uint32_t)percent;
    return TW_OK;
}

static enum tw_status read_pace(const struct tw_config_key *key, const char *text,
                                struct tw_link_pace *out, struct tw_error *err) {
    struct tw_link_pace read = {.mode = TW_LINK_PACE_AUTO};
    if (strcmp(text, "off") == 0) {
        read.mode = TW_LINK_PACE_OFF;
    } else if (strcmp(text, "auto") != 0) {
        if (!isdigit((unsigned char)*text))
            return tw_fail(err, TW_CONFIG,
                           "`%.40s` is neither auto nor off nor a rate such as 5mbit", text);
        read.mode = TW_LINK_PACE_FIXED;
        TW_TRY(read_rate(key, text, &read.bytes_per_s, err));
        if (read.bytes_per_s == 0) read.mode = TW_LINK_PACE_OFF;
    }
    *out = read;
    return TW_OK;
}

enum tw_status tw_rate_parse(const char *text, uint64_t *bytes_per_s, struct tw_error *err) {
    static const struct tw_config_key any = {.min = 1000};
    return read_rate(&any, text, bytes_per_s, err);
}

static enum tw_status read_quota(const char *text, uint64_t *bytes, struct tw_error *err) {
    static const char want[] = "one such as 500GB/month, or 0 for none";
    const char *const slash = strchr(text, '/');
    char size[TW_UNITS_BYTES];
    if (strcmp(text, "0") == 0) {
        *bytes = 0;
        return TW_OK;
    }
    const size_t length = slash != NULL ? (size_t)(slash - text) : 0;
    if (slash == NULL || strcmp(slash, "/month") != 0 || length >= sizeof(size))
        return tw_fail(err, TW_CONFIG, "`%.40s` is no quota; write %s", text, want);
    memcpy(size, text, length);
    size[length] = '\0';
    if (!tw_units_parse_bytes(size, bytes) || *bytes == 0)
        return tw_fail(err, TW_CONFIG, "`%.40s` is no size; write %s", size, want);
    return TW_OK;
}

enum tw_status tw_budget_parse(const char *text, struct tw_budget_config *budget,
                               struct tw_error *err) {
    static const char want[] = "2mbit of upload, 50GB/month in both directions, or 0 for none";
    enum { LEAST_BYTES_S = 1000 };
    struct tw_budget_config read = {0};
    const char *const slash = strchr(text, '/');
    char bytes[TW_UNITS_BYTES];
    uint64_t bits = 0;
    if (slash == NULL) {
        TW_TRY(read_quantity(text, RATES, want, &bits, err));
        read.bytes = bits / 8;
        if (bits > 0 && read.bytes < LEAST_BYTES_S)
            return tw_fail(err, TW_CONFIG, "%s is below 8kbit, which no round would survive", text);
        *budget = read;
        return TW_OK;
    }
    size_t size = (size_t)(slash - text);
    while (size > 0 && text[size - 1] == ' ') size--;
    const char *unit = slash + 1;
    while (*unit == ' ') unit++;
    if (strcmp(unit, "month") != 0 || size >= sizeof(bytes))
        return tw_fail(err, TW_CONFIG, "`%.40s` is no budget; write %s", text, want);
    memcpy(bytes, text, size);
    bytes[size] = '\0';
    read.is_month = true;
    if (!tw_units_parse_bytes(bytes, &read.bytes))
        return tw_fail(err, TW_CONFIG, "`%.40s` is no size; write %s", bytes, want);
    if (read.bytes / LEAST_BYTES_S < TW_MONTH_S)
        return tw_fail(err, TW_CONFIG, "%s is below 3GB/month, which no round would survive", text);
    *budget = read;
    return TW_OK;
}

enum tw_status tw_config_duration_parse(const char *text, uint64_t *us, struct tw_error *err) {
    return read_quantity(text, DURATIONS, "a time such as 500ms, 90s, 10m, 2h or 1d", us, err);
}

static enum tw_status read_duration(const struct tw_config_key *key, const char *text,
                                    uint64_t *out, struct tw_error *err) {
    TW_TRY(tw_config_duration_parse(text, out, err));
    if (*out > key->max) {
        return tw_fail(err, TW_CONFIG, "%s is more than %" PRIu64 "d", text,
                       key->max / UINT64_C(86400000000));
    }
    return TW_OK;
}

static enum tw_status read_integer(const struct tw_config_key *key, const char *text, uint64_t *out,
                                   struct tw_error *err) {
    char *end = NULL;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end != 0) {
        return tw_fail(err, TW_CONFIG, "`%s` is no whole number from %" PRIu64 " to %" PRIu64, text,
                       key->min, key->max);
    }
    if (errno != 0 || value < key->min || value > key->max) {
        return tw_fail(err, TW_CONFIG, "%s is outside %" PRIu64 " to %" PRIu64, text, key->min,
                       key->max);
    }
    *out = value;
    return TW_OK;
}

static enum tw_status read_bool(const char *text, bool *out, struct tw_error *err) {
    static const char *const YES[] = {"on", "yes", "true", "1"}, *const NO[] = {"off", "no",
                                                                                "false", "0"};
    for (size_t i = 0; i < sizeof(YES) / sizeof(YES[0]); i++) {
        if (strcmp(text, YES[i]) == 0 || strcmp(text, NO[i]) == 0) {
            *out = strcmp(text, YES[i]) == 0;
            return TW_OK;
        }
    }
    return tw_fail(err, TW_CONFIG, "`%s` is neither on nor off", text);
}

static enum tw_status read_choice(const struct tw_config_key *key, const char *text, int *out,
                                  struct tw_error *err) {
    char list[128] = "";
    size_t count = 0;
    for (; key->choices[count] != NULL; count++) {
        if (strcmp(text, key->choices[count]) == 0) {
            *out = (int)count;
            return TW_OK;
        }
        const size_t used = strlen(list);
        (void)snprintf(list + used, sizeof(list) - used, "%s%s", count > 0 ? ", " : "",
                       key->choices[count]);
    }
    return tw_fail(err, TW_CONFIG, "`%s` is none of %s", text, list);
}

/* Reads host:port or [v6]:port, whose port is at least `port_min`. */
static enum tw_status read_address(const char *text, unsigned port_min, struct tw_address *out,
                                   struct tw_error *err) {
    const char *const colon = strrchr(text, ':');
    if (strlen(text) >= sizeof(out->text)) {
        return tw_fail(err, TW_CONFIG, "`%.40s...` is longer than %zu bytes", text,
                       sizeof(out->text) - 1);
    }
    if (colon == NULL || colon == text) {
        return tw_fail(err, TW_CONFIG, "`%s` is no host:port, such as 192.0.2.1:4747", text);
    }
    const bool is_v6 = text[0] == '[' && colon[-1] == ']' && colon - text > 2;
    if (!is_v6 && memchr(text, ':', (size_t)(colon - text)) != NULL) {
        return tw_fail(err, TW_CONFIG, "`%s`: put an IPv6 address in brackets, [2001:db8::1]:4747",
                       text);
    }
    for (const char *c = text; c < colon; c++) {
        const bool is_fit = isalnum((unsigned char)*c) || strchr(".-_", *c) != NULL ||
                            (is_v6 && strchr("[]:%", *c) != NULL);
        if (!is_fit)
            return tw_fail(err, TW_CONFIG, "`%s` is no host:port, such as 192.0.2.1:4747", text);
    }
    char *end = NULL;
    const unsigned long port = strtoul(colon + 1, &end, 10);
    if (!isdigit((unsigned char)colon[1]) || *end != 0 || port < port_min || port > 65535) {
        return tw_fail(err, TW_CONFIG, "`%s`: the port is a number from %u to 65535", text,
                       port_min);
    }
    memcpy(out->text, text, strlen(text) + 1);
    return TW_OK;
}

enum tw_status tw_bootstrap_parse(const char *text, struct tw_bootstrap *bootstrap,
                                  struct tw_error *err) {
    struct tw_bootstrap parsed = {0};
    char address[TW_ADDR_BYTES];
    const char *const equals = strchr(text, '=');
    const size_t size = equals != NULL ? (size_t)(equals - text) : strlen(text);
    if (size >= sizeof(address)) {
        return tw_fail(err, TW_CONFIG, "`%.40s...` is longer than %zu bytes", text,
                       sizeof(address) - 1);
    }
    memcpy(address, text, size);
    address[size] = 0;
    TW_TRY(read_address(address, 1, &parsed.address, err));
    parsed.has_id = equals != NULL;
    if (parsed.has_id && !tw_id_parse(equals + 1, &parsed.id)) {
        return tw_fail(err, TW_CONFIG,
                       "`%s`: the node id after = is the 64 hex digits `thinwire init` printed",
                       address);
    }
    *bootstrap = parsed;
    return TW_OK;
}

static bool is_loopback(const char *address) {
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

static enum tw_status read_path(const struct tw_config *config, const struct tw_config_key *key,
                                const char *folder, const char *text, char *out,
                                struct tw_error *err) {
    if (*text == 0 && key->min > 0) return tw_fail(err, TW_CONFIG, "a path is missing");
    if (text[0] == '~') {
        return tw_fail(err, TW_CONFIG, "`%s`: `~` means nothing to a service; write it out", text);
    }
    char path[TW_PATH_BYTES];
    const char *const mark = strstr(text, "%i");
    const int prefix = mark != NULL ? (int)(mark - text) : (int)strlen(text);
    const int n =
        snprintf(path, sizeof(path), "%s%s%.*s%s%s", *text != '/' && *text != 0 ? folder : "",
                 *text != '/' && *text != 0 && *folder != 0 ? "/" : "", prefix, text,
                 mark != NULL ? config->instance : "", mark != NULL ? mark + 2 : "");
    if (n < 0 || (size_t)n >= sizeof(path)) return tw_fail(err, TW_CONFIG, "the path is too long");
    memcpy(out, path, (size_t)n + 1);
    return TW_OK;
}

/* Reads an IP address without a port. */
static enum tw_status read_host(const char *text, struct tw_address *out, struct tw_error *err) {
    unsigned char bytes[sizeof(struct in6_addr)];
    if (strlen(text) >= sizeof(out->text) ||
        (inet_pton(AF_INET, text, bytes) != 1 && inet_pton(AF_INET6, text, bytes) != 1)) {
        return tw_fail(err, TW_CONFIG,
                       "`%.60s` is no IP address; write 192.0.2.7 or 2001:db8::7, without port",
                       text);
    }
    memcpy(out->text, text, strlen(text) + 1);
    return TW_OK;
}

bool tw_config_is_list(const struct tw_config_key *key) {
    return key->type == TW_CONFIG_ADDRESSES || key->type == TW_CONFIG_HOSTS ||
           key->type == TW_CONFIG_PEERS;
}

static enum tw_status append_entry(struct tw_config *config, const struct tw_config_key *key,
                                   const char *entry, struct tw_error *err) {
    uint32_t *const count = (uint32_t *)((char *)config + key->count_offset);
    if (*count == key->max) {
        return tw_fail(err, TW_CONFIG, "more than %" PRIu64 " entries", key->max);
    }
    char *const list = (char *)config + key->offset;
    if (key->type == TW_CONFIG_PEERS) {
        TW_TRY(tw_bootstrap_parse(entry, (struct tw_bootstrap *)list + *count, err));
    } else if (key->type == TW_CONFIG_HOSTS) {
        TW_TRY(read_host(entry, (struct tw_address *)list + *count, err));
    } else {
        TW_TRY(read_address(entry, (unsigned)key->min, (struct tw_address *)list + *count, err));
    }
    (*count)++;
    return TW_OK;
}

static enum tw_status read_list(struct tw_config *config, const struct tw_config_key *key,
                                const char *text, struct tw_error *err) {
    char entry[TW_ADDR_BYTES + 80];
    while (*text != 0) {
        const size_t skip = strspn(text, ", \t");
        text += skip;
        const size_t size = strcspn(text, ", \t");
        if (size == 0) break;
        if (size >= sizeof(entry)) return tw_fail(err, TW_CONFIG, "`%.40s...` is too long", text);
        memcpy(entry, text, size);
        entry[size] = 0;
        TW_TRY(append_entry(config, key, entry, err));
        text += size;
    }
    return TW_OK;
}

enum tw_status tw_config_set(struct tw_config *config, const struct tw_config_key *key,
                             const char *folder, const char *value, struct tw_error *err) {
    void *const field = (char *)config + key->offset;
    uint64_t number = 0;
    switch (key->type) {
    case TW_CONFIG_STRING:
        if (strlen(value) >= key->size) {
            return tw_fail(err, TW_CONFIG, "longer than %zu bytes", key->size - 1);
        }
        memcpy(field, value, strlen(value) + 1);
        return TW_OK;
    case TW_CONFIG_PATH: return read_path(config, key, folder, value, field, err);
    case TW_CONFIG_COUNT:
        TW_TRY(read_integer(key, value, &number, err));
        *(uint32_t *)field = (uint32_t)number;
        return TW_OK;
    case TW_CONFIG_STEPS: return read_integer(key, value, field, err);
    case TW_CONFIG_BOOL: return read_bool(value, field, err);
    case TW_CONFIG_RATE: return read_rate(key, value, field, err);
    case TW_CONFIG_PACE: return read_pace(key, value, field, err);
    case TW_CONFIG_RELAY: return read_relay(key, value, field, err);
    case TW_CONFIG_BUDGET: return tw_budget_parse(value, field, err);
    case TW_CONFIG_QUOTA: return read_quota(value, field, err);
    case TW_CONFIG_HOURS: return tw_hours_parse(value, field, err);
    case TW_CONFIG_HOURS_OFF: return tw_hours_parse_off(value, field, err);
    case TW_CONFIG_YIELD: return read_yield(key, value, field, err);
    case TW_CONFIG_BYTES: return read_bytes(key, value, field, err);
    case TW_CONFIG_DURATION: return read_duration(key, value, field, err);
    case TW_CONFIG_DEVICE: return tw_device_parse(value, field, err);
    case TW_CONFIG_CHOICE: {
        int choice = 0;
        TW_TRY(read_choice(key, value, &choice, err));
        memcpy(field, &choice, sizeof(choice));
        return TW_OK;
    }
    case TW_CONFIG_ADDRESS:
        *(bool *)((char *)config + key->count_offset) = *value != 0;
        if (*value == 0) return TW_OK;
        TW_TRY(read_address(value, (unsigned)key->min, field, err));
        if (!is_loopback(value)) {
            return tw_fail(err, TW_CONFIG,
                           "`%s` is not loopback; use 127.0.0.1, [::1] or a proxy "
                           "of your own in front",
                           value);
        }
        return TW_OK;
    case TW_CONFIG_ADDRESSES:
    case TW_CONFIG_HOSTS:
    case TW_CONFIG_PEERS: return read_list(config, key, value, err);
    }
    TW_ASSERT(false); /* every type has a case */
    return TW_CONFIG;
}

void tw_config_clear(struct tw_config *config, const struct tw_config_key *key) {
    if (!tw_config_is_list(key)) return;
    *(uint32_t *)((char *)config + key->count_offset) = 0;
}

static void print_quantity(uint64_t value, const struct unit *units, char *text, size_t capacity) {
    const struct unit *best = units;
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (value >= unit->factor && value % unit->factor == 0) best = unit;
    }
    if (value == 0) {
        (void)snprintf(text, capacity, "0");
    } else if (value % best->factor == 0) {
        (void)snprintf(text, capacity, "%" PRIu64 "%s", value / best->factor, best->name);
    } else { /* finer than the smallest unit; six decimals are exact for microseconds */
        (void)snprintf(text, capacity, "%" PRIu64 ".%06" PRIu64 "%s", value / best->factor,
                       value % best->factor * 1000000 / best->factor, best->name);
    }
}

static void print_relay(const struct tw_relay_config *relay, char *text, size_t capacity) {
    if (relay->is_on && relay->bytes_per_s > 0)
        print_quantity(relay->bytes_per_s * 8, RATES, text, capacity);
    else
        (void)snprintf(text, capacity, relay->is_on ? "on" : "off");
}

static void print_yield(uint32_t percent, char *text, size_t capacity) {
    if (percent > 0)
        (void)snprintf(text, capacity, "%" PRIu32 "%%", percent);
    else
        (void)snprintf(text, capacity, "off");
}

static void print_pace(const struct tw_link_pace *pace, char *text, size_t capacity) {
    if (pace->mode == TW_LINK_PACE_FIXED)
        print_quantity(pace->bytes_per_s * 8, RATES, text, capacity);
    else
        (void)snprintf(text, capacity, pace->mode == TW_LINK_PACE_OFF ? "off" : "auto");
}

void tw_rate_print(uint64_t bytes_per_s, char *text, size_t capacity) {
    print_quantity(bytes_per_s * 8, RATES, text, capacity);
}

static void print_quota(uint64_t bytes, char *text, size_t capacity) {
    char size[TW_UNITS_BYTES];
    (void)snprintf(text, capacity, "%s%s", bytes > 0 ? tw_units_exact_bytes(size, bytes) : "0",
                   bytes > 0 ? "/month" : "");
}

static void print_budget(const struct tw_budget_config *budget, char *text, size_t capacity) {
    char size[TW_UNITS_BYTES];
    if (budget->is_month) {
        (void)snprintf(text, capacity, "%s/month", tw_units_exact_bytes(size, budget->bytes));
    } else {
        print_quantity(budget->bytes * 8, RATES, text, capacity);
    }
}

bool tw_config_get(const struct tw_config *config, const struct tw_config_key *key, uint32_t i,
                   char *text, size_t capacity) {
    const void *const field = (const char *)config + key->offset;
    const void *const count = (const char *)config + key->count_offset;
    if (tw_config_is_list(key)) {
        if (i >= *(const uint32_t *)count) return false;
    } else if (i > 0) {
        return false;
    }
    switch (key->type) {
    case TW_CONFIG_STRING:
    case TW_CONFIG_PATH: (void)snprintf(text, capacity, "%s", (const char *)field); break;
    case TW_CONFIG_COUNT:
        (void)snprintf(text, capacity, "%" PRIu32, *(const uint32_t *)field);
        break;
    case TW_CONFIG_STEPS:
        (void)snprintf(text, capacity, "%" PRIu64, *(const uint64_t *)field);
        break;
    case TW_CONFIG_BOOL: (void)snprintf(text, capacity, *(const bool *)field ? "on" : "off"); break;
    case TW_CONFIG_RATE: print_quantity(*(const uint64_t *)field * 8, RATES, text, capacity); break;
    case TW_CONFIG_PACE: print_pace(field, text, capacity); break;
    case TW_CONFIG_RELAY: print_relay(field, text, capacity); break;
    case TW_CONFIG_BUDGET: print_budget(field, text, capacity); break;
    case TW_CONFIG_QUOTA: print_quota(*(const uint64_t *)field, text, capacity); break;
    case TW_CONFIG_HOURS:
    case TW_CONFIG_HOURS_OFF: tw_hours_print(field, text, capacity); break;
    case TW_CONFIG_YIELD: print_yield(*(const uint32_t *)field, text, capacity); break;
    case TW_CONFIG_BYTES: {
        char size[TW_UNITS_BYTES];
        (void)snprintf(text, capacity, "%s", tw_units_exact_bytes(size, *(const uint64_t *)field));
        break;
    }
    case TW_CONFIG_DURATION:
        print_quantity(*(const uint64_t *)field, DURATIONS, text, capacity);
        break;
    case TW_CONFIG_DEVICE: {
        char name[TW_DEVICE_TEXT_BYTES];
        (void)snprintf(text, capacity, "%s", tw_device_print(field, name));
        break;
    }
    case TW_CONFIG_CHOICE: {
        int choice;
        memcpy(&choice, field, sizeof(choice));
        (void)snprintf(text, capacity, "%s", key->choices[choice]);
        break;
    }
    case TW_CONFIG_ADDRESS:
        (void)snprintf(text, capacity, "%s",
                       *(const bool *)count ? ((const struct tw_address *)field)->text : "");
        break;
    case TW_CONFIG_ADDRESSES:
    case TW_CONFIG_HOSTS:
        (void)snprintf(text, capacity, "%s", ((const struct tw_address *)field)[i].text);
        break;
    case TW_CONFIG_PEERS: {
        const struct tw_bootstrap *const peer = (const struct tw_bootstrap *)field + i;
        char hex[TW_ID_HEX_BYTES] = "";
        if (peer->has_id) tw_id_hex(&peer->id, hex);
        (void)snprintf(text, capacity, "%s%s%s", peer->address.text, peer->has_id ? "=" : "", hex);
        break;
    }
    }
    return true;
}
