/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs written out of compact plans, against an oracle that knows only what the plan means:
 * every byte is a token that says which element of which tensor it is, in which form. Loads fill
 * replicas with tokens, extents move them, and each parameter must hold what it is made of.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/plan/extents.h"
#include "trainerd/plan/handmade.h"

#define SEEDS 200
#define REGION 32768u
#define REPLICA 16384u

static uint64_t replica[HAND_RANKS][REPLICA], region[2][REGION], expected[2][REGION];

static uint64_t token(uint32_t entry, uint32_t format, uint64_t element, uint64_t byte)
{
    return 1ull << 63 | (uint64_t)format << 56 | (uint64_t)entry << 40 | element << 8 | byte;
}

/* Counts through a box in C order; false when it came round. */
static bool next(uint64_t *at, const uint64_t *len, uint32_t ndim)
{
    for (uint32_t d = ndim; d-- > 0;) {
        if (++at[d] < len[d])
            return true;
        at[d] = 0;
    }
    return false;
}

static uint64_t linear(const uint64_t *at, const uint64_t *lo, const uint64_t *shape, uint32_t ndim)
{
    uint64_t n = 0;

    for (uint32_t d = 0; d < ndim; d++)
        n = n * shape[d] + at[d] + (lo ? lo[d] : 0);
    return n;
}

static uint64_t block_of(const struct hand *h, uint32_t ndim, uint32_t d)
{
    return d + 1 == ndim ? h->formats[2].block[1] : d + 2 == ndim ? h->formats[2].block[0] : 1;
}

/* How many blocks a tensor has along each dimension. */
static void blocks_of(const struct hand *h, uint32_t entry, uint64_t *shape)
{
    const struct sw_catalogue_entry *t = &h->entries[entry];

    for (uint32_t d = 0; d < t->ndim; d++)
        shape[d] = (t->shape[d] + block_of(h, t->ndim, d) - 1) / block_of(h, t->ndim, d);
}

/* ---- loads ---- */

static uint32_t format_of(const struct hand *h, const struct sw_load_template *t)
{
    for (uint32_t i = 0; i < h->l.c.n_formats; i++)
        if (h->formats[i].transform == t->transform && h->formats[i].src_dtype == t->src_dtype &&
            h->formats[i].dst_dtype == t->dst_dtype)
            return i;
    ck_abort_msg("a template of no format");
    return 0;
}

static void run_load(const struct hand *h, uint32_t rank, const struct sw_load_plan *plan,
    const struct sw_load *load)
{
    const struct sw_load_template *t = &plan->templates[load->tmpl];
    const uint32_t list = h->rank_list[rank], entry = h->entry[list][load->source];
    const struct sw_box *held = &h->boxes[rank][h->group_of[entry]];
    const uint32_t format = format_of(h, t), bytes = sw_dtype_bits(t->dst_dtype) / 8;
    const bool scales = t->transform == SW_TRANSFORM_FP8_SCALES;
    uint64_t at[SW_MAX_DIMS] = {0}, shape[SW_MAX_DIMS], lo[SW_MAX_DIMS];

    ck_assert_uint_eq(load->grid != UINT32_MAX, format >= 2);
    if (load->grid != UINT32_MAX) {
        ck_assert_uint_lt(load->grid, plan->n_grids);
        ck_assert_uint_eq(plan->grids[load->grid].source, load->source);
    }
    memcpy(shape, h->entries[entry].shape, sizeof(shape));
    if (scales)
        blocks_of(h, entry, shape);
    for (uint32_t d = 0; d < t->ndim; d++) {
        const uint64_t first = scales ? held->lo[d] / block_of(h, t->ndim, d) : held->lo[d];

        lo[d] = first + t->lo[d];
        if (!scales)
            ck_assert_uint_le(t->lo[d] + t->len[d], held->len[d]);
    }
    do {
        uint64_t to = plan->tiles[load->tile].offset + load->offset;

        for (uint32_t d = 0; d < t->ndim; d++)
            to += at[d] * t->dst_stride[d];
        for (uint32_t b = 0; b < bytes; b++) {
            ck_assert_uint_lt(to + b, plan->replica_bytes);
            ck_assert_uint_eq(replica[rank][to + b], 0);
            replica[rank][to + b] = token(entry, format, linear(at, lo, shape, t->ndim), b);
        }
    } while (next(at, t->len, t->ndim));
}

static void run_loads(const struct hand *h, struct sw_load_plan *plans)
{
    struct sw_error e = {0};

    memset(replica, 0, sizeof(replica));
    for (uint32_t r = 0; r < h->l.n_ranks; r++) {
        struct sw_load_plan *p = &plans[r];
        uint64_t bytes = 0, filled = 0;

        ck_assert_uint_le(h->replica_bytes[r], REPLICA);
        ck_assert_msg(sw_layout_load(&h->l, r, p, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(p->rank, 10 + r);
        for (uint32_t i = 0; i < p->n_loads; i++)
            run_load(h, r, p, &p->loads[i]);
        for (uint32_t i = 0; i < p->n_tiles; i++) {
            ck_assert(
                i == 0 || p->tiles[i - 1].offset + p->tiles[i - 1].bytes <= p->tiles[i].offset);
            bytes += p->tiles[i].bytes;
        }
        for (uint32_t i = 0; i < REPLICA; i++)
            filled += replica[r][i] != 0;
        ck_assert_uint_eq(filled, bytes);
        for (uint32_t i = 0; i < p->n_templates; i++)
            for (uint32_t k = 0; k < i; k++)
                ck_assert(memcmp(&p->templates[i], &p->templates[k], sizeof(p->templates[i])) != 0);
    }
}

/* ---- extents ---- */

static void expect(const struct hand *h, uint32_t t)
{
    memset(expected, 0, sizeof(expected));
    for (uint32_t i = 0; i < h->n_parameters; i++) {
        const struct hand_parameter *m = &h->made[i];
        const struct sw_parameter *p = &h->parameters[t][m->number];
        const uint32_t bytes = sw_dtype_bits(p->dtype) / 8;

        for (uint32_t k = 0; m->kind == h->kind_of[t] && k < m->n; k++) {
            const struct hand_piece *piece = &m->pieces[k];
            const uint32_t ndim = piece->box.ndim, skip = p->ndim - ndim;
            uint64_t at[SW_MAX_DIMS] = {0}, shape[SW_MAX_DIMS];

            memcpy(shape, h->entries[piece->entry].shape, sizeof(shape));
            if (h->formats[piece->format].transform == SW_TRANSFORM_FP8_SCALES)
                blocks_of(h, piece->entry, shape);
            do {
                uint64_t in[SW_MAX_DIMS], to;

                memcpy(in, piece->to, sizeof(in));
                for (uint32_t d = 0; d < ndim; d++)
                    in[skip + d] += at[d];
                to = p->offset + linear(in, NULL, p->shape, p->ndim) * bytes;
                for (uint32_t b = 0; b < bytes; b++)
                    expected[p->region][to + b] = token(
                        piece->entry, piece->format, linear(at, piece->box.lo, shape, ndim), b);
            } while (next(at, piece->box.len, ndim));
        }
    }
}

static bool is_expert(const struct hand *h, uint32_t t, const struct sw_extent *x)
{
    for (uint32_t i = 0; i < h->targets[t].n_parameters; i++) {
        const struct sw_parameter *p = &h->parameters[t][i];
        uint64_t bytes;

        sw_tensor_bytes(p->dtype, p->ndim, p->shape, &bytes);
        if (p->region == x->region && x->dst >= p->offset && x->dst < p->offset + bytes)
            return h->expert[h->kind_of[t]][i];
    }
    ck_abort_msg("an extent of no parameter");
    return false;
}

static void run_extents(const struct hand *h, uint32_t t, uint32_t rank, struct sw_write_plan *p)
{
    uint64_t bytes = 0;

    for (uint64_t i = 0; i < p->n; i++) {
        const struct sw_extent *x = &p->extents[i], *y = i ? x - 1 : NULL;

        for (uint64_t b = 0; b < x->length; b++) {
            ck_assert_uint_lt(x->dst + b, h->region_bytes[t][x->region]);
            ck_assert_uint_eq(region[x->region][x->dst + b], 0);
            region[x->region][x->dst + b] = replica[rank][x->src + b];
        }
        bytes += x->length;
        if (!y || is_expert(h, t, x) != is_expert(h, t, y)) {
            ck_assert(!y || is_expert(h, t, x));
            continue;
        }
        ck_assert(y->region < x->region || (y->region == x->region && y->dst < x->dst));
        ck_assert(
            y->region != x->region || y->dst + y->length != x->dst || y->src + y->length != x->src);
    }
    ck_assert_uint_eq(bytes, p->bytes);
}

static void run_target(const struct hand *h, uint32_t t)
{
    struct sw_error e = {0};

    memset(region, 0, sizeof(region));
    expect(h, t);
    for (uint32_t r = 0; r < h->l.n_ranks; r++) {
        struct sw_write_plan p;

        ck_assert_msg(
            sw_extents_make(&h->l, h->kind_of[t], r, &h->targets[t], &p, &e) == 0, "%s", e.text);
        ck_assert_uint_eq(p.rank, 10 + r);
        ck_assert_uint_eq(p.target, 20 + t);
        run_extents(h, t, r, &p);
        sw_write_plan_clear(&p);
    }
    ck_assert(!memcmp(region, expected, sizeof(region)));
}

START_TEST(every_byte_comes_from_where_it_should)
{
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct hand *h = hand_make(seed);
        struct sw_load_plan plans[HAND_RANKS];

        run_loads(h, plans);
        for (uint32_t t = 0; t < h->n_targets; t++)
            run_target(h, t);
        for (uint32_t r = 0; r < h->l.n_ranks; r++)
            sw_load_plan_clear(&plans[r]);
        hand_free(h);
    }
}
END_TEST

/* ---- shared blocks ---- */

struct blocks { /* what is known of each block of each tensor, by counting */
    uint64_t n[HAND_ENTRIES];
    bool touched[HAND_ENTRIES][512][HAND_RANKS];  /* by a load */
    bool needed[HAND_ENTRIES][512];               /* some rank that touches it lacks some of it */
    uint64_t slot[HAND_ENTRIES][512][HAND_RANKS]; /* its place in the rank's maxima, + 1 */
};

static struct blocks known;

static bool holds_block(const struct hand *h, uint32_t entry, const uint64_t *block, uint32_t rank)
{
    const struct sw_catalogue_entry *t = &h->entries[entry];
    const struct sw_box *held = &h->boxes[rank][h->group_of[entry]];

    for (uint32_t d = 0; d < t->ndim; d++) {
        const uint64_t b = block_of(h, t->ndim, d), lo = block[d] * b;
        const uint64_t end = lo + b < t->shape[d] ? lo + b : t->shape[d];

        if (lo < held->lo[d] || end > held->lo[d] + held->len[d])
            return false;
    }
    return true;
}

/* Who touches which block, from the tokens in the replicas. */
static void count_touches(const struct hand *h)
{
    for (uint32_t r = 0; r < h->l.n_ranks; r++)
        for (uint32_t i = 0; i < REPLICA; i++) {
            const uint64_t t = replica[r][i], element = (t >> 8) & 0xffffffff;
            const uint32_t format = (t >> 56) & 127, entry = (t >> 40) & 0xffff;
            uint64_t at[SW_MAX_DIMS], shape[SW_MAX_DIMS], rest = element;

            if (!t || format < 2)
                continue;
            blocks_of(h, entry, shape);
            for (uint32_t d = h->entries[entry].ndim; d-- > 0;) {
                const uint64_t n = format == 3 ? shape[d] : h->entries[entry].shape[d];

                at[d] = format == 3 ? rest % n : rest % n / block_of(h, h->entries[entry].ndim, d);
                rest /= n;
            }
            known.touched[entry][linear(at, NULL, shape, h->entries[entry].ndim)][r] = true;
        }
    for (uint32_t i = 0; i < h->l.c.n_entries; i++) {
        uint64_t at[SW_MAX_DIMS] = {0}, shape[SW_MAX_DIMS];

        blocks_of(h, i, shape);
        do {
            const uint64_t b = known.n[i]++;

            ck_assert_uint_lt(b, 512);
            for (uint32_t r = 0; r < h->l.n_ranks; r++)
                known.needed[i][b] |= known.touched[i][b][r] && !holds_block(h, i, at, r);
        } while (next(at, shape, h->entries[i].ndim));
    }
}

/* Gives the maxima of a rank's shared grids to blocks; a grid is shared when it has to be. */
static void place_maxima(const struct hand *h, uint32_t r, const struct sw_load_plan *p)
{
    uint64_t used = 0;

    for (uint32_t g = 0; g < p->n_grids; g++) {
        const uint32_t entry = h->entry[h->rank_list[r]][p->grids[g].source];
        const struct sw_box *held = &h->boxes[r][h->group_of[entry]];
        const uint32_t ndim = h->entries[entry].ndim;
        uint64_t at[SW_MAX_DIMS] = {0}, lo[SW_MAX_DIMS], len[SW_MAX_DIMS], shape[SW_MAX_DIMS];
        uint64_t n = p->grids[g].first;
        bool shared = false;

        blocks_of(h, entry, shape);
        for (uint32_t d = 0; d < ndim; d++) {
            const uint64_t b = block_of(h, ndim, d);

            lo[d] = held->lo[d] / b;
            len[d] = (held->lo[d] + held->len[d] - 1) / b + 1 - lo[d];
        }
        do {
            const uint64_t block = linear(at, lo, shape, ndim);

            shared = shared || (known.touched[entry][block][r] && known.needed[entry][block]);
            if (p->grids[g].shared)
                known.slot[entry][block][r] = ++n;
        } while (next(at, len, ndim));
        ck_assert_uint_eq(p->grids[g].shared, shared);
        used += shared ? n - p->grids[g].first : 0;
    }
    ck_assert_uint_eq(used, p->n_maxima);
}

/* The ranks of a host that must share a block; elsewhere: of other hosts. */
static uint32_t sharers(
    const struct hand *h, uint32_t entry, uint64_t block, uint32_t host, uint32_t *elsewhere)
{
    uint32_t n = 0;

    *elsewhere = 0;
    for (uint32_t r = 0; known.needed[entry][block] && r < h->l.n_ranks; r++) {
        n += known.touched[entry][block][r] && h->ranks[r].host == host;
        *elsewhere += known.touched[entry][block][r] && h->ranks[r].host != host;
    }
    return n;
}

/* One maximum of a share: the block that all its members mean. */
static void check_share(const struct hand *h, const struct sw_share_plan *p,
    const struct sw_share *s, uint64_t i, uint32_t host)
{
    const struct sw_share_member *m = p->members + s->first_member;
    const uint64_t first = m[0].first + i + 1;
    const uint32_t rank = m[0].rank - 10;

    for (uint32_t entry = 0; entry < h->l.c.n_entries; entry++)
        for (uint64_t b = 0; b < known.n[entry]; b++) {
            uint32_t elsewhere;

            if (known.slot[entry][b][rank] != first)
                continue;
            ck_assert_uint_eq(sharers(h, entry, b, host, &elsewhere), s->n_members);
            for (uint32_t k = 0; k < s->n_members; k++) {
                const uint32_t r = m[k].rank - 10;

                ck_assert(known.touched[entry][b][r] && h->ranks[r].host == host);
                ck_assert_uint_eq(known.slot[entry][b][r], m[k].first + i + 1);
                ck_assert(k == 0 || m[k].rank != m[k - 1].rank);
            }
            return;
        }
    ck_abort_msg("a share of no block");
}

static uint64_t check_host(const struct hand *h, uint32_t host)
{
    struct sw_share_plan p;
    struct sw_error e = {0};
    uint64_t elsewhere, counted = 0, shared = 0, wanted = 0;

    ck_assert_msg(sw_layout_shares(&h->l, host, &p, &elsewhere, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < p.n; i++) {
        ck_assert_uint_gt(p.items[i].n_members, 1);
        for (uint64_t k = 0; k < p.items[i].count; k++, shared++)
            check_share(h, &p, &p.items[i], k, host);
    }
    for (uint32_t entry = 0; entry < h->l.c.n_entries; entry++)
        for (uint64_t b = 0; b < known.n[entry]; b++) {
            uint32_t others;
            const uint32_t n = sharers(h, entry, b, host, &others);

            wanted += n > 1;
            counted += n > 0 && others > 0;
        }
    ck_assert_uint_eq(shared, wanted); /* none twice: each block is found from its own maximum */
    ck_assert_uint_eq(elsewhere, counted);
    sw_share_plan_clear(&p);
    return shared;
}

START_TEST(ranks_that_need_a_block_share_its_maximum)
{
    uint64_t shared = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct hand *h = hand_make(seed);
        struct sw_load_plan plans[HAND_RANKS];

        memset(&known, 0, sizeof(known));
        run_loads(h, plans);
        count_touches(h);
        for (uint32_t r = 0; r < h->l.n_ranks; r++)
            place_maxima(h, r, &plans[r]);
        for (uint32_t host = 0; host <= h->ranks[h->l.n_ranks - 1].host; host++)
            shared += check_host(h, host);
        for (uint32_t r = 0; r < h->l.n_ranks; r++)
            sw_load_plan_clear(&plans[r]);
        hand_free(h);
    }
    ck_assert_uint_gt(shared, 200); /* the layouts are such that something is shared */
}
END_TEST

/* ---- alias checks ---- */

struct compared { /* a check, and what it is of */
    uint32_t number, set;
    const struct sw_box *box;
};

static bool same_box(const struct sw_box *a, const struct sw_box *b)
{
    return a->ndim == b->ndim && !memcmp(a->lo, b->lo, sizeof(a->lo)) &&
           !memcmp(a->len, b->len, sizeof(a->len));
}

/* What a rank holds of members of sets, each with a check; returns how many it added. */
static uint32_t collect_checks(const struct hand *h, uint32_t r, struct compared *out)
{
    struct sw_load_plan p;
    struct sw_error e = {0};
    uint32_t n = 0;

    ck_assert_msg(sw_layout_load(&h->l, r, &p, &e) == 0, "%s", e.text);
    for (uint32_t i = 0; i < h->l.c.n_entries; i++) {
        const uint32_t entry = h->entry[h->rank_list[r]][i];
        const struct sw_box *box = &h->boxes[r][h->group_of[entry]];
        bool held = h->set[entry] != SW_NONE;

        for (uint32_t d = 0; d < box->ndim; d++)
            held = held && box->len[d];
        if (!held)
            continue;
        ck_assert_uint_lt(n, p.n_checks);
        ck_assert_uint_eq(p.checks[n].source, i);
        out[n] = (struct compared){p.checks[n].set, h->set[entry], box};
        n++;
    }
    ck_assert_uint_eq(n, p.n_checks);
    sw_load_plan_clear(&p);
    return n;
}

START_TEST(equal_boxes_of_an_alias_set_are_compared_and_no_others)
{
    uint32_t sharded = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct hand *h = hand_make(seed);
        struct compared all[HAND_RANKS * HAND_ENTRIES];
        uint32_t n = 0;

        h->l.n_sets = 3;
        for (uint32_t i = 0; i < h->l.c.n_entries; i++)
            h->set[i] = hand_random(h, 2) ? SW_NONE : (uint32_t)hand_random(h, 3);
        for (uint32_t r = 0; r < h->l.n_ranks; r++)
            n += collect_checks(h, r, all + n);
        for (uint32_t i = 0; i < n; i++) {
            ck_assert_uint_eq(all[i].number % 3, all[i].set);
            sharded += all[i].number >= 3;
            for (uint32_t k = 0; k < i; k++)
                ck_assert_int_eq(all[i].number == all[k].number,
                    all[i].set == all[k].set && same_box(all[i].box, all[k].box));
        }
        hand_free(h);
    }
    ck_assert_uint_gt(sharded, SEEDS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("written");
    TCase *tcase = tcase_create("written");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, every_byte_comes_from_where_it_should);
    tcase_add_test(tcase, ranks_that_need_a_block_share_its_maximum);
    tcase_add_test(tcase, equal_boxes_of_an_alias_set_are_compared_and_no_others);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
