/* api_web.h - access to the daemon's web page: its token, and the headers that confine the page.
 *
 * The page's files are public, as they reveal nothing about the node. Its data need the token,
 * which the caller keeps over restarts, so that a bookmark stays valid. `thinwire web` prints a
 * link with the token in its fragment, which browsers never send. The page sends the token as
 * `Authorization: Bearer`, not as a cookie: a cookie of 127.0.0.1 is sent to every port of the
 * machine, including those of other users. */
#ifndef TW_DAEMON_API_API_WEB_H
#define TW_DAEMON_API_API_WEB_H

#include <stdbool.h>

#include "base/status.h"

enum { TW_API_TOKEN_BYTES = 65, TW_API_WEB_URL_BYTES = 192 };

struct MHD_Response;
struct tw_web_file;

struct tw_api_web {
    char token[TW_API_TOKEN_BYTES]; /* hexadecimal; "": there is no page */
    char url[TW_API_WEB_URL_BYTES]; /* link with the token in its fragment */
};

/* Draws a token. Returns TW_IO if no random numbers are available. */
enum tw_status tw_api_web_draw(char token[TW_API_TOKEN_BYTES], struct tw_error *err);

/* Builds the link. `fd` listens on `address` (host:port), whose port may be 0. `token`: of
 * tw_api_web_draw. */
void tw_api_web_init(struct tw_api_web *web, const char *address, int fd, const char *token);

/* Replaces the token: the links with the former one end. */
void tw_api_web_set_token(struct tw_api_web *web, const char *token);

/* Returns whether the Authorization header carries the token. NULL stands for a missing header. The
 * comparison takes the same time for every wrong token. */
bool tw_api_web_admits(const struct tw_api_web *web, const char *authorization);

/* Returns the page's file at a path, or NULL if there is none. */
const struct tw_web_file *tw_api_web_file(const char *path);

/* Adds the headers that keep a browser from loading other content, from showing the page in a frame
 * and from guessing content types. */
void tw_api_web_confine(struct MHD_Response *response);

#endif
