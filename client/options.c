/* SPDX-License-Identifier: Apache-2.0 */
#include "client/options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/codec_check.h"
#include "common/error.h"

#define OPTIONS_MIN (2 * sizeof(void *)) /* `size` and something beside it */

int sw_client_options(void *ours, size_t size, const void *theirs, size_t given, struct sw_error *e)
{
    const unsigned char *bytes = theirs;

    if (given < OPTIONS_MIN)
        return sw_fail(e, SW_ERR_INVALID,
            "options.size is %zu: set it to sizeof of the options struct (%zu)", given, size);
    for (size_t i = size; i < given; i++)
        if (bytes[i])
            return sw_fail(e, SW_ERR_UNSUPPORTED,
                "the options have %zu bytes, and something set beyond the %zu that this "
                "libshardwire knows: use a newer one",
                given, size);
    memset(ours, 0, size);
    memcpy(ours, theirs, given < size ? given : size);
    return 0;
}

int sw_client_label(char out[SW_LABEL_MAX + 1], const char *what, const char *label,
    const char *fallback, struct sw_error *e)
{
    const char *use = label ? label : fallback;
    const size_t length = use ? strnlen(use, SW_LABEL_MAX + 1) : 0;

    if (length == 0 || length > SW_LABEL_MAX || sw_utf8_valid(use, length) != length)
        return sw_fail(
            e, SW_ERR_INVALID, "the %s name must have 1 to %d bytes of UTF-8", what, SW_LABEL_MAX);
    memcpy(out, use, length + 1);
    return 0;
}

int sw_client_identity(struct sw_identity *self, enum sw_role role, const char *group,
    char host[SW_LABEL_MAX * 4 + 1], struct sw_error *e)
{
    *self = (struct sw_identity){.group = group, .role = role, .host = host};
    if (gethostname(host, SW_LABEL_MAX * 4))
        snprintf(host, SW_LABEL_MAX * 4, "unknown");
    host[SW_LABEL_MAX * 4] = '\0';
    if (sw_id_random(&self->instance))
        return sw_fail(e, SW_ERR_IO, "the kernel has no randomness for an instance id");
    return 0;
}
