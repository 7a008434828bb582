/* cache_file.h - small texts in the run's state folder: known members, bans, measured links. They
 * are replaced by a rename but not synced, because a node can lose them without harm. */
#ifndef TW_DAEMON_STORE_CACHE_FILE_H
#define TW_DAEMON_STORE_CACHE_FILE_H

#include <stddef.h>

/* Reads the file into text[capacity]. Returns the number of bytes, or 0 if there is no readable
 * file. */
size_t tw_cache_file_load(const char *folder, const char *name, char *text, size_t capacity);

/* Replaces the file. On failure the old file stays. */
void tw_cache_file_save(const char *folder, const char *name, const char *text, size_t size);

#endif
