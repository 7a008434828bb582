/* api_web.h - access to the daemon's web page: its token, and the headers that confine the page.
 *
 * The files of the page are public, as they tell nothing of the node. The data on it need the
 * token, which the daemon draws anew at each start. `thinwire web` prints the token in the fragment
 * of a link, and a browser sends no fragment. The page sends the token as `Authorization: Bearer`,
 * not as a cookie: a cookie of 127.0.0.1 goes to every port of the machine, also of other users. */
#ifndef TW_DAEMON_API_API_WEB_H
#define TW_DAEMON_API_API_WEB_H

#include <stdbool.h>

#include "base/status.h"

enum { TW_API_TOKEN_BYTES = 65, TW_API_WEB_URL_BYTES = 192 };

struct MHD_Response;
struct tw_web_file;

struct tw_api_web {
    char token[TW_API_TOKEN_BYTES]; /* hex; "": there is no page */
    char url[TW_API_WEB_URL_BYTES]; /* link with the token in its fragment */
};

/* Draws a token. `fd` listens on `address` (host:port), whose port may be 0. TW_IO without random
 * numbers. */
enum tw_status tw_api_web_init(struct tw_api_web *web, const char *address, int fd,
                               struct tw_error *err);

/* Whether the header Authorization (NULL: none) has the token. Takes the same time for every wrong
 * token. */
bool tw_api_web_admits(const struct tw_api_web *web, const char *authorization);

/* The file of the page at a path; NULL: there is none. */
const struct tw_web_file *tw_api_web_file(const char *path);

/* Adds the headers that keep a browser from loading other content, from showing the page in a frame
 * and from guessing content types. */
void tw_api_web_confine(struct MHD_Response *response);

#endif
