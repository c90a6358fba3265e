/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/writer/program.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

struct sw_programs *sw_programs_hold(struct sw_programs *p)
{
    p->refs++;
    return p;
}

void sw_programs_release(struct sw_programs *p)
{
    if (!p || --p->refs > 0)
        return;
    for (uint32_t i = 0; i < p->n; i++)
        free(p->items[i].extents);
    free(p->items);
    sw_arena_clear(&p->arena);
    free(p);
}

void sw_program_table_clear(struct sw_program_table *t)
{
    for (uint32_t i = 0; i < t->received; i++)
        sw_programs_release(t->items[i]);
    free(t->items);
    memset(t, 0, sizeof(*t));
}

static struct sw_programs *programs_new(const struct sw_target *from)
{
    struct sw_programs *p = calloc(1, sizeof(*p));
    struct sw_target *to;

    if (!p)
        return NULL;
    p->refs = 1;
    to = &p->target;
    *to = *from;
    to->engine = sw_arena_strdup(&p->arena, from->engine);
    to->address = sw_arena_strdup(&p->arena, from->address);
    to->unix_path = sw_arena_strdup(&p->arena, from->unix_path);
    to->region_bytes = sw_arena_array(&p->arena, from->n_regions, sizeof(uint64_t));
    if (!to->engine || !to->address || !to->unix_path || !to->region_bytes) {
        sw_programs_release(p);
        return NULL;
    }
    for (uint32_t i = 0; i < from->n_regions; i++)
        to->region_bytes[i] = from->region_bytes[i];
    return p;
}

static int compare(const void *key, const void *item)
{
    const uint32_t target = *(const uint32_t *)key;
    const uint32_t number = (*(struct sw_programs *const *)item)->target.target;

    return target < number ? -1 : target > number;
}

static struct sw_programs *find(const struct sw_program_table *t, uint32_t target)
{
    struct sw_programs **found =
        t->received ? bsearch(&target, t->items, t->received, sizeof(*t->items), compare) : NULL;

    return found ? *found : NULL;
}

/* Targets come in the order of their numbers. */
static bool in_order(const struct sw_program_table *t, const struct sw_target *target)
{
    return !t->received || t->items[t->received - 1]->target.target < target->target;
}

int sw_program_table_targets(
    struct sw_program_table *t, const struct sw_targets *part, struct sw_error *e)
{
    if (part->first == 0) {
        sw_program_table_clear(t);
        t->items = calloc(part->total ? part->total : 1, sizeof(struct sw_programs *));
        if (!t->items)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for %u targets", part->total);
        t->layout_epoch = part->layout_epoch;
        t->membership_epoch = part->membership_epoch;
        t->n = part->total;
    }
    if (part->membership_epoch != t->membership_epoch || part->layout_epoch != t->layout_epoch ||
        part->total != t->n || part->first != t->received || part->n > t->n - t->received)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "target list: parts do not join (part at %u, had %u of %u)", part->first, t->received,
            t->n);
    for (uint32_t i = 0; i < part->n; i++) {
        struct sw_programs *p;

        if (!in_order(t, &part->items[i]))
            return sw_fail(e, SW_ERR_PROTOCOL, "target list: number %u is out of order, or double",
                part->items[i].target);
        p = programs_new(&part->items[i]);
        if (!p)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for target %u", part->first + i);
        t->items[t->received++] = p;
    }
    return 0;
}

static struct sw_program *program_start(
    struct sw_programs *p, const struct sw_write_program *part, struct sw_error *e)
{
    struct sw_program *grown;
    struct sw_extent *extents;

    for (uint32_t i = 0; i < p->n; i++) {
        if (p->items[i].rank == part->rank) {
            sw_fail(e, SW_ERR_PROTOCOL, "two write programs of rank %u for target %u", part->rank,
                part->target);
            return NULL;
        }
    }
    grown = realloc(p->items, (p->n + 1) * sizeof(*grown));
    if (grown)
        p->items = grown;
    extents = calloc(part->total ? part->total : 1, sizeof(*extents));
    if (!grown || !extents) {
        free(extents);
        sw_fail(e, SW_ERR_NOMEM, "no memory for %u extents", part->total);
        return NULL;
    }
    p->items[p->n] = (struct sw_program){.rank = part->rank, .n = part->total, .extents = extents};
    return &p->items[p->n++];
}

int sw_program_table_extents(
    struct sw_program_table *t, const struct sw_write_program *part, struct sw_error *e)
{
    struct sw_programs *p = find(t, part->target);
    struct sw_program *g = NULL;

    if (part->membership_epoch != t->membership_epoch || part->layout_epoch != t->layout_epoch ||
        !p)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "write program for target %u of membership epoch %llu: the target list is of epoch "
            "%llu%s",
            part->target, (unsigned long long)part->membership_epoch,
            (unsigned long long)t->membership_epoch, p ? "" : ", and has no such target");
    if (p->refs > 1) /* a delivery goes by it */
        return sw_fail(e, SW_ERR_PROTOCOL, "write program for target %u, which is in use already",
            part->target);
    if (part->first == 0)
        g = program_start(p, part, e);
    else if (p->n)
        g = &p->items[p->n - 1];
    if (!g)
        return part->first ? sw_fail(e, SW_ERR_PROTOCOL, "write program without a first part")
                           : (e ? e->code : SW_ERR_PROTOCOL);
    if (g->rank != part->rank || part->total != g->n || part->first != g->received ||
        part->n > g->n - g->received)
        return sw_fail(
            e, SW_ERR_PROTOCOL, "write program of rank %u: parts do not join", part->rank);
    for (uint32_t i = 0; i < part->n; i++) {
        g->extents[g->received + i] = part->extents[i];
        g->bytes += part->extents[i].length;
    }
    g->received += part->n;
    return 0;
}

struct sw_programs *sw_program_table_find(
    const struct sw_program_table *t, uint32_t target, struct sw_error *e)
{
    struct sw_programs *p = find(t, target);

    if (t->received != t->n) {
        sw_fail(e, SW_ERR_PROTOCOL, "the target list of membership epoch %llu is not whole",
            (unsigned long long)t->membership_epoch);
        return NULL;
    }
    if (!p) {
        sw_fail(e, SW_ERR_NOT_FOUND, "target %u is not in membership epoch %llu", target,
            (unsigned long long)t->membership_epoch);
        return NULL;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->items[i].received != p->items[i].n) {
            sw_fail(e, SW_ERR_PROTOCOL, "the write program of rank %u for target %u is not whole",
                p->items[i].rank, target);
            return NULL;
        }
    }
    return p;
}
