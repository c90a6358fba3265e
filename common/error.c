/* SPDX-License-Identifier: Apache-2.0 */
#define SW_ERROR_IMPLEMENTATION
#include "common/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[] = {"ok", "invalid", "state", "timeout", "closed", "protocol",
    "auth", "no memory", "i/o", "limit", "unsupported", "version", "plan", "not found", "exists",
    "partial", "aborted"};

const char *sw_code_name(int code)
{
    const int n = sizeof(code_names) / sizeof(code_names[0]);
    return code <= 0 && code > -n ? code_names[-code] : "unknown";
}

int sw_fail(struct sw_error *e, int code, const char *format, ...)
{
    va_list args;

    if (!e)
        return code;
    e->code = code;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    return code;
}

int sw_fail_errno(struct sw_error *e, int code, int err, const char *format, ...)
{
    char buffer[128];
    va_list args;
    size_t used;

    if (!e)
        return code;
    e->code = code;
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    used = strlen(e->text);
    snprintf(
        e->text + used, sizeof(e->text) - used, ": %s", strerror_r(err, buffer, sizeof(buffer)));
    return code;
}

int sw_error_context(struct sw_error *e, int code, const char *format, ...)
{
    char old[SW_ERROR_TEXT];
    va_list args;
    size_t used;

    if (!e)
        return code;
    memcpy(old, e->text, sizeof(old));
    va_start(args, format);
    vsnprintf(e->text, sizeof(e->text), format, args);
    va_end(args);
    used = strlen(e->text);
    snprintf(e->text + used, sizeof(e->text) - used, ": %s", old);
    return e->code;
}
