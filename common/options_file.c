/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The INI file. libinih splits lines; it is built without line numbers in distributions, and
 * forgives what we refuse (text behind a section, sections without keys, lines cut at its buffer),
 * so the reader given to it counts the lines and looks at each one first.
 */
#include "common/options_parts.h"

#include <ctype.h>
#include <ini.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/option_value.h"
#include "common/text.h"

#define FILE_MAX_BYTES (1u << 20)

struct reading {
    const struct sw_program *program;
    FILE *stream;
    const char *path;
    void *config;
    unsigned line;  /* of the line that inih has */
    size_t bytes;   /* read so far */
    unsigned *seen; /* for each option: the line that set it, 0 = none */
    int code;       /* of the first error */
    struct sw_error *error;
};

static void fail(struct reading *r, int code)
{
    r->code = sw_error_context(r->error, code, "%s:%u", r->path, r->line);
}

static const char *skip_space(const char *p)
{
    while (isspace((unsigned char)*p))
        p++;
    return p;
}

/* A section's line: the program's own, and nothing but a comment behind it. */
static int check_section(const struct reading *r, const char *line)
{
    const char *end = strchr(line, ']');
    const char *own = r->program->name;
    char shown[128];

    sw_text_escape(shown, sizeof(shown), line);
    if (!end)
        return sw_fail(r->error, SW_ERR_INVALID, "'%s': expected a ']'", shown);
    if ((size_t)(end - line - 1) != strlen(own) || strncmp(line + 1, own, strlen(own)) != 0)
        return sw_fail(r->error, SW_ERR_INVALID, "'%s': expected the section [%s]", shown, own);
    end = skip_space(end + 1);
    if (*end && *end != ';')
        return sw_fail(r->error, SW_ERR_INVALID, "'%s': expected nothing behind ']'", shown);
    return 0;
}

/* `line` has no white space at its ends. */
static int check_line(const struct reading *r, const char *line)
{
    const char *equals = strchr(line, '=');
    const char *colon = strchr(line, ':');
    char shown[128];

    if (*line == '\0' || *line == ';' || *line == '#')
        return 0;
    if (*line == '[')
        return check_section(r, line);
    if (!equals || (colon && colon < equals))
        return sw_fail(r->error, SW_ERR_INVALID, "'%s': expected 'name = value'",
            sw_text_escape(shown, sizeof(shown), line));
    return 0;
}

/* Reads one line of less than `size` bytes without the white space at its ends (inih takes a line
 * that begins with some for the last one's continuation). -1 = end or error, with r->code set. */
static int read_line(struct reading *r, char *out, size_t size)
{
    size_t n = 0;
    int c = getc(r->stream);

    if (c == EOF)
        return -1;
    r->line++;
    for (; c != EOF && c != '\n'; c = getc(r->stream)) {
        if (++r->bytes > FILE_MAX_BYTES) {
            fail(r, sw_fail(r->error, SW_ERR_LIMIT, "a file of over %u bytes is no configuration",
                        FILE_MAX_BYTES));
            return -1;
        }
        if (c == '\0') {
            fail(r, sw_fail(r->error, SW_ERR_INVALID, "a NUL byte: expected text"));
            return -1;
        }
        if (n == 0 && isspace(c))
            continue;
        if (n + 1 >= size) {
            fail(r, sw_fail(r->error, SW_ERR_LIMIT, "the line is too long: at most %zu bytes",
                        size - 1));
            return -1;
        }
        out[n++] = (char)c;
    }
    while (n > 0 && isspace((unsigned char)out[n - 1]))
        n--;
    out[n] = '\0';
    return 0;
}

static char *give_line(char *out, int size, void *stream)
{
    struct reading *r = stream;
    const char *text = out;
    size_t n;

    /* Two bytes are for the line end, which inih wants to see. */
    if (r->code || size < 3 || read_line(r, out, (size_t)size - 1) != 0)
        return NULL;
    if (r->line == 1 && strncmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3; /* a byte order mark, which inih skips by itself */
    if (check_line(r, text) != 0) {
        fail(r, SW_ERR_INVALID);
        return NULL;
    }
    n = strlen(out);
    out[n] = '\n';
    out[n + 1] = '\0';
    return out;
}

/* What people write out of habit, and what would silently become part of the value. */
static int check_value(const char *value, struct sw_error *e)
{
    char shown[128];

    sw_text_escape(shown, sizeof(shown), value);
    if (value[0] == '"' || value[0] == '\'')
        return sw_fail(e, SW_ERR_INVALID, "'%s': expected a value without quotes", shown);
    if (strstr(value, " #") || strstr(value, "\t#"))
        return sw_fail(e, SW_ERR_INVALID,
            "'%s': expected no comment here ('#' starts one only at the beginning of a line)",
            shown);
    return 0;
}

static int set_value(struct reading *r, const char *name, const char *value)
{
    const struct sw_option *o = sw_options_find(r->program, name);
    unsigned *seen;

    if (!o)
        return sw_fail(
            r->error, SW_ERR_INVALID, "no such option; '%s --help' lists them", r->program->name);
    if (o->flags & SW_OPTION_NOT_IN_FILE)
        return sw_fail(r->error, SW_ERR_INVALID, "belongs on the command line, not in a file");
    seen = &r->seen[o - r->program->options];
    if (*seen)
        return sw_fail(r->error, SW_ERR_INVALID, "'%.100s': already set in line %u", value, *seen);
    *seen = r->line;
    if (check_value(value, r->error) != 0)
        return SW_ERR_INVALID;
    return sw_option_set(o, value, r->config, r->error);
}

static int take_value(void *user, const char *section, const char *name, const char *value)
{
    struct reading *r = user;
    char shown[64];
    int code;

    if (r->code)
        return 1; /* inih goes on after an error; the first one counts */
    sw_text_escape(shown, sizeof(shown), name);
    code = section[0] ? set_value(r, name, value)
                      : sw_fail(r->error, SW_ERR_INVALID, "expected the line [%s] before it",
                            r->program->name);
    if (code) {
        sw_error_context(r->error, code, "%s", shown);
        fail(r, code);
    }
    return 1;
}

int sw_options_read(
    const struct sw_program *p, FILE *stream, const char *path, void *config, struct sw_error *e)
{
    struct sw_error own = {0};
    struct reading r = {
        .program = p, .stream = stream, .path = path, .config = config, .error = e ? e : &own};
    int bad;

    r.seen = calloc(p->count ? p->count : 1, sizeof(*r.seen));
    if (!r.seen)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to read %s", path);
    bad = ini_parse_stream(give_line, &r, take_value, &r);
    free(r.seen);
    if (r.code)
        return r.code;
    if (ferror(stream))
        return sw_fail(e, SW_ERR_IO, "%s: could not be read to its end", path);
    if (bad > 0)
        return sw_fail(e, SW_ERR_INVALID, "%s:%d: expected 'name = value'", path, bad);
    if (bad < 0)
        return sw_fail(e, SW_ERR_NOMEM, "no memory to read %s", path);
    return 0;
}
