/* SPDX-License-Identifier: Apache-2.0 */
/* The proof must see every kind of error in a compact plan: each is planted in a right one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/test_suite.h"
#include "trainerd/plan/compact.h"
#include "trainerd/plan/proof_box.h"

/* ---- a model by hand, instead of one of layout rules ---- */

struct sw_model {
    uint32_t tensors;
};

enum { T_W, T_Q, T_E0, T_E1, T_COUNT };

/* W: rows of w over tp. Q: FP8 blocks of q, and Q_scale. E: two experts of a packed tensor, stacked
 * and cast. P: two rows of w, then padding. D: derived. */
static struct sw_piece piece(
    enum sw_piece_kind kind, uint32_t tensor, uint64_t row, uint64_t rows, uint64_t columns)
{
    return (struct sw_piece){.kind = kind,
        .tensor = tensor,
        .from = {.ndim = 2, .lo = {row, 0}, .len = {rows, columns}}};
}

uint32_t sw_model_tensors(const struct sw_model *m)
{
    return m->tensors;
}

int sw_model_pieces(const struct sw_model *m, const struct sw_placement *at,
    const struct sw_parameter *p, struct sw_pieces *pieces, struct sw_error *e)
{
    static uint32_t others[] = {T_W};
    struct sw_piece *items = pieces->items ? pieces->items : calloc(2, sizeof(*items));

    *pieces = (struct sw_pieces){.items = items, .size = 2, .n = 1};
    if (!strcmp(p->name, "W") || !strcmp(p->name, "W_alias")) {
        /* the first choice is not there */
        items[0] = piece(SW_PIECE_VALUES, UINT32_MAX, 4 * at->at.of[SW_GROUP_TP].rank, 4, 6);
        items[0].others = 1;
        pieces->others = others;
        pieces->n_others = 1;
    } else if (!strcmp(p->name, "Q")) {
        items[0] = piece(SW_PIECE_VALUES, T_Q, 0, 8, 8);
        pieces->quantised = true;
    } else if (!strcmp(p->name, "Q_scale")) {
        items[0] = piece(SW_PIECE_SCALES, T_Q, 0, 2, 2);
        pieces->quantised = true;
    } else if (!strcmp(p->name, "E")) {
        pieces->n = 2;
        items[0] = piece(SW_PIECE_VALUES, T_E0, 0, 4, 6);
        items[1] = piece(SW_PIECE_VALUES, T_E1, 0, 4, 6);
        items[1].to[0] = 1;
    } else if (!strcmp(p->name, "P")) {
        pieces->n = 2;
        items[0] = piece(SW_PIECE_VALUES, T_W, 4, 4, 6);
        items[1] = piece(SW_PIECE_ZERO, UINT32_MAX, 0, 2, 6);
        items[1].to[0] = 4;
    } else if (!strcmp(p->name, "D")) {
        pieces->n = 0;
        pieces->derived = true;
    } else {
        ck_abort_msg("no such parameter");
    }
    return 0;
}

void sw_pieces_free(struct sw_pieces *p)
{
    free(p->items);
}

bool sw_model_locate(
    const struct sw_model *m, uint32_t tensor, uint32_t i, uint32_t *stored, uint64_t *origin)
{
    memset(origin, 0, 3 * sizeof(*origin));
    if (i > 1)
        return false;
    *stored = i == 0 ? 9 : tensor; /* the first way is not there */
    if (tensor >= T_E0) {
        *stored = i == 0 ? 9 : T_E0;
        origin[0] = tensor - T_E0;
    }
    return true;
}

bool sw_model_scale_of(const struct sw_model *m, uint32_t stored, uint32_t *scale)
{
    return false;
}

void sw_model_stored_name(const struct sw_model *m, uint32_t stored, char *name)
{
    static const char *const names[] = {"w", "q", "e"};

    snprintf(name, 16, "%s", stored == 9 ? "elsewhere" : names[stored]);
}

void sw_model_stored_get(const struct sw_model *m, uint32_t stored, struct sw_stored *out)
{
    static const struct sw_stored all[] = {
        {.ndim = 2, .shape = {8, 6}, .dtype = SW_BF16},
        {.ndim = 2, .shape = {8, 8}, .dtype = SW_BF16},
        {.ndim = 3, .shape = {2, 4, 6}, .dtype = SW_BF16},
    };

    *out = all[stored];
}

/* ---- a right plan ---- */

enum { W_TOP, W_BOTTOM, E_FIRST, E_SECOND, Q_VALUES, Q_SCALES, ZEROS, N_SLABS };
enum { S_W_TOP, S_W_BOTTOM, S_E, S_Q_VALUES, S_Q_SCALES, S_ZEROS, N_SPLITS };
enum { F_COPY, F_CAST, F_VALUES, F_SCALES, F_ZERO, N_FORMATS };
enum { N_PARAMETERS = 7, N_TARGETS = 5, N_CELLS = 9, N_BASES = 9 };

struct bench {
    struct sw_model model;
    struct sw_plan_tensor tensors[4];
    uint32_t groups[4];
    struct sw_source_list list;
    struct sw_box held[2][4];
    struct sw_plan_rank ranks[2];
    struct sw_placement placements[4];
    struct sw_parameter parameters[4][N_PARAMETERS]; /* of the targets with a model */
    struct sw_parameter named[2];
    uint64_t region_bytes[2];
    struct sw_plan_target targets[N_TARGETS];

    struct sw_catalogue_entry entries[4]; /* the last one is for a planted error */
    struct sw_holders holders[3];
    struct sw_holder items[6];
    struct sw_format formats[N_FORMATS];
    struct sw_box boxes[8];
    struct sw_slab slabs[N_SLABS];
    struct sw_split splits[N_SPLITS];
    struct sw_cell cells[N_CELLS + 2]; /* the last two are for a planted error */
    struct sw_slab_run runs[N_SPLITS];
    uint64_t bases[N_BASES + 2];
    struct sw_want wants[18];
    struct sw_kind kinds[3];
    uint64_t replica_bytes[2];
    struct sw_compact c;
};

static struct sw_box box2(uint64_t row, uint64_t column, uint64_t rows, uint64_t columns)
{
    return (struct sw_box){.ndim = 2, .lo = {row, column}, .len = {rows, columns}};
}

static struct sw_box box3(uint64_t lo, uint64_t a, uint64_t b, uint64_t c)
{
    return (struct sw_box){.ndim = 3, .lo = {lo}, .len = {a, b, c}};
}

static void setup_ranks(struct bench *b)
{
    const struct sw_plan_tensor tensors[] = {
        {.name = "w", .dtype = SW_BF16, .ndim = 2, .shape = {8, 6}},
        {.name = "q", .dtype = SW_BF16, .ndim = 2, .shape = {8, 8}},
        {.name = "e", .dtype = SW_BF16, .ndim = 3, .shape = {2, 4, 6}},
        {.name = "unused", .dtype = SW_F32, .ndim = 1, .shape = {3}},
    };
    const struct sw_box held[2][4] = {
        {box2(0, 0, 3, 6), box2(0, 0, 2, 8), box3(0, 2, 4, 6), {.ndim = 1}},
        {box2(3, 0, 5, 6), box2(2, 0, 6, 8), box3(0, 2, 4, 6), {.ndim = 1, .len = {3}}},
    };

    memcpy(b->tensors, tensors, sizeof(tensors));
    memcpy(b->held, held, sizeof(held));
    for (uint32_t i = 0; i < 4; i++)
        b->groups[i] = i;
    b->list = (struct sw_source_list){4, 4, b->tensors, b->groups};
    for (uint32_t r = 0; r < 2; r++)
        b->ranks[r] = (struct sw_plan_rank){.rank = r, .list = &b->list, .boxes = b->held[r]};
}

static struct sw_parameter parameter(const char *name, enum sw_dtype dtype, uint64_t offset,
    uint32_t ndim, uint64_t d0, uint64_t d1, uint64_t d2)
{
    return (struct sw_parameter){
        .name = name, .dtype = dtype, .offset = offset, .ndim = ndim, .shape = {d0, d1, d2}};
}

/* Two engines of tp 2, and one of one rank that has w by its name. */
static void setup_targets(struct bench *b)
{
    const struct sw_parameter parameters[] = {parameter("W", SW_BF16, 0, 2, 4, 6, 0),
        parameter("W_alias", SW_BF16, 0, 2, 4, 6, 0), parameter("Q", SW_F8_E4M3, 256, 2, 8, 8, 0),
        parameter("Q_scale", SW_F32, 512, 2, 2, 2, 0), parameter("E", SW_F32, 768, 3, 2, 4, 6),
        parameter("P", SW_BF16, 48, 2, 6, 6, 0), parameter("D", SW_BF16, 2048, 1, 100, 0, 0)};

    b->region_bytes[0] = b->region_bytes[1] = 4096;
    b->named[0] = parameter("w_tied", SW_BF16, 64, 2, 8, 6, 0);
    b->named[0].alias_of = "w";
    b->named[1] = parameter("w", SW_BF16, 64, 2, 8, 6, 0);
    for (uint32_t i = 0; i < 4; i++) {
        b->placements[i] = (struct sw_placement){
            .kind = SW_ENGINE_SGLANG, .scale = SW_SCALE_FP32, .block = {4, 4}};
        for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
            b->placements[i].at.of[g] = (struct sw_group){0, 1};
        b->placements[i].at.of[SW_GROUP_TP] = (struct sw_group){i % 2, 2};
        memcpy(b->parameters[i], parameters, sizeof(parameters));
        b->parameters[i][1].alias_of = "W";
        b->targets[i] = (struct sw_plan_target){.target = i,
            .engine = i < 2 ? "A" : "B",
            .engine_rank = i % 2,
            .model = &b->model,
            .placement = &b->placements[i],
            .n_regions = 1,
            .region_bytes = b->region_bytes,
            .n_parameters = N_PARAMETERS,
            .parameters = b->parameters[i]};
    }
    b->targets[4] = (struct sw_plan_target){.target = 4,
        .engine = "C",
        .n_regions = 2,
        .region_bytes = b->region_bytes,
        .n_parameters = 2,
        .parameters = b->named};
}

static struct sw_slab slab(
    uint32_t source, uint32_t format, uint32_t box, uint32_t run, uint32_t at)
{
    return (struct sw_slab){.source = source,
        .format = format,
        .box = box,
        .split = run, /* here each split has one run */
        .run = run,
        .at = at};
}

static void setup_slabs(struct bench *b)
{
    const struct sw_box boxes[] = {box2(0, 0, 4, 6), box2(4, 0, 4, 6), box3(0, 1, 4, 6),
        box3(1, 1, 4, 6), box2(0, 0, 8, 8), box2(0, 0, 2, 2), box2(0, 0, 2, 6), box2(0, 0, 1, 1)};
    const struct sw_slab slabs[] = {slab(0, F_COPY, 0, S_W_TOP, 0),
        slab(0, F_COPY, 1, S_W_BOTTOM, 0), slab(2, F_CAST, 2, S_E, 0), slab(2, F_CAST, 3, S_E, 1),
        slab(1, F_VALUES, 4, S_Q_VALUES, 0), slab(1, F_SCALES, 5, S_Q_SCALES, 0),
        slab(SW_NONE, F_ZERO, 6, S_ZEROS, 0)};
    const struct sw_format formats[] = {
        {.transform = SW_TRANSFORM_COPY, .src_dtype = SW_BF16, .dst_dtype = SW_BF16},
        {.transform = SW_TRANSFORM_CAST, .src_dtype = SW_BF16, .dst_dtype = SW_F32},
        {SW_TRANSFORM_FP8_VALUES, SW_BF16, SW_F8_E4M3, {4, 4}, SW_SCALE_FP32},
        {SW_TRANSFORM_FP8_SCALES, SW_BF16, SW_F32, {4, 4}, SW_SCALE_FP32},
        {.transform = SW_TRANSFORM_ZERO, .dst_dtype = SW_BF16}};
    const struct sw_holder items[] = {{0, b->held[0][0]}, {1, b->held[1][0]}, {0, b->held[0][1]},
        {1, b->held[1][1]}, {0, b->held[0][2]}, {1, b->held[1][2]}};

    memcpy(b->boxes, boxes, sizeof(boxes));
    memcpy(b->slabs, slabs, sizeof(slabs));
    memcpy(b->formats, formats, sizeof(formats));
    memcpy(b->items, items, sizeof(items));
    for (uint32_t i = 0; i < 3; i++) {
        const struct sw_plan_tensor *t = &b->tensors[i];

        b->holders[i] = (struct sw_holders){2 * i, 2};
        b->entries[i] = (struct sw_catalogue_entry){
            .name = t->name, .dtype = t->dtype, .ndim = t->ndim, .holders = i};
        memcpy(b->entries[i].shape, t->shape, sizeof(t->shape));
    }
}

static void setup_splits(struct bench *b)
{
    const struct sw_split splits[] = {{0, 2}, {2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 1}};
    const struct sw_cell cells[] = {{0, box2(0, 0, 3, 6), 36}, {1, box2(3, 0, 1, 6), 12},
        {1, box2(0, 0, 4, 6), 48}, {0, box3(0, 1, 4, 6), 96}, {0, box2(0, 0, 2, 8), 16},
        {1, box2(2, 0, 6, 8), 48}, {0, box2(0, 0, 1, 2), 8}, {1, box2(1, 0, 1, 2), 8},
        {1, box2(0, 0, 2, 6), 24}};
    const uint64_t bases[] = {0, 0, 64, 64, 256, 128, 272, 176, 184};

    memcpy(b->splits, splits, sizeof(splits));
    memcpy(b->cells, cells, sizeof(cells));
    memcpy(b->bases, bases, sizeof(bases));
    for (uint32_t i = 0; i < N_SPLITS; i++)
        b->runs[i] =
            (struct sw_slab_run){.split = i, .n = i == S_E ? 2 : 1, .first = splits[i].first};
}

static void setup_wants(struct bench *b)
{
    uint32_t n = 0;

    for (uint32_t tp = 0; tp < 2; tp++) {
        const struct sw_want wants[] = {{tp ? W_BOTTOM : W_TOP, 0, 0}, {Q_VALUES, 2, 0},
            {Q_SCALES, 3, 0}, {E_FIRST, 4, 0}, {E_SECOND, 4, 96}, {W_BOTTOM, 5, 0}, {ZEROS, 5, 48}};

        b->kinds[tp] = (struct sw_kind){tp, n, 7};
        memcpy(&b->wants[n], wants, sizeof(wants));
        n += 7;
    }
    b->wants[n] = (struct sw_want){W_TOP, 1, 0};
    b->wants[n + 1] = (struct sw_want){W_BOTTOM, 1, 48};
    b->kinds[2] = (struct sw_kind){4, n, 2};
    b->c = (struct sw_compact){.n_entries = 3,
        .n_holders = 3,
        .n_formats = N_FORMATS,
        .n_boxes = 8,
        .n_slabs = N_SLABS,
        .n_splits = N_SPLITS,
        .n_runs = N_SPLITS,
        .n_kinds = 3,
        .n_wants = n + 2,
        .n_bases = N_BASES,
        .n_cells = N_CELLS,
        .n_holder_items = 6,
        .entries = b->entries,
        .holders = b->holders,
        .holder_items = b->items,
        .formats = b->formats,
        .boxes = b->boxes,
        .slabs = b->slabs,
        .splits = b->splits,
        .cells = b->cells,
        .runs = b->runs,
        .bases = b->bases,
        .wants = b->wants,
        .kinds = b->kinds,
        .replica_bytes = b->replica_bytes};
}

static void setup_bench(struct bench *b)
{
    memset(b, 0, sizeof(*b));
    b->model.tensors = T_COUNT;
    b->replica_bytes[0] = b->replica_bytes[1] = 4096;
    setup_ranks(b);
    setup_targets(b);
    setup_slabs(b);
    setup_splits(b);
    setup_wants(b);
}

static int prove(const struct bench *b, struct sw_error *e)
{
    return sw_compact_prove(&b->c, b->ranks, 2, b->targets, N_TARGETS, e);
}

START_TEST(a_right_plan_is_proven)
{
    struct bench b;
    struct sw_error e;

    setup_bench(&b);
    ck_assert_msg(prove(&b, &e) == 0, "%s", e.text);
}
END_TEST

START_TEST(waves_use_the_same_memory_one_after_another)
{
    struct bench b;
    struct sw_error e;

    setup_bench(&b);
    b.bases[8] = 0; /* the zeros, where w's bottom lies */
    ck_assert_int_eq(prove(&b, &e), SW_ERR_PLAN);
    b.runs[S_ZEROS].wave = b.slabs[ZEROS].wave = 1;
    ck_assert_msg(prove(&b, &e) == 0, "%s", e.text);
}
END_TEST

START_TEST(nothing_is_a_plan_for_nothing)
{
    const struct sw_compact c = {0};
    struct sw_error e;

    ck_assert_int_eq(sw_compact_prove(&c, NULL, 0, NULL, 0, &e), 0);
}
END_TEST

/* ---- planted errors ---- */

#define WANTS_1 7  /* the first of the second kind */
#define WANTS_2 14 /* of the identity kind */

static void swap_wants(struct bench *b, uint32_t i, uint32_t k)
{
    const struct sw_want w = b->wants[i];

    b->wants[i] = b->wants[k];
    b->wants[k] = w;
}

static void drop_want(struct bench *b, uint32_t i)
{
    memmove(&b->wants[i], &b->wants[i + 1], (b->c.n_wants - i - 1) * sizeof(*b->wants));
    b->c.n_wants--;
    for (uint32_t k = 0; k < 3; k++) {
        b->kinds[k].n -= b->kinds[k].first <= i && i < b->kinds[k].first + b->kinds[k].n;
        b->kinds[k].first -= b->kinds[k].first > i;
    }
}

static void other_slab_of_w(struct bench *b)
{
    b->wants[0].slab = W_BOTTOM;
}
static void other_half_by_name(struct bench *b)
{
    b->wants[WANTS_2].slab = W_BOTTOM;
    b->wants[WANTS_2 + 1].slab = W_TOP;
}
static void other_experts(struct bench *b)
{
    b->wants[3].slab = E_SECOND;
    b->wants[4].slab = E_FIRST;
}
static void other_tensor(struct bench *b)
{
    b->entries[3] = b->entries[0]; /* a twin of w */
    b->tensors[3] = b->tensors[0];
    b->entries[3].name = b->tensors[3].name = "v";
    b->groups[3] = 0;
    b->c.n_entries = 4;
    b->slabs[W_TOP].source = 3;
}
static void other_name(struct bench *b)
{
    b->named[0].name = "v_tied";
    b->named[0].alias_of = "v";
    b->named[1].name = "v";
}
static void other_shape_by_name(struct bench *b)
{
    b->named[0].shape[0] = b->named[1].shape[0] = 6;
    b->named[0].shape[1] = b->named[1].shape[1] = 8;
}
static void other_cast(struct bench *b)
{
    b->formats[F_CAST].dst_dtype = SW_F16;
}
static void copy_that_casts(struct bench *b)
{
    b->formats[F_COPY].dst_dtype = SW_F16;
}
static void other_scale_format(struct bench *b)
{
    b->formats[F_VALUES].scale = b->formats[F_SCALES].scale = SW_SCALE_UE8M0;
}
static void scales_of_other_blocks(struct bench *b)
{
    b->formats[F_SCALES].scale = SW_SCALE_UE8M0;
}
static void other_block(struct bench *b)
{
    b->formats[F_VALUES].block[0] = b->formats[F_SCALES].block[0] = 2;
}
static void unquantised_block(struct bench *b)
{
    b->formats[F_VALUES].block[0] = 0;
}
static void format_of_another_source(struct bench *b)
{
    b->formats[F_CAST].src_dtype = SW_F16;
}
static void zeros_for_values(struct bench *b)
{
    b->boxes[6] = box2(0, 0, 4, 6);
    b->cells[8] = (struct sw_cell){1, box2(0, 0, 4, 6), 48};
    b->wants[0].slab = ZEROS;
}
static void values_for_zeros(struct bench *b)
{
    b->parameters[0][5].shape[0] = b->parameters[1][5].shape[0] = b->parameters[2][5].shape[0] =
        b->parameters[3][5].shape[0] = 8;
    b->wants[6].slab = W_TOP;
}
static void byte_in_no_want(struct bench *b)
{
    drop_want(b, 4);
}
static void parameter_in_no_want(struct bench *b)
{
    drop_want(b, 2);
}
static void storage_in_no_want(struct bench *b)
{
    drop_want(b, WANTS_2);
    drop_want(b, WANTS_2);
}
static void byte_wanted_twice(struct bench *b)
{
    b->wants[6].offset = 36;
}
static void same_want_twice(struct bench *b)
{
    b->wants[4] = b->wants[3];
}
static void want_past_the_end(struct bench *b)
{
    b->wants[6].offset = 60;
}
static void want_far_past_the_end(struct bench *b)
{
    b->wants[6].offset = 144;
}
static void want_inside_an_element(struct bench *b)
{
    b->wants[6].offset = 47;
}
static void want_across_pieces(struct bench *b)
{
    /* all of P is of w, its last two rows too */
    b->boxes[1] = box2(2, 0, 6, 6);
    b->splits[S_W_BOTTOM] = (struct sw_split){N_CELLS, 2};
    b->cells[N_CELLS] = (struct sw_cell){0, box2(0, 0, 1, 6), 12};
    b->cells[N_CELLS + 1] = (struct sw_cell){1, box2(1, 0, 5, 6), 60};
    b->c.n_cells += 2;
    b->runs[S_W_BOTTOM].first = N_BASES;
    b->bases[N_BASES] = b->bases[N_BASES + 1] = 2048;
    b->c.n_bases += 2;
    drop_want(b, 6);
}
static void wants_out_of_order(struct bench *b)
{
    swap_wants(b, 1, 2);
}
static void derived_is_wanted(struct bench *b)
{
    for (uint32_t i = 0; i < 4; i++) {
        b->parameters[i][5].name = "D";
        b->parameters[i][6].name = "P";
    }
}
static void alias_wanted_too(struct bench *b)
{
    b->wants[WANTS_2].parameter = 0;
    b->wants[WANTS_2 + 1] = (struct sw_want){W_TOP, 0, 48};
}
static void both_aliases_wanted(struct bench *b)
{
    /* the second kind: its W, and its W_alias too */
    b->wants[WANTS_1 + 1] = (struct sw_want){W_BOTTOM, 1, 0};
}
static void cell_of_another_rank(struct bench *b)
{
    b->cells[2].rank = 0;
    b->bases[2] = 1024;
}
static void cell_past_what_is_held(struct bench *b)
{
    b->cells[0] = (struct sw_cell){0, box2(0, 0, 4, 6), 48};
    b->cells[1] = (struct sw_cell){1, box2(4, 0, 0, 6), 0};
    b->splits[S_W_TOP].n = 1;
}
static void cell_that_leaves_a_hole(struct bench *b)
{
    b->cells[0] = (struct sw_cell){0, box2(0, 0, 2, 6), 24};
}
static void cells_that_overlap(struct bench *b)
{
    b->cells[5] = (struct sw_cell){1, box2(1, 0, 7, 8), 56};
}
static void cell_past_its_slab(struct bench *b)
{
    b->cells[1] = (struct sw_cell){1, box2(3, 0, 2, 6), 24};
}
static void cell_with_other_bytes(struct bench *b)
{
    b->cells[3].bytes = 48;
}
static void scales_by_a_rank_without_the_block(struct bench *b)
{
    /* rank 0 has rows 0-1 of q, no value of the second row of blocks */
    b->cells[6].rank = 1;
    b->cells[7].rank = 0;
    b->bases[6] = b->bases[7] = 1024;
}
static void blocks_that_nobody_holds_whole(struct bench *b)
{
    /* rank 1 has columns 0-3 only, and the slab of values wants those */
    b->held[1][1].len[1] = b->items[3].box.len[1] = 3;
    b->held[0][1].len[1] = b->items[2].box.len[1] = 3;
    b->boxes[4] = box2(0, 0, 8, 3);
    b->cells[4] = (struct sw_cell){0, box2(0, 0, 2, 3), 6};
    b->cells[5] = (struct sw_cell){1, box2(2, 0, 6, 3), 18};
    b->boxes[5] = box2(0, 0, 2, 1);
    b->cells[6] = (struct sw_cell){0, box2(0, 0, 1, 1), 4};
    b->cells[7] = (struct sw_cell){1, box2(1, 0, 1, 1), 4};
}
static void holder_that_holds_nothing(struct bench *b)
{
    b->held[0][0].len[0] = 0;
}
static void holder_of_another_box(struct bench *b)
{
    b->held[0][0].len[0] = 2;
}
static void rank_without_the_tensor(struct bench *b)
{
    b->tensors[0].name = "something else";
}
static void one_tensor_of_a_pattern_missing(struct bench *b)
{
    /* `unused` is in the catalogue with e's holders, and no rank has it */
    b->entries[1].name = "nobody has it";
    b->entries[1].holders = 0;
}
static void tensor_of_another_shape(struct bench *b)
{
    b->tensors[1].shape[0] = 9;
}
static void tensor_of_another_dtype(struct bench *b)
{
    b->tensors[1].dtype = SW_F16;
}
static void tensor_twice_in_a_list(struct bench *b)
{
    b->tensors[3] = b->tensors[0];
    b->groups[3] = 0;
}
static void entry_twice(struct bench *b)
{
    b->entries[1].name = "w";
}
static void group_past_the_list(struct bench *b)
{
    b->groups[0] = 4;
}
static void tiles_that_overlap(struct bench *b)
{
    b->bases[7] = 170;
}
static void tile_past_the_replica(struct bench *b)
{
    b->replica_bytes[1] = 200;
}
static void run_past_the_replica(struct bench *b)
{
    b->replica_bytes[0] = 280 - 1;
}
static void slabs_at_one_place(struct bench *b)
{
    b->slabs[E_SECOND].at = 0;
}
static void slab_past_its_run(struct bench *b)
{
    b->slabs[E_SECOND].at = 2;
}
static void place_without_a_slab(struct bench *b)
{
    b->c.n_slabs--; /* the zeros are gone, and wanted */
    b->wants[6].slab = b->wants[WANTS_1 + 6].slab = W_BOTTOM;
}
static void run_of_another_split(struct bench *b)
{
    b->slabs[E_SECOND].split = S_W_BOTTOM;
}
static void run_of_another_wave(struct bench *b)
{
    b->slabs[E_SECOND].wave = 1;
}
static void slab_past_its_tensor(struct bench *b)
{
    b->boxes[1].lo[0] = 5;
}
static void slab_past_its_blocks(struct bench *b)
{
    b->boxes[5] = box2(1, 0, 2, 2);
}
static void slab_of_other_dimensions(struct bench *b)
{
    b->boxes[3] = box2(0, 0, 4, 6);
}
static void slab_without_a_box(struct bench *b)
{
    b->slabs[ZEROS].box = 8;
}
static void slab_without_a_tensor(struct bench *b)
{
    b->slabs[W_TOP].source = 3;
}
static void no_source_and_no_zeros(struct bench *b)
{
    b->slabs[W_TOP].source = SW_NONE;
}
static void want_without_a_slab(struct bench *b)
{
    b->wants[3].slab = N_SLABS;
}
static void want_of_no_kind(struct bench *b)
{
    b->kinds[2].n = 1;
}
static void kinds_share_wants(struct bench *b)
{
    b->kinds[1].first = 6;
}
static void kind_without_a_target(struct bench *b)
{
    b->kinds[1].target = N_TARGETS;
}
static void cell_without_a_rank(struct bench *b)
{
    b->cells[8].rank = 2;
}
static void split_past_the_cells(struct bench *b)
{
    b->splits[S_ZEROS].n = 2;
}
static void split_without_cells(struct bench *b)
{
    b->splits[S_ZEROS].n = 0;
}
static void run_past_the_bases(struct bench *b)
{
    b->runs[S_Q_SCALES].first = 8;
}
static void holders_out_of_order(struct bench *b)
{
    const struct sw_holder h = b->items[0];

    b->items[0] = b->items[1];
    b->items[1] = h;
}
static void holders_past_the_list(struct bench *b)
{
    b->holders[2].n = 3;
}
static void holder_without_a_rank(struct bench *b)
{
    b->items[5].rank = 2;
}
static void entry_without_holders(struct bench *b)
{
    b->entries[2].holders = 3;
}
static void target_of_no_kind(struct bench *b)
{
    b->placements[3].at.of[SW_GROUP_TP] = (struct sw_group){2, 3};
}
static void target_with_another_name(struct bench *b)
{
    b->parameters[3][5].name = "R";
}
static void target_with_another_shape(struct bench *b)
{
    b->parameters[2][6].shape[0] = 99;
}
static void target_past_its_region(struct bench *b)
{
    b->parameters[3][6].offset = 4000;
}
static void target_without_the_region(struct bench *b)
{
    b->parameters[2][6].region = 1;
}
static void target_with_an_overlap(struct bench *b)
{
    b->parameters[3][2].offset = 100;
}
static void alias_elsewhere(struct bench *b)
{
    b->parameters[2][1].offset = 3000;
}
static void alias_of_nothing(struct bench *b)
{
    for (uint32_t i = 0; i < 4; i++)
        b->parameters[i][1].alias_of = "V";
}
static void alias_of_itself(struct bench *b)
{
    b->named[1].alias_of = "w_tied";
}

struct planted {
    const char *name;
    void (*plant)(struct bench *);
    const char *text; /* that the message must have */
};

#define PLANT(f, t)                                                                                \
    {                                                                                              \
#f, f, t                                                                                   \
    }

static const struct planted planted[] = {
    PLANT(other_slab_of_w, "parameter W: is made of another part"),
    PLANT(other_half_by_name, "parameter w: is made of another part"),
    PLANT(other_experts, "parameter E: is made of another part"),
    PLANT(other_tensor, "parameter W: is made of another tensor"),
    PLANT(other_name, "parameter v: is made of a tensor of another name"),
    PLANT(other_shape_by_name, "parameter w: "),
    PLANT(other_cast, "slab 2 (e)"),
    PLANT(copy_that_casts, "format 0"),
    PLANT(other_scale_format, "parameter Q: is made by another transform"),
    PLANT(scales_of_other_blocks, "slab 5 (q): no rank that quantises"),
    PLANT(other_block, "parameter Q: is made by another transform"),
    PLANT(unquantised_block, "format 2"),
    PLANT(format_of_another_source, "slab 2 (e) is read as another dtype"),
    PLANT(zeros_for_values, "parameter W: is made of another tensor"),
    PLANT(values_for_zeros, "parameter P: "),
    PLANT(byte_in_no_want, "parameter E: a byte of it is in no want"),
    PLANT(parameter_in_no_want, "parameter Q_scale: no byte of it"),
    PLANT(storage_in_no_want, "parameter w_tied: no byte of it"),
    PLANT(byte_wanted_twice, "parameter P: a byte of it is wanted twice"),
    PLANT(same_want_twice, "parameter E: a byte of it is wanted twice"),
    PLANT(want_past_the_end, "parameter P: a want goes past its end"),
    PLANT(want_far_past_the_end, "parameter P: a want begins past its end"),
    PLANT(want_inside_an_element, "parameter P: a want begins inside an element"),
    PLANT(want_across_pieces, "engine A rank 0, parameter P: a want lies in no piece"),
    PLANT(wants_out_of_order, "not in the order of parameters"),
    PLANT(derived_is_wanted, "parameter D: is derived by the engine"),
    PLANT(alias_wanted_too, "parameter w_tied: "),
    PLANT(both_aliases_wanted, "parameter W_alias: is written twice"),
    PLANT(cell_of_another_rank, "rank 0 has a cell of it that it does not hold"),
    PLANT(cell_past_what_is_held, "rank 0 has a cell of it that it does not hold"),
    PLANT(cell_that_leaves_a_hole, "split 0 leaves a hole"),
    PLANT(cells_that_overlap, "split 3 overlaps"),
    PLANT(cell_past_its_slab, "split 0 goes past it"),
    PLANT(cell_with_other_bytes, "has not 48 bytes"),
    PLANT(scales_by_a_rank_without_the_block, "rank 0 has a cell of it that it does not hold"),
    PLANT(blocks_that_nobody_holds_whole, "holds the rest"),
    PLANT(holder_that_holds_nothing, "rank 0 does not hold the box of w"),
    PLANT(holder_of_another_box, "rank 0 does not hold the box of w"),
    PLANT(rank_without_the_tensor, "does not hold all of the tensors"),
    PLANT(one_tensor_of_a_pattern_missing, "does not hold all of the tensors"),
    PLANT(tensor_of_another_shape, "q has another dtype or shape"),
    PLANT(tensor_of_another_dtype, "q has another dtype or shape"),
    PLANT(tensor_twice_in_a_list, "declares w twice"),
    PLANT(entry_twice, "tensor w is in the catalogue twice"),
    PLANT(group_past_the_list, "w has another"),
    PLANT(tiles_that_overlap, "rank 1: tiles of runs 3 and 4 overlap"),
    PLANT(tile_past_the_replica, "rank 1: run 5"),
    PLANT(run_past_the_replica, "rank 0: run 4"),
    PLANT(slabs_at_one_place, "lies where another one does"),
    PLANT(slab_past_its_run, "is in no run"),
    PLANT(place_without_a_slab, "more slabs than there are"),
    PLANT(run_of_another_split, "another split or wave"),
    PLANT(run_of_another_wave, "another split or wave"),
    PLANT(slab_past_its_tensor, "slab 1 (w) is empty, or goes past its tensor"),
    PLANT(slab_past_its_blocks, "slab 5 (q) is empty, or goes past its tensor"),
    PLANT(slab_of_other_dimensions, "slab 3 (e) is empty, or goes past its tensor"),
    PLANT(slab_without_a_box, "slab 6 (zeros) has a format or box"),
    PLANT(slab_without_a_tensor, "is of a tensor that there is not"),
    PLANT(no_source_and_no_zeros, "slab 0 (zeros) has no source"),
    PLANT(want_without_a_slab, "want 3 is of a slab that there is not"),
    PLANT(want_of_no_kind, "1 wants are of no kind"),
    PLANT(kinds_share_wants, "the wants of kind 1"),
    PLANT(kind_without_a_target, "kind 1 is that of a target"),
    PLANT(cell_without_a_rank, "cell 8 is of a rank"),
    PLANT(split_past_the_cells, "split 5 has no cells"),
    PLANT(split_without_cells, "split 5 has no cells"),
    PLANT(run_past_the_bases, "run 4 of slabs"),
    PLANT(holders_out_of_order, "pattern of holders 0"),
    PLANT(holders_past_the_list, "pattern of holders 2"),
    PLANT(holder_without_a_rank, "pattern of holders 2"),
    PLANT(entry_without_holders, "tensor e of the catalogue"),
    PLANT(target_of_no_kind, "engine B rank 1 is of no kind"),
    PLANT(target_with_another_name, "engine B rank 1 is of no kind"),
    PLANT(target_with_another_shape, "engine B rank 0 is of no kind"),
    PLANT(target_past_its_region, "engine B rank 1: parameter D does not lie in its region"),
    PLANT(target_without_the_region, "engine B rank 0: parameter D does not lie in its region"),
    PLANT(target_with_an_overlap, "parameters P and Q overlap"),
    PLANT(alias_elsewhere, "W_alias is declared an alias of W, which does not lie at the same"),
    PLANT(alias_of_nothing, "alias of V, which is none"),
    PLANT(alias_of_itself, "is an alias of itself"),
};

START_TEST(every_planted_error_is_found)
{
    const struct planted *p = &planted[_i];
    struct bench b;
    struct sw_error e = {0};
    int code;

    setup_bench(&b);
    p->plant(&b);
    code = prove(&b, &e);
    ck_assert_msg(code == SW_ERR_PLAN, "%s: %d %s", p->name, code, e.text);
    ck_assert_msg(strstr(e.text, p->text) != NULL, "%s: %s", p->name, e.text);
}
END_TEST

/* Whatever numbers a plan has, the proof says yes or no: it reads nothing outside (sanitizers). */
START_TEST(random_numbers_are_only_refused)
{
    static struct bench b;
    const struct {
        void *at;
        size_t bytes;
    } parts[] = {{b.holders, sizeof(b.holders)}, {b.items, sizeof(b.items)},
        {b.formats, sizeof(b.formats)}, {b.boxes, sizeof(b.boxes)}, {b.slabs, sizeof(b.slabs)},
        {b.splits, sizeof(b.splits)}, {b.cells, sizeof(b.cells)}, {b.runs, sizeof(b.runs)},
        {b.bases, sizeof(b.bases)}, {b.wants, sizeof(b.wants)}, {b.kinds, sizeof(b.kinds)},
        {b.replica_bytes, sizeof(b.replica_bytes)}, {b.held, sizeof(b.held)},
        {b.entries[0].shape, sizeof(b.entries[0].shape)},
        {b.parameters[0][2].shape, sizeof(b.parameters[0][2].shape)}};
    const uint32_t numbers[] = {0, 1, 2, 3, 7, 8, 64, 4096, 1u << 31, UINT32_MAX - 1, UINT32_MAX};
    int refused = 0;

    for (int round = 0; round < 20000; round++) {
        setup_bench(&b);
        for (int i = 0; i < 1 + round % 3; i++) {
            const size_t part = (size_t)rand() % (sizeof(parts) / sizeof(*parts));
            uint32_t *words = parts[part].at;

            words[(size_t)rand() % (parts[part].bytes / sizeof(*words))] =
                numbers[(size_t)rand() % (sizeof(numbers) / sizeof(*numbers))];
        }
        refused += prove(&b, NULL) != 0;
    }
    ck_assert_int_gt(refused, 10000);
}
END_TEST

/* ---- boxes ---- */

START_TEST(partitions)
{
    const uint64_t shape[] = {4, 6};
    struct sw_box b[] = {box2(0, 0, 2, 6), box2(2, 0, 2, 3), box2(2, 3, 2, 3)};
    uint32_t at;

    ck_assert_int_eq(sw_proof_box_partition(b, 3, 2, shape, &at), SW_PROOF_PARTITION_OK);
    ck_assert_int_eq(sw_proof_box_partition(b, 2, 2, shape, &at), SW_PROOF_PARTITION_HOLE);
    b[2].lo[1] = 2;
    ck_assert_int_eq(sw_proof_box_partition(b, 3, 2, shape, &at), SW_PROOF_PARTITION_OVERLAP);
    ck_assert_uint_eq(at, 2);
    b[2].lo[1] = 4;
    ck_assert_int_eq(sw_proof_box_partition(b, 3, 2, shape, &at), SW_PROOF_PARTITION_OUTSIDE);
    b[2] = box2(2, 3, 2, 0);
    ck_assert_int_eq(sw_proof_box_partition(b, 3, 2, shape, &at), SW_PROOF_PARTITION_OUTSIDE);
    b[0].ndim = 0;
    ck_assert_int_eq(sw_proof_box_partition(b, 1, 0, shape, &at), SW_PROOF_PARTITION_OK);
}
END_TEST

/* Against painting cells one by one. */
START_TEST(random_boxes_are_judged_as_by_painting)
{
    for (int round = 0; round < 3000; round++) {
        const uint64_t shape[] = {4, 5};
        struct sw_box b[6], region = box2(rand() % 3, rand() % 4, 1 + rand() % 2, 1 + rand() % 2);
        const uint32_t n = 1 + rand() % 6;
        int count[4][5] = {0}, overlap = 0, hole = 0, bare = 0, expected;
        uint32_t at;

        for (uint32_t i = 0; i < n; i++) {
            const uint64_t row = rand() % 4, column = rand() % 5;

            b[i] = box2(row, column, 1 + rand() % (4 - row), 1 + rand() % (5 - column));
            for (uint64_t r = 0; r < b[i].len[0]; r++)
                for (uint64_t c = 0; c < b[i].len[1]; c++)
                    count[row + r][column + c]++;
        }
        for (uint64_t r = 0; r < 4; r++)
            for (uint64_t c = 0; c < 5; c++) {
                overlap += count[r][c] > 1;
                hole += count[r][c] == 0;
                bare += count[r][c] == 0 && r >= region.lo[0] && r < region.lo[0] + region.len[0] &&
                        c >= region.lo[1] && c < region.lo[1] + region.len[1];
            }
        expected = overlap ? SW_PROOF_PARTITION_OVERLAP
                   : hole  ? SW_PROOF_PARTITION_HOLE
                           : SW_PROOF_PARTITION_OK;
        ck_assert_int_eq(sw_proof_box_partition(b, n, 2, shape, &at), expected);
        ck_assert_int_eq(sw_proof_box_covers(b, n, sizeof(*b), &region), bare == 0);
    }
}
END_TEST

START_TEST(blocks_end_at_the_tensor)
{
    const uint32_t block[] = {4, 3};
    const uint64_t shape[] = {2, 10, 7};
    struct sw_box b = {.ndim = 3, .lo = {1, 5, 2}, .len = {1, 1, 2}}, r;
    uint64_t grid[3];

    sw_proof_box_grid(block, 3, shape, grid);
    ck_assert_uint_eq(grid[0], 2);
    ck_assert_uint_eq(grid[1], 3);
    ck_assert_uint_eq(grid[2], 3);
    r = sw_proof_box_blocks(&b, false, block, 3, shape);
    ck_assert(r.lo[0] == 1 && r.len[0] == 1 && r.lo[1] == 4 && r.len[1] == 4);
    ck_assert(r.lo[2] == 0 && r.len[2] == 6);
    b = (struct sw_box){.ndim = 3, .lo = {0, 2, 2}, .len = {2, 1, 1}};
    r = sw_proof_box_blocks(&b, true, block, 3, shape);
    ck_assert(r.lo[1] == 8 && r.len[1] == 2 && r.lo[2] == 6 && r.len[2] == 1 && r.len[0] == 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("compact proof");
    TCase *t = tcase_create("all");

    tcase_add_test(t, a_right_plan_is_proven);
    tcase_add_test(t, waves_use_the_same_memory_one_after_another);
    tcase_add_test(t, nothing_is_a_plan_for_nothing);
    tcase_add_loop_test(
        t, every_planted_error_is_found, 0, (int)(sizeof(planted) / sizeof(*planted)));
    tcase_add_test(t, random_numbers_are_only_refused);
    tcase_add_test(t, partitions);
    tcase_add_test(t, random_boxes_are_judged_as_by_painting);
    tcase_add_test(t, blocks_end_at_the_tensor);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
