#include "daemon/api/api_web.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/assert.h"
#include "daemon/web/web_files.h"

static unsigned port_of(int fd) {
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    memset(&at, 0, sizeof(at));
    (void)getsockname(fd, (struct sockaddr *)&at, &size);
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

enum tw_status tw_api_web_draw(char token[TW_API_TOKEN_BYTES], struct tw_error *err) {
    unsigned char random[TW_API_TOKEN_BYTES / 2];
    if (uv_random(NULL, NULL, random, sizeof(random), 0, NULL) != 0) {
        return tw_fail(err, TW_IO, "api.web: the system gives no random numbers for a token");
    }
    for (unsigned i = 0; i < sizeof(random); i++)
        (void)snprintf(token + 2 * i, 3, "%02x", random[i]);
    return TW_OK;
}

void tw_api_web_set_token(struct tw_api_web *web, const char *token) {
    TW_ASSERT(strlen(token) == TW_API_TOKEN_BYTES - 1);
    char *const mark = strchr(web->url, '#');
    TW_ASSERT(mark != NULL);
    memcpy(web->token, token, TW_API_TOKEN_BYTES);
    memcpy(mark + 1, token, TW_API_TOKEN_BYTES);
}

void tw_api_web_init(struct tw_api_web *web, const char *address, int fd, const char *token) {
    const int host_bytes = (int)(strrchr(address, ':') - address);
    const size_t room = sizeof(web->url) - TW_API_TOKEN_BYTES;
    const int size = snprintf(web->url, room, "http://%.*s:%u/#", host_bytes, address, port_of(fd));
    TW_ASSERT(size > 0 && (size_t)size < room);
    tw_api_web_set_token(web, token);
}

bool tw_api_web_admits(const struct tw_api_web *web, const char *authorization) {
    static const char SCHEME[] = "Bearer ";
    enum { SCHEME_BYTES = sizeof(SCHEME) - 1, TOKEN_BYTES = TW_API_TOKEN_BYTES - 1 };
    if (web->token[0] == '\0' || authorization == NULL) return false;
    if (strncmp(authorization, SCHEME, SCHEME_BYTES) != 0) return false;
    if (strlen(authorization + SCHEME_BYTES) != TOKEN_BYTES) return false;
    return CRYPTO_memcmp(authorization + SCHEME_BYTES, web->token, TOKEN_BYTES) == 0;
}

const struct tw_web_file *tw_api_web_file(const char *path) {
    for (size_t i = 0; i < TW_WEB_FILES_COUNT; i++) {
        if (strcmp(TW_WEB_FILES[i].path, path) == 0) return &TW_WEB_FILES[i];
    }
    return NULL;
}

void tw_api_web_confine(struct MHD_Response *response) {
    static const char *const HEADERS[][2] = {
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
         "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
         "require-trusted-types-for 'script'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
    };
    for (size_t i = 0; i < sizeof(HEADERS) / sizeof(HEADERS[0]); i++)
        (void)MHD_add_response_header(response, HEADERS[i][0], HEADERS[i][1]);
}
