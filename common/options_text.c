/* SPDX-License-Identifier: Apache-2.0 */
/* Texts made from an option table: --help and the dumps. */
#include "common/options_parts.h"

#include <stdlib.h>
#include <string.h>
#include "common/option_value.h"

#define HELP_COLUMN 30 /* where the descriptions start */

/* Writes `text` word by word, the cursor being at `column`; lines after the first are indented. */
static void wrap(FILE *to, const char *text, unsigned column, unsigned indent, unsigned columns)
{
    bool first = true;

    while (*text) {
        const size_t n = strcspn(text, " ");

        if (n > 0 && !first && column + 1 + n > columns) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        if (n > 0) {
            fprintf(to, "%s%.*s", first ? "" : " ", (int)n, text);
            column += (unsigned)n + (first ? 0 : 1);
            first = false;
        }
        text += n + strspn(text + n, " ");
    }
    fputc('\n', to);
}

/* "help (default 1s; 1ms to 1h)" */
static void describe(FILE *to, const struct sw_option *o)
{
    char value[SW_OPTION_TEXT];
    char range[SW_OPTION_TEXT];
    const char *unit = o->unit ? o->unit : "";

    sw_option_default(o, value);
    sw_option_range(o, range);
    fputs(o->help, to);
    if (o->flags & SW_OPTION_REQUIRED)
        fputs(" (required", to);
    else
        fprintf(to, " (default %s%s%s", *value ? value : "none", *unit ? " " : "", unit);
    /* The names of an enum and of a bool stand on the left already. */
    if (*range && o->type != SW_OPTION_ENUM && o->type != SW_OPTION_BOOL)
        fprintf(to, "; %s", range);
    fputc(')', to);
}

static char *description(const struct sw_option *o)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);

    if (!to)
        return NULL;
    describe(to, o);
    if (fclose(to) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static void left_side(FILE *to, char letter, const char *name, const char *metavar, bool is_bool)
{
    char side[2 * SW_OPTION_TEXT];
    int n;

    n = snprintf(side, sizeof(side), "  %c%c%c --%s%s%s%s", letter ? '-' : ' ',
        letter ? letter : ' ', letter ? ',' : ' ', name,
        !metavar  ? ""
        : is_bool ? "[="
                  : " ",
        metavar ? metavar : "", is_bool ? "]" : "");
    fputs(side, to);
    if (n < HELP_COLUMN - 1)
        fprintf(to, "%*s", HELP_COLUMN - n, "");
    else
        fprintf(to, "\n%*s", HELP_COLUMN, "");
}

static bool help_row(FILE *to, const struct sw_option *o, unsigned columns)
{
    char metavar[SW_OPTION_TEXT];
    char *text;

    if (o->heading)
        fprintf(to, "\n%s:\n", o->heading);
    if (o->flags & SW_OPTION_UNDOCUMENTED)
        return true;
    text = description(o);
    if (!text)
        return false;
    left_side(to, o->letter, o->name, sw_option_metavar(o, metavar), o->type == SW_OPTION_BOOL);
    wrap(to, text, HELP_COLUMN, HELP_COLUMN, columns);
    free(text);
    return true;
}

static void help_builtins(FILE *to, const struct sw_program *p, unsigned columns)
{
    fputs(p->count ? "\nIn every program:\n" : "\nOptions:\n", to);
    for (size_t b = 0; b < SW_BUILTIN_COUNT; b++) {
        const struct sw_builtin_row *row = &sw_builtins[b];
        char text[SW_OPTION_TEXT];

        if (!sw_builtin_has_name(p, b))
            continue;
        if (b == SW_BUILTIN_CONFIG)
            snprintf(text, sizeof(text), "%s (default %s/%s.conf, if there is one)", row->help,
                p->config_dir, p->name);
        else
            snprintf(text, sizeof(text), "%s", row->help);
        left_side(
            to, sw_builtin_has_letter(p, b) ? row->letter : 0, row->name, row->metavar, false);
        wrap(to, text, HELP_COLUMN, HELP_COLUMN, columns);
    }
}

static bool help(FILE *to, const struct sw_program *p, unsigned columns)
{
    fprintf(to, "Usage: %s [OPTION]...%s%s\n", p->name, p->operands ? " " : "",
        p->operands ? p->operands : "");
    if (p->about)
        wrap(to, p->about, 0, 0, columns);
    if (p->count && !p->options[0].heading)
        fputs("\nOptions:\n", to);
    for (size_t i = 0; i < p->count; i++)
        if (!help_row(to, &p->options[i], columns))
            return false;
    help_builtins(to, p, columns);
    if (p->config_dir) {
        char text[SW_OPTION_TEXT];

        snprintf(text, sizeof(text),
            "The file has the options as 'name = value' lines below a line [%.60s].", p->name);
        fputc('\n', to);
        wrap(to, text, 0, 0, columns);
    }
    if (p->notes)
        fprintf(to, "\n%s", p->notes);
    return true;
}

/* A '|' ends a cell wherever it stands, unless it is escaped. */
static void cell(FILE *to, const char *text)
{
    for (; *text; text++)
        fprintf(to, *text == '|' ? "\\%c" : "%c", *text);
}

static bool dump_markdown(FILE *to, const struct sw_program *p)
{
    fputs("| Option | Default | Range | Meaning |\n|---|---|---|---|\n", to);
    for (size_t i = 0; i < p->count; i++) {
        const struct sw_option *o = &p->options[i];
        char text[SW_OPTION_TEXT];

        if (o->flags & SW_OPTION_UNDOCUMENTED)
            continue;
        fprintf(to, "| `%s` | ", o->name);
        cell(to, *sw_option_default(o, text) ? text : "none");
        fputs(" | ", to);
        cell(to, sw_option_range(o, text));
        fputs(" | ", to);
        cell(to, o->help);
        if (o->unit)
            fprintf(to, " (%s)", o->unit);
        fputs(" |\n", to);
    }
    return true;
}

static bool dump_text(FILE *to, const struct sw_program *p)
{
    fprintf(to, "NAME\n       %s\n\nDESCRIPTION\n       ", p->name);
    wrap(to, p->about ? p->about : "", 7, 7, 80);
    fputs("\nOPTIONS\n", to);
    for (size_t i = 0; i < p->count; i++) {
        const struct sw_option *o = &p->options[i];
        char metavar[SW_OPTION_TEXT];
        char *text;

        if (o->flags & SW_OPTION_UNDOCUMENTED)
            continue;
        text = description(o);
        if (!text)
            return false;
        fputs("       ", to);
        if (o->letter)
            fprintf(to, "-%c, ", o->letter);
        fprintf(to, "--%s=%s\n              ", o->name, sw_option_metavar(o, metavar));
        wrap(to, text, 14, 14, 80);
        fputc('\n', to);
        free(text);
    }
    return true;
}

/* A file that one can start from: everything is there, as comments. */
static bool dump_ini(FILE *to, const struct sw_program *p)
{
    fprintf(to, "# Options of %s. The values are the defaults.\n[%s]\n", p->name, p->name);
    for (size_t i = 0; i < p->count; i++) {
        const struct sw_option *o = &p->options[i];
        char value[SW_OPTION_TEXT];
        char *text;

        if (o->flags & (SW_OPTION_UNDOCUMENTED | SW_OPTION_NOT_IN_FILE))
            continue;
        text = description(o);
        if (!text)
            return false;
        if (o->heading)
            fprintf(to, "\n# ---- %s ----\n", o->heading);
        fprintf(to, "\n# %s\n#%s = %s\n", text, o->name, sw_option_default(o, value));
        free(text);
    }
    return true;
}

/* Runs one of the writers above into memory. */
static char *finish(FILE *to, char **text, bool good)
{
    if (ferror(to))
        good = false;
    if (fclose(to) != 0 || !good) {
        free(*text);
        return NULL;
    }
    return *text;
}

char *sw_options_help(const struct sw_program *p, unsigned columns)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);

    if (columns < HELP_COLUMN + 20)
        columns = HELP_COLUMN + 20;
    return to ? finish(to, &text, help(to, p, columns)) : NULL;
}

char *sw_options_dump(const struct sw_program *p, enum sw_options_format format)
{
    static bool (*const writers[])(FILE *, const struct sw_program *) = {
        [SW_OPTIONS_MARKDOWN] = dump_markdown,
        [SW_OPTIONS_TEXT] = dump_text,
        [SW_OPTIONS_INI] = dump_ini};
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);

    return to ? finish(to, &text, writers[format](to, p)) : NULL;
}
