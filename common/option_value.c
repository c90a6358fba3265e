/* SPDX-License-Identifier: Apache-2.0 */
#include "common/option_value.h"

#include <assert.h>
#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "common/error.h"
#include "common/text.h"

#define STRING_MAX 1023
#define PATH_MAX_BYTES 4095
#define PORT_MAX 65535

struct unit {
    const char *suffix;
    uint64_t factor;
};

/* Largest first, so that formatting takes the largest that divides. */
static const struct unit byte_units[] = {
    {"T", 1ull << 40}, {"G", 1ull << 30}, {"M", 1ull << 20}, {"K", 1ull << 10}, {"", 1}};
static const struct unit time_units[] = {
    {"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}, {"", 1}};
#define UNIT_COUNT 5

static const char *const bool_names[] = {
    "no", "yes", "false", "true", "off", "on", "0", "1", NULL}; /* index & 1 is the value */

static bool is_text(const struct sw_option *o)
{
    return o->type == SW_OPTION_STRING || o->type == SW_OPTION_PATH ||
           o->type == SW_OPTION_HOST_PORT;
}

static uint64_t text_max(const struct sw_option *o)
{
    if (o->max)
        return o->max;
    return o->type == SW_OPTION_PATH ? PATH_MAX_BYTES : STRING_MAX;
}

static const struct unit *units_of(const struct sw_option *o)
{
    return o->type == SW_OPTION_BYTES      ? byte_units
           : o->type == SW_OPTION_DURATION ? time_units
                                           : NULL;
}

static void *field(const struct sw_option *o, void *config)
{
    return (char *)config + o->offset;
}

/* Digits only; false when there are none, or too many for 64 bits. */
static bool read_digits(const char **text, uint64_t *out)
{
    uint64_t value = 0;
    const char *p = *text;

    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    *text = p;
    *out = value;
    return true;
}

static bool read_number(const struct sw_option *o, const char *text, uint64_t *out)
{
    const struct unit *units = units_of(o);
    uint64_t value;

    if (!read_digits(&text, &value))
        return false;
    if (!units) {
        *out = value;
        return *text == '\0';
    }
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (strcasecmp(text, units[i].suffix) == 0)
            return !__builtin_mul_overflow(value, units[i].factor, out);
    return false;
}

static void format_number(const struct sw_option *o, uint64_t value, char out[SW_OPTION_TEXT])
{
    const struct unit *units = units_of(o);
    size_t i = 0;

    if (!units || (value == 0 && units == byte_units)) {
        snprintf(out, SW_OPTION_TEXT, "%llu", (unsigned long long)value);
        return;
    }
    if (value == 0) {
        snprintf(out, SW_OPTION_TEXT, "0ms");
        return;
    }
    while (value % units[i].factor != 0)
        i++;
    snprintf(out, SW_OPTION_TEXT, "%llu%s", (unsigned long long)(value / units[i].factor),
        units[i].suffix);
}

static void store_number(const struct sw_option *o, uint64_t value, void *config)
{
    void *to = field(o, config);

    switch (o->size) {
    case sizeof(uint16_t):
        *(uint16_t *)to = (uint16_t)value;
        break;
    case sizeof(uint32_t):
        *(uint32_t *)to = (uint32_t)value;
        break;
    default:
        assert(o->size == sizeof(uint64_t));
        *(uint64_t *)to = value;
    }
}

/* ---- descriptions ---- */

static void join_names(const char *const *names, const char *between, char out[SW_OPTION_TEXT])
{
    size_t used = 0;

    out[0] = '\0';
    for (size_t i = 0; names[i] && used < SW_OPTION_TEXT; i++)
        used +=
            (size_t)snprintf(out + used, SW_OPTION_TEXT - used, "%s%s", i ? between : "", names[i]);
}

const char *sw_option_range(const struct sw_option *o, char out[SW_OPTION_TEXT])
{
    char low[SW_OPTION_TEXT];
    char high[SW_OPTION_TEXT];

    out[0] = '\0';
    if (o->type == SW_OPTION_UINT || units_of(o)) {
        format_number(o, o->min, low);
        format_number(o, o->max, high);
        snprintf(out, SW_OPTION_TEXT, "%.30s to %.30s", low, high);
    } else if (o->type == SW_OPTION_ENUM) {
        join_names(o->names, ", ", out);
    } else if (o->type == SW_OPTION_BOOL) {
        snprintf(out, SW_OPTION_TEXT, "yes, no");
    } else if (is_text(o) && o->max) {
        snprintf(out, SW_OPTION_TEXT, "at most %llu bytes", (unsigned long long)o->max);
    }
    return out;
}

const char *sw_option_expected(const struct sw_option *o, char out[SW_OPTION_TEXT])
{
    char range[SW_OPTION_TEXT];

    sw_option_range(o, range);
    switch (o->type) {
    case SW_OPTION_STRING:
        snprintf(out, SW_OPTION_TEXT, "a text of %llu to %llu bytes",
            (unsigned long long)(o->min ? o->min : 1), (unsigned long long)text_max(o));
        break;
    case SW_OPTION_PATH:
        snprintf(
            out, SW_OPTION_TEXT, "a path of at most %llu bytes", (unsigned long long)text_max(o));
        break;
    case SW_OPTION_HOST_PORT:
        snprintf(out, SW_OPTION_TEXT, "host%sport%s, an IPv6 address in [brackets], port 1 to %d",
            o->number ? "[:" : ":", o->number ? "]" : "", PORT_MAX);
        break;
    case SW_OPTION_BOOL:
        snprintf(out, SW_OPTION_TEXT, "yes or no");
        break;
    case SW_OPTION_UINT:
        snprintf(out, SW_OPTION_TEXT, "a number%s%.40s from %.80s", o->unit ? " of " : "",
            o->unit ? o->unit : "", range);
        break;
    case SW_OPTION_BYTES:
        snprintf(out, SW_OPTION_TEXT, "a size such as 512K, 64M or 2G, from %.80s", range);
        break;
    case SW_OPTION_DURATION:
        snprintf(out, SW_OPTION_TEXT, "a time such as 250ms, 30s or 5min, from %.80s", range);
        break;
    case SW_OPTION_ENUM:
        snprintf(out, SW_OPTION_TEXT, "one of %.240s", range);
        break;
    }
    return out;
}

const char *sw_option_default(const struct sw_option *o, char out[SW_OPTION_TEXT])
{
    out[0] = '\0';
    if (o->type == SW_OPTION_HOST_PORT && o->text && o->number && !strchr(o->text, ':'))
        snprintf(out, SW_OPTION_TEXT, "%s:%llu", o->text, (unsigned long long)o->number);
    else if (is_text(o))
        snprintf(out, SW_OPTION_TEXT, "%s", o->text ? o->text : "");
    else if (o->type == SW_OPTION_BOOL)
        snprintf(out, SW_OPTION_TEXT, "%s", o->number ? "yes" : "no");
    else if (o->type == SW_OPTION_ENUM)
        snprintf(out, SW_OPTION_TEXT, "%s", o->names[o->number]);
    else
        format_number(o, o->number, out);
    return out;
}

const char *sw_option_metavar(const struct sw_option *o, char out[SW_OPTION_TEXT])
{
    static const char *const metavars[] = {[SW_OPTION_STRING] = "TEXT",
        [SW_OPTION_PATH] = "PATH",
        [SW_OPTION_HOST_PORT] = "HOST:PORT",
        [SW_OPTION_BOOL] = "yes|no",
        [SW_OPTION_UINT] = "NUMBER",
        [SW_OPTION_BYTES] = "SIZE",
        [SW_OPTION_DURATION] = "TIME"};

    if (o->type == SW_OPTION_ENUM)
        join_names(o->names, "|", out);
    else if (o->type == SW_OPTION_HOST_PORT && o->number)
        snprintf(out, SW_OPTION_TEXT, "HOST[:PORT]");
    else
        snprintf(out, SW_OPTION_TEXT, "%s", metavars[o->type]);
    return out;
}

/* ---- values ---- */

static int refuse(const struct sw_option *o, const char *text, struct sw_error *e)
{
    char expected[SW_OPTION_TEXT];
    char shown[128];

    return sw_fail(e, SW_ERR_INVALID, "'%s': expected %s",
        sw_text_escape(shown, sizeof(shown), text), sw_option_expected(o, expected));
}

static bool has_control(const char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text))
            return true;
    return false;
}

static int set_text(const struct sw_option *o, const char *text, void *config, struct sw_error *e)
{
    char **to = field(o, config);
    const size_t n = strlen(text);
    char *copy = NULL;

    if (n == 0 && !(o->flags & SW_OPTION_MAY_EMPTY))
        return refuse(o, text, e);
    if (n > 0 && (n < o->min || n > text_max(o) || has_control(text)))
        return refuse(o, text, e);
    if (n > 0) {
        copy = strdup(text);
        if (!copy)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for a text of %zu bytes", n);
    }
    free(*to);
    *to = copy;
    return 0;
}

/* Splits host and port; *host_n bytes at *host. The port stays as it is when none is named. */
static bool split_host_port(const char *text, const char **host, size_t *host_n, uint32_t *port)
{
    const char *end = NULL; /* just behind the host, brackets included */
    uint64_t value;

    if (text[0] == '[') {
        end = strchr(text, ']');
        if (!end)
            return false;
        *host = text + 1;
        *host_n = (size_t)(end - *host);
        end++;
    } else {
        end = text + strcspn(text, ":");
        *host = text;
        *host_n = (size_t)(end - text);
        if (memchr(text, ']', *host_n))
            return false;
    }
    if (*host_n == 0 || *host_n > 255)
        return false;
    for (size_t i = 0; i < *host_n; i++)
        if (isspace((unsigned char)(*host)[i]) || iscntrl((unsigned char)(*host)[i]))
            return false;
    if (*end == '\0')
        return *port != 0;
    end++;
    if (end[-1] != ':' || !read_digits(&end, &value) || *end || value < 1 || value > PORT_MAX)
        return false;
    *port = (uint32_t)value;
    return true;
}

static int set_host_port(
    const struct sw_option *o, const char *text, void *config, struct sw_error *e)
{
    struct sw_host_port *to = field(o, config);
    uint32_t port = (uint32_t)o->number;
    const char *host = NULL;
    size_t host_n = 0;
    char *copy = NULL;

    if (*text || !(o->flags & SW_OPTION_MAY_EMPTY)) {
        if (!split_host_port(text, &host, &host_n, &port))
            return refuse(o, text, e);
        copy = strndup(host, host_n);
        if (!copy)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for a host name of %zu bytes", host_n);
    }
    free(to->host);
    to->host = copy;
    to->port = port;
    return 0;
}

/* The index of `text` in `names`; -1 = not there. */
static int name_index(const char *const *names, const char *text)
{
    for (int i = 0; names[i]; i++)
        if (strcasecmp(names[i], text) == 0)
            return i;
    return -1;
}

int sw_option_set(const struct sw_option *o, const char *text, void *config, struct sw_error *e)
{
    uint64_t number;
    int index;

    switch (o->type) {
    case SW_OPTION_STRING:
    case SW_OPTION_PATH:
        return set_text(o, text, config, e);
    case SW_OPTION_HOST_PORT:
        return set_host_port(o, text, config, e);
    case SW_OPTION_BOOL:
        index = name_index(bool_names, text);
        if (index < 0)
            return refuse(o, text, e);
        *(bool *)field(o, config) = index & 1;
        return 0;
    case SW_OPTION_ENUM:
        index = name_index(o->names, text);
        if (index < 0)
            return refuse(o, text, e);
        *(int *)field(o, config) = index;
        return 0;
    default:
        if (!read_number(o, text, &number) || number < o->min || number > o->max)
            return refuse(o, text, e);
        store_number(o, number, config);
        return 0;
    }
}

int sw_option_set_default(const struct sw_option *o, void *config, struct sw_error *e)
{
    memset(field(o, config), 0, o->size);
    switch (o->type) {
    case SW_OPTION_HOST_PORT:
        ((struct sw_host_port *)field(o, config))->port = (uint32_t)o->number;
        return o->text ? sw_option_set(o, o->text, config, e) : 0;
    case SW_OPTION_STRING:
    case SW_OPTION_PATH:
        return o->text ? sw_option_set(o, o->text, config, e) : 0;
    case SW_OPTION_BOOL:
        *(bool *)field(o, config) = o->number != 0;
        return 0;
    case SW_OPTION_ENUM:
        *(int *)field(o, config) = (int)o->number;
        return 0;
    default:
        store_number(o, o->number, config);
        return 0;
    }
}

void sw_option_free(const struct sw_option *o, void *config)
{
    char **text = field(o, config); /* struct sw_host_port starts with its text too */

    if (!is_text(o))
        return;
    free(*text);
    *text = NULL;
}
