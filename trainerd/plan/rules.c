/* SPDX-License-Identifier: Apache-2.0 */
/* A layout file with what it includes: sections put together, then parsed. */
#include "trainerd/plan/rules.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "common/error.h"
#include "common/text.h"
#include "trainerd/plan/rules_parse.h"

#define MEMORY_MAX ((size_t)64 << 20)
#define INCLUDE_DEPTH_MAX 8
#define FILE_NAME_MAX 255

struct sections { /* of all files, in their order */
    struct sw_rule_reading r;
    uint32_t n;
    struct sw_rule_section *items[SW_RULE_SECTIONS_MAX];
    struct sw_rule_section *own_layout;
};

/* ---- putting together ---- */

/* Definitions, skipped and derived names of several files are one list; a definition replaces the
 * one of the same name. */
static int merge(
    struct sections *all, struct sw_rule_section *into, const struct sw_rule_section *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t j = s->kind == SW_SECTION_DEFINE ? 0 : into->n;
        int err;

        while (j < into->n && strcmp(into->entries[j].key, s->entries[i].key) != 0)
            j++;
        if (j < into->n) {
            into->entries[j] = s->entries[i];
            continue;
        }
        err = sw_rule_section_add(&all->r, into, s->entries[i]);
        if (err)
            return sw_rule_context(all->r.e, err, s, &s->entries[i]);
    }
    return 0;
}

static bool insert(struct sections *all, uint32_t at, struct sw_rule_section *s)
{
    if (all->n == SW_RULE_SECTIONS_MAX)
        return false;
    memmove(&all->items[at + 1], &all->items[at], (all->n - at) * sizeof(*all->items));
    all->items[at] = s;
    all->n++;
    return true;
}

/* Takes out what the including file replaces; returns the place of the first. */
static uint32_t take_out(struct sections *all, const char *header)
{
    uint32_t n = 0, place = UINT32_MAX;

    for (uint32_t i = 0; i < all->n; i++) {
        if (strcmp(all->items[i]->header, header) == 0)
            place = place == UINT32_MAX ? n : place;
        else
            all->items[n++] = all->items[i];
    }
    all->n = n;
    return place;
}

/* Puts a section of a file where the included ones with the same header are, or at the end. */
static int put_section(struct sections *all, struct sw_rule_section *s)
{
    uint32_t place = UINT32_MAX;

    for (uint32_t i = 0; i < all->n; i++) {
        if (strcmp(all->items[i]->header, s->header) != 0)
            continue;
        if (s->kind != SW_SECTION_TENSOR && s->kind != SW_SECTION_PARAMETER)
            return merge(all, all->items[i], s);
        if (all->items[i]->fresh)
            place = i + 1; /* another one of the same file */
    }
    if (place == UINT32_MAX)
        place = take_out(all, s->header);
    s->fresh = true;
    if (!insert(all, place == UINT32_MAX ? all->n : place, s))
        return sw_fail(all->r.e, SW_ERR_LIMIT, "%s:%u: expected at most %d sections in all files",
            s->file, s->line, SW_RULE_SECTIONS_MAX);
    return 0;
}

static bool read_already(const struct sections *all, const char *file)
{
    for (uint32_t i = 0; i < all->r.n_files; i++)
        if (strcmp(all->r.files[i], file) == 0)
            return true;
    return false;
}

/* Of letters, digits, '_', '-' and '.', the first no '.'. */
static bool is_file_name(const char *file)
{
    const size_t n =
        strspn(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");

    return n > 0 && n <= FILE_NAME_MAX && !file[n] && file[0] != '.';
}

static int read_file(
    struct sections *all, const char *file, const char *text, size_t length, uint32_t depth);

static int include(struct sections *all, const struct sw_rule_section *layout,
    const struct sw_rule_entry *entry, uint32_t depth)
{
    const char *file = entry->value;
    char shown[80], *text = NULL;
    int err = 0;

    if (!is_file_name(file))
        err = sw_fail(all->r.e, SW_ERR_INVALID,
            "expected the name of a file in the same folder, found '%s'",
            sw_text_escape(shown, sizeof(shown), file));
    else if (read_already(all, file))
        return 0; /* its sections are there */
    else if (!all->r.read)
        err = sw_fail(all->r.e, SW_ERR_INVALID, "expected no 'include' here");
    else if (depth == INCLUDE_DEPTH_MAX)
        err = sw_fail(all->r.e, SW_ERR_LIMIT, "expected at most %d files inside each other",
            INCLUDE_DEPTH_MAX);
    else
        err = all->r.read(all->r.arg, file, &text, all->r.e);
    if (err)
        return sw_rule_context(all->r.e, err, layout, entry);
    err = read_file(all, file, text, strnlen(text, (size_t)SW_RULE_FILE_MAX + 1), depth + 1);
    free(text);
    return err;
}

static int include_all(struct sections *all, const struct sw_rule_file *f, uint32_t depth)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const struct sw_rule_section *s = f->sections[i];

        for (uint32_t j = 0; s->kind == SW_SECTION_LAYOUT && j < s->n; j++) {
            const struct sw_rule_entry *entry = &s->entries[j];
            int err = 0;

            if (strcmp(entry->key, "include") == 0)
                err = include(all, s, entry, depth);
            else if (strcmp(entry->key, "architectures") != 0)
                err = sw_rule_context(all->r.e,
                    sw_fail(all->r.e, SW_ERR_INVALID,
                        "no key of such a section: expected architectures or include"),
                    s, entry);
            if (err)
                return err;
        }
    }
    return 0;
}

static int read_file(
    struct sections *all, const char *file, const char *text, size_t length, uint32_t depth)
{
    struct sw_rule_file *f;
    int err;

    if (all->r.n_files == SW_RULE_FILES_MAX)
        return sw_fail(
            all->r.e, SW_ERR_LIMIT, "%s: expected at most %d files", file, SW_RULE_FILES_MAX);
    f = malloc(sizeof(*f));
    if (!f || !(all->r.files[all->r.n_files++] = sw_arena_strdup(all->r.arena, file))) {
        free(f);
        return sw_fail(all->r.e, SW_ERR_NOMEM, "no memory for a layout file");
    }
    err = sw_rule_file_read(&all->r, file, text, length, f);
    if (!err)
        err = include_all(all, f, depth);
    for (uint32_t i = 0; !err && i < f->n; i++) {
        struct sw_rule_section *s = f->sections[i];

        if (s->kind != SW_SECTION_LAYOUT)
            err = put_section(all, s);
        else if (depth == 0)
            all->own_layout = s;
    }
    for (uint32_t i = 0; i < all->n; i++)
        all->items[i]->fresh = false;
    free(f);
    return err;
}

/* ---- parsing ---- */

static int parse_architectures(struct sw_rule_parsing *p, const struct sw_rule_section *layout)
{
    char *at, *save = NULL, *list;

    p->section = layout;
    if (!sw_rule_find(p, "architectures"))
        return 0;
    list = sw_arena_strdup(&p->rules->arena, p->entry->value);
    p->rules->architectures =
        sw_arena_array(&p->rules->arena, strlen(p->entry->value) / 2 + 1, sizeof(const char *));
    if (!list || !p->rules->architectures)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file");
    for (at = strtok_r(list, " \t,", &save); at; at = strtok_r(NULL, " \t,", &save))
        p->rules->architectures[p->rules->n_architectures++] = at;
    return 0;
}

static int compare_definitions(const void *a, const void *b)
{
    return strcmp(
        ((const struct sw_rule_definition *)a)->name, ((const struct sw_rule_definition *)b)->name);
}

static int parse_definitions(struct sw_rule_parsing *p)
{
    struct sw_rules *r = p->rules;

    r->definitions = sw_arena_array(&r->arena, p->section->n, sizeof(*r->definitions));
    if (!r->definitions)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file");
    for (uint32_t i = 0; i < p->section->n; i++) {
        struct sw_rule_definition *d = &r->definitions[r->n_definitions++];
        const char *text;
        int err;

        p->entry = &p->section->entries[i];
        text = p->entry->key;
        err = sw_rule_parse_word(p, &text, "a name of letters, digits and '_'", &d->name);
        if (err || (err = sw_rule_parse_end(p, text)))
            return err;
        text = p->entry->value;
        err = sw_rule_parse_value(p, &text, &d->value);
        if (err || (err = sw_rule_parse_end(p, text)))
            return err;
    }
    qsort(r->definitions, r->n_definitions, sizeof(*r->definitions), compare_definitions);
    return 0;
}

static int parse_patterns(
    struct sw_rule_parsing *p, const char *key, struct sw_pattern **out, uint32_t *n)
{
    const char *const keys[] = {key, NULL};
    int err = sw_rule_check_keys(p, keys);

    *out = sw_arena_array(&p->rules->arena, p->section->n, sizeof(**out));
    if (!*out)
        return sw_fail(p->e, SW_ERR_NOMEM, "no memory for a layout file");
    for (uint32_t i = 0; !err && i < p->section->n; i++) {
        p->entry = &p->section->entries[i];
        err = sw_rule_parse_pattern(p, p->entry->value, NULL, &(*out)[(*n)++]);
    }
    return err;
}

static int parse_section(struct sw_rule_parsing *p, enum sw_section_kind step, bool head)
{
    struct sw_rules *r = p->rules;

    switch (step) {
    case SW_SECTION_DEFINE:
        return parse_definitions(p);
    case SW_SECTION_TENSOR:
        return head ? sw_rule_parse_tensor_head(p, &r->tensors[r->n_tensors++])
                    : sw_rule_parse_tensor(p, &r->tensors[r->n_tensors++]);
    case SW_SECTION_PARAMETER:
        return sw_rule_parse_parameter(p, &r->parameters[r->n_parameters++]);
    case SW_SECTION_SKIP:
        return parse_patterns(p, "tensor", &r->skipped, &r->n_skipped);
    case SW_SECTION_DERIVED:
        return parse_patterns(p, "parameter", &r->derived, &r->n_derived);
    case SW_SECTION_LAYOUT:
        break;
    }
    return 0;
}

static int parse_step(
    struct sw_rule_parsing *p, const struct sections *all, enum sw_section_kind step, bool head)
{
    for (uint32_t i = 0; i < all->n; i++) {
        int err;

        p->section = all->items[i];
        p->entry = NULL;
        if (p->section->kind != step)
            continue;
        err = parse_section(p, step, head);
        if (err)
            return sw_rule_context(p->e, err, p->section, p->entry);
    }
    return 0;
}

/* Definitions first, then the names of tensors, then what uses them. */
static int parse_all(struct sw_rules *r, const struct sections *all, struct sw_error *e)
{
    struct sw_rule_parsing p = {.rules = r, .e = e};
    int err = 0;

    if (all->own_layout && (err = parse_architectures(&p, all->own_layout)))
        return sw_rule_context(e, err, all->own_layout, p.entry);
    r->tensors = sw_arena_array(&r->arena, all->n, sizeof(*r->tensors));
    r->parameters = sw_arena_array(&r->arena, all->n, sizeof(*r->parameters));
    if (!r->tensors || !r->parameters)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a layout file");
    if ((err = parse_step(&p, all, SW_SECTION_DEFINE, false)) ||
        (err = parse_step(&p, all, SW_SECTION_TENSOR, true)))
        return err;
    r->n_tensors = 0;
    if ((err = parse_step(&p, all, SW_SECTION_TENSOR, false)) ||
        (err = parse_step(&p, all, SW_SECTION_PARAMETER, false)) ||
        (err = parse_step(&p, all, SW_SECTION_SKIP, false)))
        return err;
    return parse_step(&p, all, SW_SECTION_DERIVED, false);
}

/* ---- the whole ---- */

int sw_rules_parse(const char *file, const char *text, size_t length, sw_rules_read *read,
    void *arg, struct sw_rules **rules, struct sw_error *e)
{
    struct sw_rules *r = calloc(1, sizeof(*r));
    struct sections *all = calloc(1, sizeof(*all));
    int err;

    if (!r || !all) {
        free(r);
        free(all);
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a layout file");
    }
    r->users = 1;
    sw_arena_init(&r->arena, MEMORY_MAX);
    all->r = (struct sw_rule_reading){.arena = &r->arena, .read = read, .arg = arg, .e = e};
    err = read_file(all, file, text, length, 0);
    if (!err)
        err = parse_all(r, all, e);
    free(all);
    if (err) {
        sw_rules_free(r);
        return err;
    }
    *rules = r;
    return 0;
}

struct sw_rules *sw_rules_keep(const struct sw_rules *r)
{
    struct sw_rules *kept = (struct sw_rules *)r; /* immutable but for this number */

    (void)__atomic_fetch_add(&kept->users, 1, __ATOMIC_RELAXED);
    return kept;
}

void sw_rules_free(struct sw_rules *r)
{
    if (!r || __atomic_sub_fetch(&r->users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    sw_arena_clear(&r->arena);
    free(r);
}

const char *sw_rules_architecture(const struct sw_rules *r, uint32_t i)
{
    return i < r->n_architectures ? r->architectures[i] : NULL;
}

int sw_rule_value_context(
    struct sw_error *e, int code, const struct sw_rule_head *h, const struct sw_rule_value *v)
{
    char header[120];

    sw_text_escape(header, sizeof(header), h->header);
    return sw_error_context(e, code, "%s:%u: [%s] %s", v->file, v->line, header, v->key);
}
