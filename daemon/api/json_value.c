#include "daemon/api/json_value.h"

#include "daemon/api/status_view.h"

json_t *tw_json_id(const struct tw_id *id) {
    char text[TW_ID_HEX_BYTES];
    tw_id_hex(id, text);
    return tw_id_is_zero(id) ? json_null() : json_string(text);
}

json_t *tw_json_id_short(const struct tw_id *id) {
    char text[9];
    tw_id_short(id, text);
    return tw_id_is_zero(id) ? json_null() : json_string(text);
}

json_t *tw_json_seconds(uint64_t us) {
    return us == TW_VIEW_NEVER ? json_null() : json_real((double)(us / 1000) / 1e3);
}
