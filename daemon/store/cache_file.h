/* cache_file.h - small texts in the run's state folder: known members, bans, measured links. They
 * are replaced by a rename but not synced, because a node can do without them. */
#ifndef TW_DAEMON_STORE_CACHE_FILE_H
#define TW_DAEMON_STORE_CACHE_FILE_H

#include <stddef.h>

/* Reads the file into text[capacity]. Returns the number of bytes; 0 without a readable file. */
size_t tw_cache_file_load(const char *folder, const char *name, char *text, size_t capacity);

/* On failure the old file stays. */
void tw_cache_file_save(const char *folder, const char *name, const char *text, size_t size);

#endif
