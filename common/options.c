/* SPDX-License-Identifier: Apache-2.0 */
#include "common/options_parts.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "common/error.h"
#include "common/option_value.h"
#include "common/text.h"

#define LONG_BASE 256 /* getopt values from here on: row of the table, then built-ins */

const struct sw_builtin_row sw_builtins[SW_BUILTIN_COUNT] = {
    [SW_BUILTIN_CONFIG] = {"config", 0, "PATH", "read this file of options"},
    [SW_BUILTIN_HELP] = {"help", 'h', NULL, "print this text"},
    [SW_BUILTIN_VERSION] = {"version", 'V', NULL, "print the program's version"},
    [SW_BUILTIN_DUMP] = {"dump-options", 0, "markdown|text|ini", "print the table of options"},
};

/* What the command line says, before anything of it is applied. */
struct given {
    const char **values; /* for each option: the last value, NULL = not given */
    const char *config;
    const char *dump;
    bool help, version;
};

static bool same_name(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a == '_' ? '-' : *a) != (*b == '_' ? '-' : *b))
            return false;
    return *a == *b;
}

const struct sw_option *sw_options_find(const struct sw_program *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (same_name(p->options[i].name, name))
            return &p->options[i];
    return NULL;
}

static const struct sw_option *find_letter(const struct sw_program *p, int letter)
{
    for (size_t i = 0; i < p->count; i++)
        if (letter && p->options[i].letter == letter)
            return &p->options[i];
    return NULL;
}

bool sw_builtin_has_name(const struct sw_program *p, enum sw_builtin b)
{
    if (b == SW_BUILTIN_CONFIG && !p->config_dir)
        return false;
    return !sw_options_find(p, sw_builtins[b].name);
}

bool sw_builtin_has_letter(const struct sw_program *p, enum sw_builtin b)
{
    return sw_builtins[b].letter && !find_letter(p, sw_builtins[b].letter);
}

/* ---- the table itself ---- */

static const char *check_size(const struct sw_option *o)
{
    const size_t n = o->size;

    switch (o->type) {
    case SW_OPTION_STRING:
    case SW_OPTION_PATH:
        return n == sizeof(char *) ? NULL : "its field is no char *";
    case SW_OPTION_HOST_PORT:
        return n == sizeof(struct sw_host_port) ? NULL : "its field is no struct sw_host_port";
    case SW_OPTION_BOOL:
        return n == sizeof(bool) ? NULL : "its field is no bool";
    case SW_OPTION_ENUM:
        return n == sizeof(int) ? NULL : "its field is no int";
    default:
        if (n != sizeof(uint16_t) && n != sizeof(uint32_t) && n != sizeof(uint64_t))
            return "its field is no unsigned number";
        return n < sizeof(uint64_t) && o->max >> (8 * n) ? "its field is too small for its range"
                                                         : NULL;
    }
}

static const char *check_default(const struct sw_option *o)
{
    size_t names = 0;

    switch (o->type) {
    case SW_OPTION_STRING:
    case SW_OPTION_PATH:
        return NULL;
    case SW_OPTION_HOST_PORT:
        return o->number <= 65535 ? NULL : "its port is over 65535";
    case SW_OPTION_BOOL:
        return o->number <= 1 ? NULL : "its default is neither 0 nor 1";
    case SW_OPTION_ENUM:
        while (o->names && o->names[names])
            names++;
        return o->number < names ? NULL : "its default is none of its names";
    default:
        return o->number >= o->min && o->number <= o->max ? NULL : "its default is out of range";
    }
}

static const char *check_row(const struct sw_program *p, const struct sw_option *o)
{
    const char *wrong;

    if (!o->name || !*o->name ||
        strspn(o->name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(o->name))
        return "its name is not lower case words joined by dashes";
    if (!o->help)
        return "it has no help";
    if (sw_options_find(p, o->name) != o || (o->letter && find_letter(p, o->letter) != o))
        return "its name or letter is there twice";
    wrong = check_size(o);
    return wrong ? wrong : check_default(o);
}

int sw_options_check(const struct sw_program *p, struct sw_error *e)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct sw_option *o = &p->options[i];
        const char *wrong = check_row(p, o);

        if (wrong)
            return sw_fail(e, SW_ERR_INVALID, "option table of %s, row %zu (%s): %s", p->name, i,
                o->name ? o->name : "no name", wrong);
    }
    return 0;
}

/* ---- the command line ---- */

/* Arrays for getopt_long: each long option in both spellings. */
struct spelling {
    struct option *longs;
    char *shorts;
    char *names; /* the spellings with underscores */
};

static void spelling_clear(struct spelling *s)
{
    free(s->longs);
    free(s->shorts);
    free(s->names);
}

static void add_long(
    struct spelling *s, size_t *n, char **names, const char *name, int has_arg, int val)
{
    s->longs[(*n)++] = (struct option){name, has_arg, NULL, val};
    if (strchr(name, '-')) {
        char *copy = *names;

        *names = stpcpy(copy, name) + 1;
        for (char *c = copy; *c; c++)
            if (*c == '-')
                *c = '_';
        s->longs[(*n)++] = (struct option){copy, has_arg, NULL, val};
    }
}

static int spelling_make(const struct sw_program *p, struct spelling *s, struct sw_error *e)
{
    const size_t rows = p->count + SW_BUILTIN_COUNT;
    size_t bytes = 0;
    size_t n = 0;
    char *at;
    char *names;

    for (size_t i = 0; i < p->count; i++)
        bytes += strlen(p->options[i].name) + 1;
    for (size_t b = 0; b < SW_BUILTIN_COUNT; b++)
        bytes += strlen(sw_builtins[b].name) + 1;
    s->longs = calloc(2 * rows + 1, sizeof(*s->longs));
    s->shorts = calloc(1, 2 * rows + 3);
    s->names = calloc(1, bytes);
    if (!s->longs || !s->shorts || !s->names) {
        spelling_clear(s);
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu options", rows);
    }
    names = s->names;
    at = stpcpy(s->shorts, p->flags & SW_PROGRAM_STOP_AT_OPERAND ? "+:" : ":");
    for (size_t i = 0; i < p->count; i++) {
        const struct sw_option *o = &p->options[i];
        const bool is_bool = o->type == SW_OPTION_BOOL;

        add_long(s, &n, &names, o->name, is_bool ? optional_argument : required_argument,
            LONG_BASE + (int)i);
        if (o->letter)
            *at++ = o->letter;
        if (o->letter && !is_bool)
            *at++ = ':';
    }
    for (size_t b = 0; b < SW_BUILTIN_COUNT; b++) {
        if (sw_builtin_has_name(p, b))
            add_long(s, &n, &names, sw_builtins[b].name,
                sw_builtins[b].metavar ? required_argument : no_argument,
                LONG_BASE + (int)(p->count + b));
        if (sw_builtin_has_letter(p, b))
            *at++ = sw_builtins[b].letter;
    }
    return 0;
}

static int refuse_argument(const struct sw_program *p, int c, char **argv, struct sw_error *e)
{
    const char *word = argv[optind - 1];
    char shown[128];
    char expected[SW_OPTION_TEXT];
    const struct sw_option *o = optopt >= LONG_BASE && (size_t)(optopt - LONG_BASE) < p->count
                                    ? &p->options[optopt - LONG_BASE]
                                    : find_letter(p, optopt);

    if (c == ':' && o)
        return sw_fail(
            e, SW_ERR_INVALID, "--%s: expected %s", o->name, sw_option_expected(o, expected));
    if (c == ':')
        return sw_fail(
            e, SW_ERR_INVALID, "%s: expected a value", sw_text_escape(shown, sizeof(shown), word));
    if (optopt >= LONG_BASE)
        return sw_fail(e, SW_ERR_INVALID, "'%s': expected no value",
            sw_text_escape(shown, sizeof(shown), word));
    if (optopt > 0) {
        const char letter[2] = {(char)optopt, '\0'};

        return sw_fail(e, SW_ERR_INVALID, "unknown option '-%s'",
            sw_text_escape(shown, sizeof(shown), letter));
    }
    return sw_fail(e, SW_ERR_INVALID, "unknown or ambiguous option '%s'",
        sw_text_escape(shown, sizeof(shown), word));
}

static void take_builtin(struct given *g, enum sw_builtin b)
{
    switch (b) {
    case SW_BUILTIN_CONFIG:
        g->config = optarg;
        break;
    case SW_BUILTIN_HELP:
        g->help = true;
        break;
    case SW_BUILTIN_VERSION:
        g->version = true;
        break;
    case SW_BUILTIN_DUMP:
        g->dump = optarg;
        break;
    }
}

/* Which row or built-in getopt's value stands for: rows first, then built-ins. */
static size_t row_of(const struct sw_program *p, int c)
{
    const struct sw_option *o = c < LONG_BASE ? find_letter(p, c) : NULL;

    if (c >= LONG_BASE)
        return (size_t)(c - LONG_BASE);
    if (o)
        return (size_t)(o - p->options);
    return p->count + (c == 'h' ? SW_BUILTIN_HELP : SW_BUILTIN_VERSION);
}

static int scan(const struct sw_program *p, int argc, char **argv, struct given *g, int *first,
    struct sw_error *e)
{
    struct spelling s = {0};
    char shown[128];
    int c;
    int code = spelling_make(p, &s, e);

    if (code)
        return code;
    optind = 0; /* starts anew, GNU style */
    opterr = 0;
    while (code == 0 && (c = getopt_long(argc, argv, s.shorts, s.longs, NULL)) != -1) {
        size_t row;

        if (c == '?' || c == ':') {
            code = refuse_argument(p, c, argv, e);
            break;
        }
        row = row_of(p, c);
        if (row >= p->count)
            take_builtin(g, (enum sw_builtin)(row - p->count));
        else
            g->values[row] = optarg ? optarg : "yes";
    }
    spelling_clear(&s);
    if (code == 0 && optind < argc && !p->operands && !g->help && !g->version)
        code = sw_fail(e, SW_ERR_INVALID, "unexpected argument '%s'",
            sw_text_escape(shown, sizeof(shown), argv[optind]));
    *first = optind;
    return code;
}

/* ---- putting it together ---- */

/* The file to read; NULL with success = the default one, which is not there. */
static int open_file(
    const struct sw_program *p, const char *named, char **path, FILE **stream, struct sw_error *e)
{
    struct stat st;
    int code = 0;

    *stream = NULL;
    if (named)
        *path = strdup(named);
    else if (asprintf(path, "%s/%s.conf", p->config_dir, p->name) < 0)
        *path = NULL;
    if (!*path)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for the name of the configuration file");
    *stream = fopen(*path, "re");
    if (*stream && fstat(fileno(*stream), &st) == 0 && S_ISDIR(st.st_mode)) {
        code = sw_fail(
            e, SW_ERR_INVALID, "configuration '%s': expected a file, not a directory", *path);
        fclose(*stream);
        *stream = NULL;
    } else if (!*stream && (named || (errno != ENOENT && errno != ENOTDIR))) {
        code = sw_fail_errno(e, SW_ERR_IO, errno, "configuration '%s'", *path);
    }
    if (!*stream) {
        free(*path);
        *path = NULL;
    }
    return code;
}

static int apply_file(const struct sw_program *p, const struct given *g, void *config, char **path,
    struct sw_error *e)
{
    FILE *stream;
    int code;

    *path = NULL;
    if (!p->config_dir && !g->config)
        return 0;
    code = open_file(p, g->config, path, &stream, e);
    if (code || !stream)
        return code;
    code = sw_options_read(p, stream, *path, config, e);
    fclose(stream);
    if (code) {
        free(*path);
        *path = NULL;
    }
    return code;
}

static int apply_command_line(
    const struct sw_program *p, const struct given *g, void *config, struct sw_error *e)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct sw_option *o = &p->options[i];
        int code = g->values[i] ? sw_option_set(o, g->values[i], config, e) : 0;

        if (code)
            return sw_error_context(e, code, "--%s", o->name);
        if (o->flags & SW_OPTION_REQUIRED && !*(char **)((char *)config + o->offset))
            return sw_fail(e, SW_ERR_INVALID, "--%s is required", o->name);
    }
    return 0;
}

static int apply(const struct sw_program *p, const struct given *g, void *config,
    struct sw_options_outcome *out, struct sw_error *e)
{
    size_t done = 0;
    int code = 0;

    for (; done < p->count && code == 0; done++)
        code = sw_option_set_default(&p->options[done], config, e);
    if (code == 0)
        code = apply_file(p, g, config, &out->config_path, e);
    if (code == 0)
        code = apply_command_line(p, g, config, e);
    if (code) {
        for (size_t i = 0; i < done; i++)
            sw_option_free(&p->options[i], config);
        sw_options_outcome_clear(out);
    }
    return code;
}

/* --help, --version, --dump-options; sets out->text if there is something to show. */
static int show(const struct sw_program *p, const struct given *g, unsigned columns,
    struct sw_options_outcome *out, struct sw_error *e)
{
    static const char *const formats[] = {"markdown", "text", "ini"};
    char shown[64];

    if (g->help) {
        out->text = sw_options_help(p, columns);
    } else if (g->version) {
        if (asprintf(&out->text, "%s %s\n", p->name, p->version) < 0)
            out->text = NULL;
    } else if (g->dump) {
        size_t i = 0;

        while (i < 3 && strcmp(formats[i], g->dump) != 0)
            i++;
        if (i == 3)
            return sw_fail(e, SW_ERR_INVALID,
                "--dump-options: '%s': expected one of markdown, text, ini",
                sw_text_escape(shown, sizeof(shown), g->dump));
        out->text = sw_options_dump(p, (enum sw_options_format)i);
    } else {
        return 0;
    }
    return out->text ? 0 : sw_fail(e, SW_ERR_NOMEM, "no memory for the text");
}

static unsigned terminal_columns(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col < 60 ? 60 : size.ws_col > 120 ? 120 : size.ws_col;
}

int sw_options_parse(const struct sw_program *p, int argc, char **argv, void *config,
    struct sw_options_outcome *out, struct sw_error *e)
{
    struct given g = {0};
    struct sw_options_outcome result = {0};
    int code = sw_options_check(p, e);

    if (code)
        return code;
    g.values = calloc(p->count ? p->count : 1, sizeof(*g.values));
    if (!g.values)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for %zu options", p->count);
    code = scan(p, argc, argv, &g, &result.first, e);
    if (code == 0)
        code = show(p, &g, terminal_columns(), &result, e);
    if (code == 0 && !result.text)
        code = apply(p, &g, config, &result, e);
    free((void *)g.values);
    if (code == 0)
        *out = result;
    return code;
}

int sw_options_main(
    const struct sw_program *p, int argc, char **argv, void *config, struct sw_options_outcome *out)
{
    struct sw_error e = {0};
    int failed;

    if (sw_options_parse(p, argc, argv, config, out, &e) != 0) {
        fprintf(stderr, "%s: %s\n", p->name, e.text);
        return 2;
    }
    if (!out->text)
        return -1;
    failed = fputs(out->text, stdout) == EOF || fflush(stdout) != 0;
    sw_options_outcome_clear(out);
    return failed ? 1 : 0;
}

void sw_options_free(const struct sw_program *p, void *config)
{
    for (size_t i = 0; config && i < p->count; i++)
        sw_option_free(&p->options[i], config);
}

void sw_options_outcome_clear(struct sw_options_outcome *out)
{
    free(out->text);
    free(out->config_path);
    out->text = NULL;
    out->config_path = NULL;
}
