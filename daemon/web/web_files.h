/* web_files.h - the files of the web page, embedded in the program. */
#ifndef TW_DAEMON_WEB_WEB_FILES_H
#define TW_DAEMON_WEB_WEB_FILES_H

#include <stddef.h>

struct tw_web_file {
    const char *path, *type; /* URL path such as "/page.js" ("/" for index.html); media type */
    const unsigned char *bytes;
    size_t size;
};

extern const struct tw_web_file TW_WEB_FILES[];
extern const size_t TW_WEB_FILES_COUNT;

#endif
