/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/arguments.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int parse(const char *text, uint64_t *value, const char **rest)
{
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return -1;
    errno = 0;
    *value = strtoull(text, &end, 10);
    *rest = end;
    return errno ? -1 : 0;
}

int sw_argument_number(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    const char *rest;
    uint64_t n;

    if (parse(text, &n, &rest) < 0 || *rest || n < min || n > max)
        return -1;
    *value = n;
    return 0;
}

int sw_argument_size(const char *text, uint64_t min, uint64_t max, uint64_t *value)
{
    static const char units[] = "kMGT";
    const char *rest, *unit;
    unsigned shift = 0;
    uint64_t n;

    if (parse(text, &n, &rest) < 0)
        return -1;
    if (*rest) {
        unit = strchr(units, *rest == 'K' ? 'k' : *rest);
        if (!unit || (rest[1] && strcmp(rest + 1, "iB") != 0))
            return -1;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (n > UINT64_MAX >> shift || n << shift < min || n << shift > max)
        return -1;
    *value = n << shift;
    return 0;
}

int sw_argument_block(const char *text, uint32_t block[2])
{
    const char *x = strchr(text, 'x');
    char rows[8];
    uint64_t n[2];

    if (!x || x - text >= (ptrdiff_t)sizeof(rows))
        return -1;
    memcpy(rows, text, (size_t)(x - text));
    rows[x - text] = '\0';
    if (sw_argument_number(rows, 1, 65536, &n[0]) < 0 ||
        sw_argument_number(x + 1, 1, 65536, &n[1]) < 0)
        return -1;
    block[0] = (uint32_t)n[0];
    block[1] = (uint32_t)n[1];
    return 0;
}

char *sw_argument_split(char *text)
{
    char *sign = strchr(text, '=');

    if (!sign || sign == text)
        return NULL;
    *sign = '\0';
    return sign + 1;
}
