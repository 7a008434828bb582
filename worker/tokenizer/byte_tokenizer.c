#include "worker/tokenizer/byte_tokenizer.h"

#include <stdbool.h>
#include <stdio.h>

#include "base/assert.h"

/* Whether the byte is a visible character of Latin-1, which GPT-2 writes as itself. */
static bool is_visible(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

size_t tw_byte_token(uint8_t byte, char text[TW_BYTE_TOKEN_BYTES]) {
    unsigned code = byte;
    if (!is_visible(byte)) { /* the other bytes get the characters from U+0100 on, in order */
        code = 256;
        for (unsigned i = 0; i < byte; i++) code += !is_visible(i);
    }
    if (code < 128) {
        text[0] = (char)code;
        text[1] = 0;
        return 1;
    }
    text[0] = (char)(0xC0 | code >> 6);
    text[1] = (char)(0x80 | (code & 63));
    text[2] = 0;
    return 2;
}

size_t tw_byte_tokenizer_json(char text[TW_BYTE_TOKENIZER_BYTES]) {
    static const char HEAD[] =
        "{\n"
        "  \"version\": \"1.0\",\n"
        "  \"added_tokens\": [],\n"
        "  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": false, \"use_regex\": false},\n"
        "  \"post_processor\": null,\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
        "false, \"use_regex\": false},\n"
        "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
        "\"byte_fallback\": false, \"merges\": [], \"vocab\": {";
    size_t size = (size_t)snprintf(text, TW_BYTE_TOKENIZER_BYTES, "%s", HEAD);
    for (unsigned byte = 0; byte < 256; byte++) {
        char token[TW_BYTE_TOKEN_BYTES];
        (void)tw_byte_token((uint8_t)byte, token);
        const bool is_escaped = byte == '"' || byte == '\\';
        size += (size_t)snprintf(text + size, TW_BYTE_TOKENIZER_BYTES - size, "%s\"%s%s\": %u",
                                 byte == 0 ? "" : ", ", is_escaped ? "\\" : "", token, byte);
    }
    size += (size_t)snprintf(text + size, TW_BYTE_TOKENIZER_BYTES - size, "}}\n}\n");
    TW_ASSERT(size < TW_BYTE_TOKENIZER_BYTES);
    return size;
}
