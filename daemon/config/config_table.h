/* config_table.h - the typed table behind config.h: one row per key, and the conversion of values
 * from and to text. */
#ifndef TW_DAEMON_CONFIG_CONFIG_TABLE_H
#define TW_DAEMON_CONFIG_CONFIG_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "daemon/config/config.h"

enum tw_config_type {
    TW_CONFIG_STRING,    /* char[] */
    TW_CONFIG_PATH,      /* char[TW_PATH_BYTES] */
    TW_CONFIG_COUNT,     /* uint32_t */
    TW_CONFIG_STEPS,     /* uint64_t */
    TW_CONFIG_BOOL,      /* bool: on/off */
    TW_CONFIG_RATE,      /* uint64_t bytes per second, written in bits: 5mbit */
    TW_CONFIG_PACE,      /* struct tw_link_pace: auto, off, 5mbit */
    TW_CONFIG_RELAY,     /* struct tw_relay_config: on, off, 2mbit */
    TW_CONFIG_BUDGET,    /* struct tw_budget_config: 5mbit, 50GB/month */
    TW_CONFIG_QUOTA,     /* uint64_t bytes per month: 500GB/month */
    TW_CONFIG_HOURS,     /* struct tw_hours: 08:00-18:00 1mbit, 18-23 off */
    TW_CONFIG_HOURS_OFF, /* struct tw_hours without rates: 18-23 off */
    TW_CONFIG_YIELD,     /* uint32_t percent: off, on, 40% */
    TW_CONFIG_BYTES,     /* uint64_t: 8GB */
    TW_CONFIG_DURATION,  /* uint64_t microseconds: 5m */
    TW_CONFIG_DEVICE,    /* struct tw_device_choice: auto, cpu, cuda:1 */
    TW_CONFIG_CHOICE,    /* enum; the position of the word in `choices` */
    TW_CONFIG_ADDRESS,   /* struct tw_address, and its bool has_... at `count_offset` */
    TW_CONFIG_ADDRESSES, /* struct tw_address[max], and its uint32_t count at `count_offset` */
    TW_CONFIG_HOSTS,     /* like ADDRESSES, for IP addresses without port */
    TW_CONFIG_PEERS,     /* struct tw_bootstrap[max], and its uint32_t count at `count_offset` */
};

struct tw_config_key {
    const char *section, *name;
    enum tw_config_type type;
    size_t offset, count_offset; /* offsets in struct tw_config */
    size_t size;                 /* for text: size of the field in bytes */
    uint64_t min, max;  /* bounds of a number in its base unit; max: also entries of a list */
    const char *preset; /* default, as a person would write it */
    const char *const *choices; /* NULL-terminated */
    /* value shown in the commented example if the default is empty; NULL = none */
    const char *example;
    const char *help; /* one or two lines, '\n' between them */
};

const struct tw_config_key *tw_config_keys(size_t *count_out);
const struct tw_config_key *tw_config_key_find(const char *section, const char *name);

/* Returns true if SIGHUP and `thinwire reload` apply the key while the daemon runs. */
bool tw_config_key_is_live(const struct tw_config_key *key);

/* Sections in file order, NULL-terminated, and the topic of each. */
const char *const *tw_config_sections(void);
const char *tw_config_section_help(const char *section);

/* Sets one field from text. Appends to a list (an empty text appends nothing). `folder` is the base
 * of relative paths ("" keeps them as they are); config->instance replaces %i. Returns TW_CONFIG
 * with a sentence that says what is accepted, without file and line. */
enum tw_status tw_config_set(struct tw_config *config, const struct tw_config_key *key,
                             const char *folder, const char *value, struct tw_error *err);

bool tw_config_is_list(const struct tw_config_key *key);

/* Empties a list field. Does nothing for other types. */
void tw_config_clear(struct tw_config *config, const struct tw_config_key *key);

/* Writes entry `i` of the field as text that tw_config_set can read. Returns false if there is no
 * such entry. A field that is not a list has exactly one. */
bool tw_config_get(const struct tw_config *config, const struct tw_config_key *key, uint32_t i,
                   char *text, size_t capacity);

#endif
