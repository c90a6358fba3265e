/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/pattern.h"

#include <string.h>
#include <xxhash.h>

#define MARK '\x01'
#define ANY (-2) /* a slot that any number fits */
#define VALUE_DIGITS 7

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* ---- parsing ---- */

struct parsing {
    const char *const *variables;
    uint32_t n;
    bool any;
    uint32_t seen;  /* bit set of variables */
    size_t longest; /* bytes of the longest name it stands for */
    char skeleton[SW_NAME_MAX + 1];
};

static const char *take_variable(struct parsing *s, const char **p, struct sw_pattern_slot *slot)
{
    const char *name = *p + 1, *end = name;

    while (is_word(*end))
        end++;
    if (end == name || *end != '}')
        return "a name and a '}' after '{'";
    *p = end + 1;
    if (is_digit(**p) || **p == '{')
        return "no digit and no other variable directly after a variable";
    for (uint32_t i = 0; i < s->n; i++) {
        if (strlen(s->variables[i]) != (size_t)(end - name) ||
            strncmp(s->variables[i], name, (size_t)(end - name)) != 0)
            continue;
        if (s->seen & 1u << i)
            return "each variable once in a name";
        s->seen |= 1u << i;
        s->longest += VALUE_DIGITS;
        slot->variable = (int)i;
        return NULL;
    }
    slot->variable = ANY;
    return s->any ? NULL : "only variables of `for` in {}";
}

static const char *take_slot(
    struct sw_arena *a, struct parsing *s, const char **p, struct sw_pattern *out)
{
    struct sw_pattern_slot *slot = &out->slots[out->n_slots];
    const char *start = *p;

    if (out->n_slots == SW_PATTERN_SLOTS)
        return "at most 8 numbers in a name";
    out->n_slots++;
    if (*start == '{')
        return take_variable(s, p, slot);
    while (is_digit(**p))
        (*p)++;
    if (**p == '{')
        return "no digit directly before a variable";
    slot->variable = -1;
    slot->n_digits = (uint32_t)(*p - start);
    s->longest += slot->n_digits;
    slot->digits = sw_arena_strndup(a, start, slot->n_digits);
    return slot->digits ? NULL : "more memory";
}

static void finish(struct sw_pattern *out)
{
    out->hash = XXH3_64bits(out->skeleton, out->length);
}

const char *sw_pattern_parse(struct sw_arena *a, const char *text, const char *const *variables,
    uint32_t n, bool any, struct sw_pattern *out)
{
    struct parsing s = {.variables = variables, .n = n, .any = any};
    const char *p = text, *wrong = NULL;

    *out = (struct sw_pattern){0};
    if (!*text)
        return "a name";
    while (*p && !wrong) {
        if (*p == '{' || is_digit(*p)) {
            s.skeleton[out->length++] = MARK;
            wrong = take_slot(a, &s, &p, out);
        } else if (*p <= ' ' || *p > '~' || *p == '}') {
            wrong = "a name of printable ASCII, with '}' only after '{'";
        } else {
            s.skeleton[out->length++] = *p++;
            s.longest++;
        }
        if (!wrong && (s.longest > SW_NAME_MAX || out->length >= SW_NAME_MAX))
            wrong = "a name of at most 512 bytes";
    }
    if (wrong)
        return wrong;
    out->text = sw_arena_strdup(a, text);
    out->skeleton = sw_arena_strndup(a, s.skeleton, out->length);
    if (!out->text || !out->skeleton)
        return "more memory";
    finish(out);
    return NULL;
}

bool sw_pattern_extend(
    struct sw_arena *a, const struct sw_pattern *p, const char *suffix, struct sw_pattern *out)
{
    const size_t more = strlen(suffix), written = strlen(p->text);
    char *skeleton, *text;

    if (more + p->length + (size_t)SW_PATTERN_SLOTS * VALUE_DIGITS > SW_NAME_MAX)
        return false; /* what is printed could be cut */
    skeleton = sw_arena_alloc(a, p->length + more + 1);
    text = sw_arena_alloc(a, written + more + 1);
    if (!skeleton || !text)
        return false;
    memcpy(skeleton, p->skeleton, p->length);
    memcpy(skeleton + p->length, suffix, more + 1);
    memcpy(text, p->text, written);
    memcpy(text + written, suffix, more + 1);
    *out = *p;
    out->text = text;
    out->skeleton = skeleton;
    out->length = p->length + (uint32_t)more;
    finish(out);
    return true;
}

bool sw_pattern_holds(const struct sw_pattern *p, int variable)
{
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (p->slots[i].variable == variable)
            return true;
    return false;
}

/* ---- printing ---- */

static size_t print_number(int64_t value, char *out)
{
    char digits[24];
    size_t n = 0;
    uint64_t v = value < 0 ? 0 : (uint64_t)value;

    do
        digits[n++] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    for (size_t i = 0; i < n; i++)
        out[i] = digits[n - 1 - i];
    return n;
}

size_t sw_pattern_print(const struct sw_pattern *p, const int64_t *values, char *name)
{
    char number[24];
    size_t n = 0, slot = 0;

    for (uint32_t i = 0; i < p->length; i++) {
        const char *from = &p->skeleton[i];
        size_t length = 1;

        if (*from == MARK) {
            const struct sw_pattern_slot *s = &p->slots[slot++];

            from = s->variable < 0 ? s->digits : number;
            length = s->variable < 0 ? s->n_digits : print_number(values[s->variable], number);
        }
        if (length > SW_NAME_MAX - n)
            length = SW_NAME_MAX - n;
        if (length)
            memcpy(name + n, from, length);
        n += length;
    }
    name[n] = '\0';
    return n;
}

/* ---- matching ---- */

bool sw_name_read(const char *name, size_t length, struct sw_name *out)
{
    size_t i = 0;

    out->n_slots = out->length = 0;
    if (length > SW_NAME_MAX)
        return false;
    while (i < length) {
        const size_t start = i;

        if (name[i] <= ' ' || name[i] > '~')
            return false;
        if (!is_digit(name[i])) {
            out->skeleton[out->length++] = name[i++];
            continue;
        }
        while (i < length && is_digit(name[i]))
            i++;
        if (out->n_slots == SW_PATTERN_SLOTS)
            return false;
        out->digits[out->n_slots] = name + start;
        out->n_digits[out->n_slots++] = (uint32_t)(i - start);
        out->skeleton[out->length++] = MARK;
    }
    out->hash = XXH3_64bits(out->skeleton, out->length);
    return true;
}

/* A number as a pattern prints it: no zero in front, not too large. */
static bool read_number(const char *digits, uint32_t n, int64_t *value)
{
    int64_t v = 0;

    if (n > VALUE_DIGITS || (n > 1 && digits[0] == '0'))
        return false;
    for (uint32_t i = 0; i < n; i++)
        v = v * 10 + (digits[i] - '0');
    *value = v;
    return true;
}

bool sw_pattern_match(const struct sw_pattern *p, const struct sw_name *name, int64_t *values)
{
    if (p->hash != name->hash || p->length != name->length || p->n_slots != name->n_slots ||
        memcmp(p->skeleton, name->skeleton, p->length) != 0)
        return false;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const struct sw_pattern_slot *s = &p->slots[i];
        int64_t value;

        if (s->variable == -1) {
            if (s->n_digits != name->n_digits[i] ||
                memcmp(s->digits, name->digits[i], s->n_digits) != 0)
                return false;
            continue;
        }
        if (!read_number(name->digits[i], name->n_digits[i], &value))
            return false;
        if (s->variable >= 0)
            values[s->variable] = value;
    }
    return true;
}

/* ---- many ---- */

bool sw_pattern_index_init(struct sw_pattern_index *x, struct sw_arena *a, uint32_t capacity)
{
    uint32_t size = 16;

    while (size < capacity && size < 1u << 30)
        size *= 2;
    *x = (struct sw_pattern_index){.size = size};
    x->items = sw_arena_array(a, capacity, sizeof(const struct sw_pattern *));
    x->next = sw_arena_array(a, capacity, sizeof(*x->next));
    x->first = sw_arena_array(a, size, sizeof(*x->first));
    x->last = sw_arena_array(a, size, sizeof(*x->last));
    return x->items && x->next && x->first && x->last;
}

void sw_pattern_index_add(struct sw_pattern_index *x, const struct sw_pattern *p)
{
    const uint32_t bucket = (uint32_t)p->hash & (x->size - 1), i = x->n++;

    x->items[i] = p;
    x->next[i] = 0;
    if (x->first[bucket])
        x->next[x->last[bucket] - 1] = i + 1;
    else
        x->first[bucket] = i + 1;
    x->last[bucket] = i + 1;
}

uint32_t sw_pattern_index_find(
    const struct sw_pattern_index *x, const struct sw_name *name, uint32_t after, int64_t *values)
{
    uint32_t i =
        after == UINT32_MAX ? x->first[(uint32_t)name->hash & (x->size - 1)] : x->next[after];

    for (; i; i = x->next[i - 1])
        if (sw_pattern_match(x->items[i - 1], name, values))
            return i - 1;
    return UINT32_MAX;
}
