/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libinih splits lines into keys and values. Distributions build it without line numbers, with
 * lines of 200 bytes and sections of 50, and it forgives what we refuse; so the reader that is
 * given to it takes the sections itself, counts lines and looks at each one first.
 */
#include "trainerd/plan/rules_file.h"

#include <ini.h>
#include <string.h>
#include "common/error.h"
#include "common/limits.h"
#include "common/text.h"

#define KEY_MAX 49      /* inih cuts longer ones */
#define LINE_MAX_ 197   /* likewise, without the line end */
#define JOINED_MAX 4096 /* bytes of a value over several lines */

struct lines {
    struct sw_rule_reading *r;
    struct sw_rule_file *out;
    const char *file, *at, *end;
    uint32_t line;
    struct sw_rule_section *section;
    bool continues; /* the line goes on with the value above it */
    bool key;       /* the section has a key already */
    int code;
};

int sw_rule_context(struct sw_error *e, int code, const struct sw_rule_section *s,
    const struct sw_rule_entry *entry)
{
    char header[120], key[64];

    sw_text_escape(header, sizeof(header), s->header);
    if (!entry)
        return sw_error_context(e, code, "%s:%u: [%s]", s->file, s->line, header);
    return sw_error_context(e, code, "%s:%u: [%s] %s", entry->file, entry->line, header,
        sw_text_escape(key, sizeof(key), entry->key));
}

static int line_fail(struct lines *l, const char *expected, const char *found)
{
    char shown[100], header[120], text[32] = "";

    strncpy(text, found, sizeof(text) - 1);
    l->code = sw_fail(l->r->e, SW_ERR_INVALID, "expected %s, found '%s'", expected,
        sw_text_escape(shown, sizeof(shown), text));
    if (l->section)
        return sw_error_context(l->r->e, l->code, "%s:%u: [%s]", l->file, l->line,
            sw_text_escape(header, sizeof(header), l->section->header));
    return sw_error_context(l->r->e, l->code, "%s:%u", l->file, l->line);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* ---- sections ---- */

static const struct {
    const char *word;
    bool named;
} kinds[] = {
    [SW_SECTION_LAYOUT] = {"layout", false},
    [SW_SECTION_DEFINE] = {"define", false},
    [SW_SECTION_TENSOR] = {"tensor", true},
    [SW_SECTION_PARAMETER] = {"parameter", true},
    [SW_SECTION_SKIP] = {"skip", false},
    [SW_SECTION_DERIVED] = {"derived", false},
};

static int find_kind(const char *header, struct sw_rule_section *s)
{
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        const size_t n = strlen(kinds[k].word);

        if (strncmp(header, kinds[k].word, n) != 0)
            continue;
        header += n;
        if (*header && !is_space(*header))
            return -1;
        while (is_space(*header))
            header++;
        if ((*header != '\0') != kinds[k].named || strpbrk(header, " \t"))
            return -1;
        s->kind = (enum sw_section_kind)k;
        s->name = header;
        return 0;
    }
    return -1;
}

/* `line` begins with '[' and has nothing behind it that counts. */
static int begin_section(struct lines *l, const char *line)
{
    const char *close = strchr(line, ']');
    struct sw_rule_section *s;
    size_t n;

    l->section = NULL;
    l->key = false;
    if (!close || close[1])
        return line_fail(l, "one ']' at the end of a section's name", line);
    if (l->out->n == SW_RULE_SECTIONS_MAX)
        return line_fail(l, "at most 2048 sections", line);
    line++;
    while (is_space(*line))
        line++;
    n = (size_t)(close - line);
    while (n > 0 && is_space(line[n - 1]))
        n--;
    if (n > SW_NAME_MAX + 16)
        return line_fail(l, "a name of at most 512 bytes", line);
    s = sw_arena_alloc(l->r->arena, sizeof(*s));
    if (!s || !(s->header = sw_arena_strndup(l->r->arena, line, n)))
        return l->code = sw_fail(l->r->e, SW_ERR_NOMEM, "no memory for a layout file");
    if (find_kind(s->header, s) != 0)
        return line_fail(l,
            "[layout], [define], [tensor NAME], [parameter NAME], [skip] or [derived]", s->header);
    s->file = l->file;
    s->line = l->line;
    l->section = l->out->sections[l->out->n++] = s;
    return 0;
}

/* ---- lines ---- */

/* Takes the next line without its end and the comment. False = there is none, or an error. */
static bool take_line(struct lines *l, const char **from, size_t *length)
{
    const char *start = l->at, *end;
    size_t n;

    if (l->code || l->at >= l->end)
        return false;
    end = memchr(start, '\n', (size_t)(l->end - start));
    n = (size_t)((end ? end : l->end) - start);
    l->at = end ? end + 1 : l->end;
    l->line++;
    if (l->line == 1 && n >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0) {
        start += 3; /* a byte order mark */
        n -= 3;
    }
    if (memchr(start, '\0', n)) {
        line_fail(l, "text without NUL bytes", "one");
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (start[i] == ';' && (i == 0 || is_space(start[i - 1])))
            n = i;
    while (n > 0 && is_space(start[n - 1]))
        n--;
    *from = start;
    *length = n;
    return true;
}

static int check_key(struct lines *l, const char *line)
{
    const size_t n = strcspn(line, "=:");

    if (!l->section)
        return line_fail(l, "a section before the first key", line);
    if (line[n] != '=' || n == 0)
        return line_fail(l, "'key = value'", line);
    if (n > KEY_MAX)
        return line_fail(l, "a key of at most 49 bytes", line);
    l->key = true;
    return 0;
}

/* What inih is to see of a line, into `out`. */
static int give(struct lines *l, const char *from, size_t n, char *out, size_t size)
{
    size_t indent = 0;

    while (indent < n && is_space(from[indent]))
        indent++;
    from += indent;
    n -= indent;
    l->continues = false;
    if (n == 0 || *from == '#') {
        memcpy(out, "\n", 2);
        return 0;
    }
    if (*from == '[' && !(indent && l->key)) {
        char header[SW_NAME_MAX + 64];

        memcpy(out, "[s]\n", 5);
        if (n >= sizeof(header))
            return line_fail(l, "a name of at most 512 bytes", "more");
        memcpy(header, from, n);
        header[n] = '\0';
        return begin_section(l, header);
    }
    if (n > LINE_MAX_ || n + 3 > size)
        return line_fail(l,
            "at most 197 bytes in a line (one that begins with white space goes on with the value "
            "above it)",
            "more");
    l->continues = indent > 0 && l->key;
    if (l->continues)
        *out++ = ' ';
    memcpy(out, from, n);
    out[n] = '\0';
    if (!l->continues && check_key(l, out))
        return l->code;
    memcpy(out + n, "\n", 2);
    return 0;
}

static char *next_line(char *out, int size, void *stream)
{
    struct lines *l = stream;
    const char *from;
    size_t n;

    if (size < 8 || !take_line(l, &from, &n))
        return NULL;
    return give(l, from, n, out, (size_t)size) ? NULL : out;
}

/* ---- entries ---- */

static bool several(const struct sw_rule_section *s, const char *key)
{
    static const char *const keys[] = {
        "include", "for", "stored", "part", "extra", "tensor", "parameter"};

    for (size_t i = 0; s->kind != SW_SECTION_DEFINE && i < sizeof(keys) / sizeof(*keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

const struct sw_rule_entry *sw_rule_section_get(const struct sw_rule_section *s, const char *key)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->entries[i].key, key) == 0)
            return &s->entries[i];
    return NULL;
}

int sw_rule_section_add(
    struct sw_rule_reading *r, struct sw_rule_section *s, struct sw_rule_entry x)
{
    struct sw_rule_entry *entries = s->entries;

    if (++r->n_entries > SW_RULE_ENTRIES_MAX || s->n == SW_RULE_SECTION_MAX)
        return sw_fail(r->e, SW_ERR_LIMIT,
            "expected at most %d values in a section, %d in all files", SW_RULE_SECTION_MAX,
            SW_RULE_ENTRIES_MAX);
    if (s->n == s->size) {
        s->size = s->size ? s->size * 2 : 8;
        entries = sw_arena_array(r->arena, s->size, sizeof(*entries));
        if (!entries)
            return sw_fail(r->e, SW_ERR_NOMEM, "no memory for a layout file");
        if (s->n)
            memcpy(entries, s->entries, s->n * sizeof(*entries));
        s->entries = entries;
    }
    entries[s->n++] = x;
    return 0;
}

/* One more line of a value that is one. */
static int join(struct lines *l, struct sw_rule_entry *entry, const char *value)
{
    const size_t a = strlen(entry->value), b = strlen(value);
    char *joined;

    if (a + b + 2 > JOINED_MAX)
        return sw_fail(l->r->e, SW_ERR_LIMIT, "expected a value of less than %d bytes", JOINED_MAX);
    joined = sw_arena_alloc(l->r->arena, a + b + 2);
    if (!joined)
        return sw_fail(l->r->e, SW_ERR_NOMEM, "no memory for a layout file");
    memcpy(joined, entry->value, a);
    if (a)
        joined[a] = ' ';
    memcpy(joined + (a ? a + 1 : 0), value, b + 1);
    entry->value = joined;
    return 0;
}

static int add_value(struct lines *l, const char *name, const char *value)
{
    struct sw_rule_section *s = l->section;
    const struct sw_rule_entry *before;
    struct sw_rule_entry x = {.file = l->file, .line = l->line};

    if (l->continues && !several(s, name))
        return join(l, &s->entries[s->n - 1], value);
    before = several(s, name) ? NULL : sw_rule_section_get(s, name);
    if (before)
        return sw_fail(
            l->r->e, SW_ERR_INVALID, "expected it once, found it in line %u too", before->line);
    if (!*value && several(s, name))
        return 0; /* all of them come in the lines below */
    x.key = sw_arena_strdup(l->r->arena, name);
    x.value = sw_arena_strdup(l->r->arena, value);
    if (!x.key || !x.value)
        return sw_fail(l->r->e, SW_ERR_NOMEM, "no memory for a layout file");
    return sw_rule_section_add(l->r, s, x);
}

static int take_value(void *user, const char *section, const char *name, const char *value)
{
    struct lines *l = user;
    struct sw_rule_entry shown = {.key = name, .file = l->file, .line = l->line};

    (void)section;
    if (l->code || !l->section)
        return 1; /* inih goes on after an error; the first one counts */
    l->code = add_value(l, name, value);
    if (l->code)
        sw_rule_context(l->r->e, l->code, l->section, &shown);
    return 1;
}

/* ---- the whole ---- */

static int check_headers(const struct lines *l)
{
    const struct sw_rule_file *f = l->out;

    for (uint32_t i = 0; i < f->n; i++)
        for (uint32_t j = 0; j < i; j++) {
            const struct sw_rule_section *s = f->sections[i], *t = f->sections[j];

            if (s->kind != SW_SECTION_PARAMETER && strcmp(s->header, t->header) == 0) {
                sw_fail(l->r->e, SW_ERR_INVALID,
                    "expected this section once, found it in line %u too", t->line);
                return sw_rule_context(l->r->e, SW_ERR_INVALID, s, NULL);
            }
        }
    return 0;
}

int sw_rule_file_read(struct sw_rule_reading *r, const char *file, const char *text, size_t length,
    struct sw_rule_file *out)
{
    struct lines l = {.r = r, .out = out, .at = text, .end = text + length};

    out->n = 0;
    l.file = sw_arena_strdup(r->arena, file);
    if (!l.file)
        return sw_fail(r->e, SW_ERR_NOMEM, "no memory for a layout file");
    if (length > SW_RULE_FILE_MAX)
        return sw_fail(r->e, SW_ERR_LIMIT, "%s: expected at most %u bytes, found %zu", file,
            SW_RULE_FILE_MAX, length);
    /* What it returns is the first line without a value, which check_key has refused already. */
    if (ini_parse_stream(next_line, &l, take_value, &l) < 0 && !l.code)
        l.code = sw_fail(r->e, SW_ERR_NOMEM, "no memory for a layout file");
    return l.code ? l.code : check_headers(&l);
}
