/* SPDX-License-Identifier: Apache-2.0 */
/* Part of the proof: splits cut slabs exactly, tiles do not overlap. See compact_proof.h. */
#include <stdlib.h>
#include <string.h>

#include "common/limits.h"
#include "trainerd/plan/compact_proof.h"
#include "trainerd/plan/proof_box.h"

static const char *slab_name(const struct sw_compact *c, uint32_t slab)
{
    const uint32_t source = c->slabs[slab].source;

    return source == SW_NONE ? "zeros" : c->entries[source].name;
}

/* ---- splits ---- */

/* Final bytes of a cell; false when it begins or ends inside a byte, or is too large. */
static bool cell_bytes(const struct sw_box *box, unsigned bits, uint64_t *bytes)
{
    const uint32_t last = box->ndim ? box->ndim - 1 : 0;
    const uint64_t volume = sw_proof_box_volume(box);

    if (box->ndim && ((box->lo[last] % 8) * bits % 8 || (box->len[last] % 8) * bits % 8))
        return false;
    if (volume > SW_BYTES_MAX || (box->ndim == 0 && bits % 8))
        return false;
    *bytes = volume / 8 * bits + volume % 8 * bits / 8;
    return true;
}

static int check_split(
    const struct sw_compact *c, uint32_t slab, struct sw_box *scratch, struct sw_error *e)
{
    static const char *const faults[] = {"", "goes past it", "overlaps another", "leaves a hole"};
    const struct sw_slab *s = &c->slabs[slab];
    const struct sw_split *split = &c->splits[s->split];
    const struct sw_cell *cells = c->cells + split->first;
    const struct sw_box *box = &c->boxes[s->box];
    const unsigned bits = sw_dtype_bits(c->formats[s->format].dst_dtype);
    enum sw_proof_partition found;
    uint32_t at;

    for (uint32_t i = 0; i < split->n; i++)
        scratch[i] = cells[i].box;
    found = sw_proof_box_partition(scratch, split->n, box->ndim, box->len, &at);
    if (found == SW_PROOF_PARTITION_NO_MEMORY)
        return sw_proof_no_memory(e);
    if (found)
        return sw_proof_wrong(e, "slab %u (%s): cell %u of split %u %s", slab, slab_name(c, slab),
            at, s->split, faults[found]);
    for (uint32_t i = 0; i < split->n; i++) {
        uint64_t bytes;

        if (!cell_bytes(&cells[i].box, bits, &bytes) || bytes != cells[i].bytes)
            return sw_proof_wrong(e, "slab %u (%s): cell %u of split %u has not %llu bytes", slab,
                slab_name(c, slab), i, s->split, (unsigned long long)cells[i].bytes);
    }
    return 0;
}

/* Whether what is true of one slab's split is true of another's. */
static bool split_alike(
    const struct sw_compact *c, const struct sw_slab *a, const struct sw_slab *b)
{
    const struct sw_box *x = &c->boxes[a->box], *y = &c->boxes[b->box];

    return x->ndim == y->ndim && !memcmp(x->len, y->len, x->ndim * sizeof(*x->len)) &&
           sw_dtype_bits(c->formats[a->format].dst_dtype) ==
               sw_dtype_bits(c->formats[b->format].dst_dtype);
}

static int check_splits(const struct sw_proof *p, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    uint32_t largest = 0;
    uint32_t *proven = calloc(c->n_splits + 1ull, sizeof(*proven)); /* slab + 1 */
    struct sw_box *scratch;
    int err = 0;

    for (uint32_t i = 0; i < c->n_splits; i++)
        largest = c->splits[i].n > largest ? c->splits[i].n : largest;
    scratch = calloc(largest + 1ull, sizeof(*scratch));
    if (!proven || !scratch)
        err = sw_proof_no_memory(e);
    for (uint32_t i = 0; !err && i < p->classes.n; i++) {
        const uint32_t slab = p->classes.first[i];
        uint32_t *before = &proven[c->slabs[slab].split];

        if (*before && split_alike(c, &c->slabs[*before - 1], &c->slabs[slab]))
            continue;
        err = check_split(c, slab, scratch, e);
        *before = slab + 1;
    }
    free(proven);
    free(scratch);
    return err;
}

/* ---- runs ---- */

/* Each slab has a place of its own, and each place a slab. */
static int check_places(const struct sw_compact *c, struct sw_error *e)
{
    uint64_t *first = malloc((c->n_runs + 1ull) * sizeof(*first)), places = 0;
    uint8_t *taken = calloc(c->n_slabs + 1ull, 1);
    int err = first && taken ? 0 : sw_proof_no_memory(e);

    for (uint32_t i = 0; !err && i < c->n_runs; i++) {
        first[i] = places;
        places += c->runs[i].n;
        if (places > c->n_slabs)
            err = sw_proof_wrong(e, "run %u has more slabs than there are", i);
    }
    for (uint32_t i = 0; !err && i < c->n_slabs; i++) {
        uint8_t *place = &taken[first[c->slabs[i].run] + c->slabs[i].at];

        if (*place)
            err = sw_proof_wrong(e, "slab %u (%s) lies where another one does", i, slab_name(c, i));
        *place = 1;
    }
    if (!err && places < c->n_slabs)
        err = sw_proof_wrong(e, "the runs have fewer slabs than there are");
    free(first);
    free(taken);
    return err;
}

struct stretch { /* replica bytes of a rank: a run's tiles of one cell */
    uint64_t start, end;
    uint32_t wave, run;
};

static int stretch_compare(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;

    if (x->wave != y->wave)
        return x->wave < y->wave ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool stretch_make(const struct sw_compact *c, uint32_t run, uint32_t cell, struct stretch *s)
{
    const struct sw_slab_run *r = &c->runs[run];
    const struct sw_cell *piece = &c->cells[c->splits[r->split].first + cell];
    uint64_t bytes;

    *s = (struct stretch){.start = c->bases[r->first + cell], .wave = r->wave, .run = run};
    if (__builtin_mul_overflow(piece->bytes, (uint64_t)r->n, &bytes) ||
        sw_range_exceeds(s->start, bytes, c->replica_bytes[piece->rank]))
        return false;
    s->end = s->start + bytes;
    return true;
}

/* All stretches, rank by rank; ends[r] is where those of rank r end. */
static int collect(
    const struct sw_proof *p, struct stretch *items, uint64_t *ends, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    uint64_t total = 0;

    for (uint32_t i = 0; i < c->n_runs; i++)
        for (uint32_t k = 0; k < c->splits[c->runs[i].split].n; k++)
            ends[c->cells[c->splits[c->runs[i].split].first + k].rank]++;
    for (uint32_t r = 0; r < p->n_ranks; r++) { /* to where they begin; filling moves it */
        const uint64_t n = ends[r];

        ends[r] = total;
        total += n;
    }
    for (uint32_t i = 0; i < c->n_runs; i++)
        for (uint32_t k = 0; k < c->splits[c->runs[i].split].n; k++) {
            const uint32_t rank = c->cells[c->splits[c->runs[i].split].first + k].rank;

            if (!stretch_make(c, i, k, &items[ends[rank]++]))
                return sw_proof_wrong(e,
                    "rank %u: run %u of slabs goes past the replica's %llu "
                    "bytes",
                    p->ranks[rank].rank, i, (unsigned long long)c->replica_bytes[rank]);
        }
    return 0;
}

static int check_rank(
    const struct sw_proof *p, uint32_t rank, struct stretch *s, uint64_t n, struct sw_error *e)
{
    bool sorted = true;

    for (uint64_t i = 1; i < n && sorted; i++)
        sorted = stretch_compare(&s[i - 1], &s[i]) <= 0;
    if (!sorted)
        qsort(s, n, sizeof(*s), stretch_compare);
    for (uint64_t i = 1; i < n; i++)
        if (s[i - 1].wave == s[i].wave && s[i - 1].end > s[i].start)
            return sw_proof_wrong(e, "rank %u: tiles of runs %u and %u overlap at byte %llu",
                p->ranks[rank].rank, s[i - 1].run, s[i].run, (unsigned long long)s[i].start);
    return 0;
}

static int check_tiles(const struct sw_proof *p, struct sw_error *e)
{
    const struct sw_compact *c = p->c;
    uint64_t total = 0, from = 0;
    uint64_t *ends = calloc(p->n_ranks + 1ull, sizeof(*ends));
    struct stretch *items;
    int err = 0;

    for (uint32_t i = 0; i < c->n_runs; i++)
        total += c->splits[c->runs[i].split].n;
    items = malloc((total + 1) * sizeof(*items));
    if (!ends || !items)
        err = sw_proof_no_memory(e);
    if (!err)
        err = collect(p, items, ends, e);
    for (uint32_t r = 0; !err && r < p->n_ranks; r++) {
        err = check_rank(p, r, items + from, ends[r] - from, e);
        from = ends[r];
    }
    free(ends);
    free(items);
    return err;
}

int sw_proof_tiles(struct sw_proof *p, struct sw_error *e)
{
    int err = check_splits(p, e);

    if (!err)
        err = check_places(p->c, e);
    if (!err)
        err = check_tiles(p, e);
    return err;
}
