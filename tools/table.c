/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "common/text.h"

#define COLUMNS_MAX 64
#define CELL_MAX 1024

struct sw_table {
    char **cells; /* row after row, COLUMNS_MAX each; NULL = empty */
    size_t rows, room;
    unsigned column; /* of the next cell */
    bool failed;     /* no memory: what is there is printed */
};

struct sw_table *sw_table_new(void)
{
    return calloc(1, sizeof(struct sw_table));
}

static bool make_room(struct sw_table *t)
{
    const size_t room = t->room ? 2 * t->room : 16;
    char **cells;

    if (t->rows < t->room)
        return true;
    cells = reallocarray(t->cells, room, COLUMNS_MAX * sizeof(*cells));
    if (!cells)
        return false;
    memset(cells + t->room * COLUMNS_MAX, 0, (room - t->room) * COLUMNS_MAX * sizeof(*cells));
    t->cells = cells;
    t->room = room;
    return true;
}

void sw_table_cell(struct sw_table *t, const char *text)
{
    char shown[CELL_MAX];

    if (!t || t->failed || t->column == COLUMNS_MAX)
        return;
    t->failed = !make_room(t);
    if (!t->failed)
        t->cells[t->rows * COLUMNS_MAX + t->column++] =
            strdup(sw_text_escape(shown, sizeof(shown), text ? text : ""));
}

void sw_table_row(struct sw_table *t)
{
    if (!t || t->failed || !make_room(t))
        return;
    t->rows++;
    t->column = 0;
}

/* Characters of UTF-8 text, good enough for columns. */
static size_t width(const char *text)
{
    size_t n = 0;

    for (; text && *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_row(char *const *row, const size_t *widths, unsigned indent, FILE *out)
{
    unsigned last = 0;

    for (unsigned c = 0; c < COLUMNS_MAX; c++)
        if (width(row[c]))
            last = c;
    fprintf(out, "%*s", (int)indent, "");
    for (unsigned c = 0; c <= last; c++) {
        fputs(row[c] ? row[c] : "", out);
        if (c < last)
            fprintf(out, "%*s", (int)(widths[c] - width(row[c]) + 2), "");
    }
    fputc('\n', out);
}

void sw_table_print(struct sw_table *t, unsigned indent, FILE *out)
{
    size_t widths[COLUMNS_MAX] = {0};

    if (!t)
        return;
    for (size_t i = 0; i < t->rows * COLUMNS_MAX; i++)
        if (width(t->cells[i]) > widths[i % COLUMNS_MAX])
            widths[i % COLUMNS_MAX] = width(t->cells[i]);
    for (size_t r = 0; r < t->rows; r++)
        print_row(t->cells + r * COLUMNS_MAX, widths, indent, out);
    for (size_t i = 0; i < t->room * COLUMNS_MAX; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}
