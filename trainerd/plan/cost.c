/* SPDX-License-Identifier: Apache-2.0 */
#include "trainerd/plan/cost.h"

#include <stdlib.h>

#include "common/error.h"
#include "trainerd/plan/bound.h"
#include "trainerd/plan/layout.h"

struct maker {
    const struct sw_layout *l;
    const struct sw_writes *w;
    const struct sw_plan_rank *ranks;
    const struct sw_plan_target *targets;
    const struct sw_machine *m;
    struct sw_cost *c;
    struct sw_error *e;
};

static int no_memory(struct maker *k)
{
    return sw_fail(k->e, SW_ERR_NOMEM, "no memory to tell what a plan costs");
}

/* ---- places ---- */

static int place_compare(const void *a, const void *b)
{
    const struct sw_cost_place *x = a, *y = b;

    if (x->host != y->host)
        return x->host < y->host ? -1 : 1;
    return x->nic < y->nic ? -1 : x->nic > y->nic;
}

/* Adds up ranks by NIC, or by host alone (their nic is 0 then). */
static struct sw_cost_place *add_up(
    const struct sw_cost_place *from, uint32_t n, bool by_host, uint32_t *out_n)
{
    struct sw_cost_place *p = calloc((size_t)n + 1, sizeof(*p));
    uint32_t used = 0;

    if (!p)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        p[i] = from[i];
        p[i].nic = by_host ? 0 : from[i].nic;
    }
    qsort(p, n, sizeof(*p), place_compare);
    for (uint32_t i = 0; i < n; i++) {
        if (used && !place_compare(&p[used - 1], &p[i])) {
            p[used - 1].replica += p[i].replica;
            p[used - 1].staged += p[i].staged;
            p[used - 1].moved += p[i].moved;
            p[used - 1].pairs += p[i].pairs;
        } else {
            p[used++] = p[i];
        }
    }
    *out_n = used;
    return p;
}

static int count_moves(struct maker *k, uint32_t n_ranks, uint32_t n_targets)
{
    struct sw_cost *c = k->c;

    c->n_ranks = n_ranks;
    c->n_targets = n_targets;
    c->ranks = calloc((size_t)n_ranks + 1, sizeof(*c->ranks));
    c->targets = calloc((size_t)n_targets + 1, sizeof(*c->targets));
    if (!c->ranks || !c->targets)
        return no_memory(k);
    for (uint32_t i = 0; i < n_ranks; i++)
        c->ranks[i] = (struct sw_cost_place){.host = k->ranks[i].host, .nic = k->ranks[i].nic};
    for (uint32_t i = 0; i < n_targets; i++)
        c->targets[i] =
            (struct sw_cost_place){.host = k->targets[i].host, .nic = k->targets[i].nic};
    c->pairs = sw_writes_count(k->w);
    for (uint32_t i = 0; i < c->pairs; i++) {
        const struct sw_pair *p = sw_writes_pair(k->w, i);

        c->ranks[p->rank].moved += p->bytes;
        c->ranks[p->rank].pairs++;
        c->targets[p->target].moved += p->bytes;
        c->targets[p->target].pairs++;
        c->moved += p->bytes;
    }
    return 0;
}

static int count_places(struct maker *k)
{
    struct sw_cost *c = k->c;

    /* What is there already is sw_cost_clear's to free; the analyser does not follow it there. */
    c->source_nics = add_up(/* NOLINT(clang-analyzer-unix.Malloc) */
        c->ranks, c->n_ranks, false, &c->n_source_nics);
    c->source_hosts = add_up(c->ranks, c->n_ranks, true, &c->n_source_hosts);
    c->target_nics = add_up(c->targets, c->n_targets, false, &c->n_target_nics);
    c->target_hosts = add_up(c->targets, c->n_targets, true, &c->n_target_hosts);
    return c->source_nics && c->source_hosts && c->target_nics && c->target_hosts ? 0
                                                                                  : no_memory(k);
}

/* ---- tiles and block maxima ---- */

static void count_tiles(struct maker *k)
{
    const struct sw_compact *p = &k->l->c;

    for (uint32_t i = 0; i < k->c->n_ranks; i++)
        k->c->ranks[i].replica = p->replica_bytes[i];
    k->c->waves = 1;
    for (uint32_t r = 0; r < p->n_runs; r++) {
        const struct sw_split *split = &p->splits[p->runs[r].split];

        if (p->runs[r].wave >= k->c->waves)
            k->c->waves = p->runs[r].wave + 1;

        for (uint32_t i = 0; i < split->n; i++) {
            const struct sw_cell *cell = &p->cells[split->first + i];

            k->c->ranks[cell->rank].staged += cell->bytes * p->runs[r].n;
            k->c->distinct += cell->bytes * p->runs[r].n;
        }
    }
}

/* Blocks of rows [lo, lo + len) of a dimension; `edges`: how many of them reach past it. */
static uint64_t blocks(uint64_t lo, uint64_t len, uint64_t block)
{
    return len ? (lo + len - 1) / block - lo / block + 1 : 0;
}

/* Maxima of the blocks of a cell that other cells have a part of, by the two last dimensions. */
static uint64_t shared_blocks(
    const struct sw_format *f, const struct sw_box *slab, const struct sw_box *cell)
{
    const uint32_t n = slab->ndim;
    uint64_t outer = 1, all = 1, inside = 1;

    for (uint32_t d = 0; d < n; d++) {
        const uint64_t lo = slab->lo[d] + cell->lo[d], end = lo + cell->len[d];
        const uint64_t slab_end = slab->lo[d] + slab->len[d];
        const uint64_t block = d + 2 == n ? f->block[0] : f->block[1];
        uint64_t first, last;

        if (d + 2 < n) {
            outer *= cell->len[d];
            continue;
        }
        all *= blocks(lo, cell->len[d], block);
        first = (lo + block - 1) / block;
        last = end == slab_end ? (end + block - 1) / block : end / block;
        inside *= last > first ? last - first : 0;
    }
    return outer * (all - (inside < all ? inside : all));
}

static void count_maxima(struct maker *k)
{
    const struct sw_compact *p = &k->l->c;

    for (uint32_t s = 0; s < p->n_slabs; s++) {
        const struct sw_slab *slab = &p->slabs[s];
        const struct sw_format *f = &p->formats[slab->format];
        const struct sw_split *split = &p->splits[slab->split];

        if (f->transform != SW_TRANSFORM_FP8_VALUES || split->n < 2)
            continue;
        for (uint32_t i = 0; i < split->n; i++)
            k->c->maxima += shared_blocks(f, &p->boxes[slab->box], &p->cells[split->first + i].box);
    }
}

/* ---- times ---- */

static uint64_t most(const struct sw_cost_place *p, uint32_t n, bool staged)
{
    uint64_t top = 0;

    for (uint32_t i = 0; i < n; i++) {
        const uint64_t v = staged ? p[i].staged : p[i].moved;

        top = v > top ? v : top;
    }
    return top;
}

static void take(double seconds, enum sw_limit limit, double *most_seconds, enum sw_limit *which)
{
    if (seconds > *most_seconds) {
        *most_seconds = seconds;
        *which = limit;
    }
}

static void predict(struct sw_cost *c, const struct sw_machine *m)
{
    double *s = &c->stage_seconds, *p = &c->publish_seconds;

    take((double)most(c->ranks, c->n_ranks, true) / m->stage, SW_LIMIT_STAGE, s, &c->stage_limit);
    take((double)most(c->source_hosts, c->n_source_hosts, true) / m->host, SW_LIMIT_SOURCE_HOST, s,
        &c->stage_limit);
    c->busiest = most(c->source_nics, c->n_source_nics, false);
    take((double)c->busiest / m->nic, SW_LIMIT_SOURCE_NIC, p, &c->publish_limit);
    take((double)most(c->source_hosts, c->n_source_hosts, false) / m->host, SW_LIMIT_SOURCE_HOST, p,
        &c->publish_limit);
    take((double)most(c->target_nics, c->n_target_nics, false) / m->nic, SW_LIMIT_TARGET_NIC, p,
        &c->publish_limit);
    take((double)most(c->targets, c->n_targets, false) / m->pcie, SW_LIMIT_TARGET_PCIE, p,
        &c->publish_limit);
    if (c->waves > 1) /* engines stand still through both, which overlap */
        take(*s, c->stage_limit, p, &c->publish_limit);
}

int sw_cost_make(const struct sw_layout *l, const struct sw_writes *w,
    const struct sw_plan_rank *ranks, uint32_t n_ranks, const struct sw_plan_target *targets,
    uint32_t n_targets, const struct sw_machine *m, struct sw_cost *cost, struct sw_error *e)
{
    struct sw_cost c = {0};
    struct maker k = {.c = &c, .l = l, .w = w, .ranks = ranks, .targets = targets, .m = m, .e = e};
    int err = count_moves(&k, n_ranks, n_targets);

    if (!err) {
        count_tiles(&k);
        count_maxima(&k);
        err = count_places(&k);
    }
    if (!err)
        err = sw_bound_make(l, ranks, n_ranks, targets, n_targets, &c.lower_bound, e);
    if (err) {
        sw_cost_clear(&c);
        return err;
    }
    predict(&c, m);
    *cost = c;
    return 0;
}

void sw_cost_clear(struct sw_cost *c)
{
    free(c->ranks);
    free(c->targets);
    free(c->source_nics);
    free(c->target_nics);
    free(c->source_hosts);
    free(c->target_hosts);
    *c = (struct sw_cost){0};
}

const char *sw_limit_name(enum sw_limit limit)
{
    static const char *const names[] = {"nothing to move", "the NIC of a source",
        "the memory of a source's host", "the PCIe link of a target", "the NIC of a target",
        "the PCIe link of a trainer"};

    return (unsigned)limit < sizeof(names) / sizeof(names[0]) ? names[limit] : "?";
}
