/* SPDX-License-Identifier: Apache-2.0 */
#include "common/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char ellipsis[] = "...";

/* Length of the UTF-8 sequence at p and its code point; 0 = not well-formed. */
static size_t decode(const unsigned char *p, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = p[0] < 0x80              ? 1
                     : (p[0] & 0xe0u) == 0xc0 ? 2
                     : (p[0] & 0xf0u) == 0xe0 ? 3
                     : (p[0] & 0xf8u) == 0xf0 ? 4
                                              : 0;

    if (n == 0)
        return 0;
    *code = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0u) != 0x80) /* the final NUL stops here too */
            return 0;
        *code = *code << 6 | (p[i] & 0x3fu);
    }
    return *code >= least[n] && *code <= 0x10ffff && (*code & 0xfffff800u) != 0xd800 ? n : 0;
}

/* Control characters of both kinds, line breaks and whatever changes the direction of writing. */
static bool unfit(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f ||
           (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
           code == 0xfeff;
}

/* What stands for the character at p, in `shown`; returns how many bytes it took. */
static size_t render(const unsigned char *p, char shown[12])
{
    uint32_t code = 0;
    const size_t n = decode(p, &code);

    if (n == 0) {
        snprintf(shown, 12, "\\x%02x", p[0]);
        return 1;
    }
    if (!unfit(code)) {
        memcpy(shown, p, n);
        shown[n] = '\0';
    } else if (code == '\n' || code == '\t' || code == '\r') {
        snprintf(shown, 12, "\\%c", code == '\n' ? 'n' : code == '\t' ? 't' : 'r');
    } else {
        snprintf(shown, 12, code < 0x80 ? "\\x%02x" : "\\u%04x", (unsigned)code);
    }
    return n;
}

char *sw_text_escape(char *out, size_t size, const char *in)
{
    const unsigned char *p = (const unsigned char *)in;
    size_t used = 0;
    size_t cut = 0; /* the last place where the ellipsis would still fit */
    char shown[12];

    while (*p) {
        const size_t taken = render(p, shown);
        const size_t n = strlen(shown);

        if (used + n + 1 > size) {
            memcpy(out + cut, ellipsis, sizeof(ellipsis));
            return out;
        }
        memcpy(out + used, shown, n);
        used += n;
        if (used + sizeof(ellipsis) <= size)
            cut = used;
        p += taken;
    }
    out[used] = '\0';
    return out;
}
