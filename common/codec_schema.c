/* SPDX-License-Identifier: Apache-2.0 */
#include "common/codec_schema.h"

#include <sys/un.h>
#include "shardwire.pb-c.h"

#define PATH_LIMIT (sizeof(((struct sockaddr_un *)0)->sun_path) - 1)
#define HOST_LIMIT (SW_LABEL_MAX * 4)
#define RANK_LIMIT (SW_WORLD_MAX - 1)
#define ANY UINT64_MAX

/*
 * Rows are (our struct, protobuf message, member, ...). The macros prove at compile time that both
 * members have the sizes that the walkers assume.
 */
#define PB(p) Shardwire__V1__##p
#define SIZE(type, m) sizeof(((type *)0)->m)
#define PROVEN(condition) (0 * sizeof(char[(condition) ? 1 : -1]))
#define OURS(o, m, bytes) offsetof(struct o, m) + PROVEN(SIZE(struct o, m) == (bytes))
#define THEIRS(p, m, bytes) offsetof(PB(p), m) + PROVEN(SIZE(PB(p), m) == (bytes))
#define COUNTED(o, p, m, n)                                                                        \
    .offset = OURS(o, m, sizeof(void *)), .count = OURS(o, n, 4), .n_pb = THEIRS(p, n_##m, 8)

#define SCALAR(o, p, m, t, bytes, limit)                                                           \
    {                                                                                              \
        .name = #m, .type = SW_FIELD_##t, .max = (limit), .offset = OURS(o, m, bytes),             \
        .pb = THEIRS(p, m, bytes)                                                                  \
    }
#define U32(o, p, m, limit) SCALAR(o, p, m, U32, 4, limit)
#define U64(o, p, m, limit) SCALAR(o, p, m, U64, 8, limit)
#define BOOL(o, p, m) SCALAR(o, p, m, BOOL, 4, 1)
#define CODE(o, p, m) SCALAR(o, p, m, CODE, 4, 0)
#define ENUM(o, p, m, last) SCALAR(o, p, m, ENUM, 4, last)
#define NAME(o, p, m, limit) SCALAR(o, p, m, NAME, sizeof(char *), limit)
#define TEXT(o, p, m) SCALAR(o, p, m, TEXT, sizeof(char *), SW_TEXT_MAX)
#define BYTES(o, p, m)                                                                             \
    {                                                                                              \
        .name = #m, .type = SW_FIELD_BYTES, .offset = offsetof(struct o, m),                       \
        .size = SIZE(struct o, m), .pb = THEIRS(p, m, sizeof(ProtobufCBinaryData))                 \
    }
#define STRUCT(o, p, m, schema)                                                                    \
    {                                                                                              \
        .name = #m, .type = SW_FIELD_STRUCT, .offset = offsetof(struct o, m),                      \
        .pb = THEIRS(p, m, sizeof(void *)), .sub = &(schema)                                       \
    }
#define STRUCTS(o, p, m, n, limit, schema)                                                         \
    .name = #m, .type = SW_FIELD_STRUCTS, .max = (limit), COUNTED(o, p, m, n),                     \
    .size = sizeof(*((struct o *)0)->m), .pb = THEIRS(p, m, sizeof(void *)), .sub = &(schema)
#define NUMBERS(o, p, m, n, limit)                                                                 \
    {                                                                                              \
        .name = #m, .type = SW_FIELD_NUMBERS, .max = (limit), COUNTED(o, p, m, n), .size = 8,      \
        .pb = THEIRS(p, m, sizeof(void *))                                                         \
    }
#define BLOBS(o, p, m, n, limit)                                                                   \
    {                                                                                              \
        .name = #m, .type = SW_FIELD_BLOBS, .max = (limit), .offset = OURS(o, m, sizeof(void *)),  \
        .count = OURS(o, n, 4), .size = sizeof(*((struct o *)0)->m),                               \
        .pb = THEIRS(p, m, sizeof(ProtobufCBinaryData))                                            \
    }
#define COLUMNS(o, m, n, limit, schema)                                                            \
    .name = #m, .type = SW_FIELD_COLUMNS, .max = (limit), .offset = OURS(o, m, sizeof(void *)),    \
    .count = OURS(o, n, 4), .size = sizeof(*((struct o *)0)->m), .sub = &(schema)
#define PARTS(o, f, t, limit) .first = OURS(o, f, 4), .total = OURS(o, t, 4), .total_max = (limit)

/* A column: member m of the item is column c of message p. */
#define COLUMN(o, p, m, c, t, bytes, item, limit)                                                  \
    .name = #c, .type = SW_FIELD_##t, .max = (limit), .offset = OURS(o, m, bytes),                 \
    .pb = offsetof(PB(p), c) + PROVEN(sizeof(*((PB(p) *)0)->c) == (item)),                         \
    .n_pb = offsetof(PB(p), n_##c)
#define COL_U32(o, p, m, c, limit)                                                                 \
    {                                                                                              \
        COLUMN(o, p, m, c, U32, 4, 4, limit)                                                       \
    }
#define COL_U64(o, p, m, c)                                                                        \
    {                                                                                              \
        COLUMN(o, p, m, c, U64, 8, 8, ANY)                                                         \
    }
#define COL_ENUM(o, p, m, c, last)                                                                 \
    {                                                                                              \
        COLUMN(o, p, m, c, ENUM, 4, 4, last)                                                       \
    }
#define COL_NAME(o, p, m, c, limit)                                                                \
    {                                                                                              \
        COLUMN(o, p, m, c, NAME, sizeof(char *), sizeof(char *), limit)                            \
    }
#define COL_DIMS(o, p, m, c, n)                                                                    \
    {                                                                                              \
        COLUMN(o, p, m, c, DIMS, 8 * SW_MAX_DIMS, 8, ANY), .count = OURS(o, n, 4)                  \
    }

#define SCHEMA_RULE(name, o, p, check)                                                             \
    static const struct sw_schema name = {.pb = &shardwire__v1__##p##__descriptor,                 \
        .size = sizeof(struct o),                                                                  \
        .n_fields = sizeof(name##_fields) / sizeof(name##_fields[0]),                              \
        .fields = name##_fields,                                                                   \
        .rule = (check)}
#define SCHEMA(name, o, p) SCHEMA_RULE(name, o, p, NULL)
#define COLUMN_SCHEMA(name, o)                                                                     \
    static const struct sw_schema name = {.size = sizeof(struct o),                                \
        .n_fields = sizeof(name##_fields) / sizeof(name##_fields[0]),                              \
        .fields = name##_fields}

/* ---- embedded ---- */

static const char *failure_rule(void *ours, bool decoding)
{
    struct sw_failure *failure = ours;

    if (decoding && failure->code == 0)
        failure->reason = "";
    return NULL;
}

static const struct sw_field failure_fields[] = {
    CODE(sw_failure, Failure, code),
    TEXT(sw_failure, Failure, reason),
};
SCHEMA_RULE(failure, sw_failure, failure, failure_rule);

/* ---- handshake ---- */

static const struct sw_field hello_fields[] = {
    U32(sw_hello, Hello, protocol_min, ANY),
    U32(sw_hello, Hello, protocol_max, ANY),
    NAME(sw_hello, Hello, group, SW_LABEL_MAX),
    ENUM(sw_hello, Hello, role, SW_ROLE_WRITER),
    BYTES(sw_hello, Hello, instance),
    BYTES(sw_hello, Hello, nonce),
    BOOL(sw_hello, Hello, has_secret),
    BYTES(sw_hello, Hello, proof),
    NAME(sw_hello, Hello, software, SW_LABEL_MAX),
    NAME(sw_hello, Hello, host, HOST_LIMIT),
};
SCHEMA(hello, sw_hello, hello);

static const struct sw_field hello_proof_fields[] = {
    BYTES(sw_hello_proof, HelloProof, proof),
};
SCHEMA(hello_proof, sw_hello_proof, hello_proof);

static const struct sw_schema hello_done = {.pb = &shardwire__v1__hello_done__descriptor};

/* ---- trainer -> trainerd -> coordinator, and back ---- */

static const struct sw_field trainer_open_fields[] = {
    U32(sw_trainer_open, TrainerOpen, rank, RANK_LIMIT),
    U32(sw_trainer_open, TrainerOpen, world, SW_WORLD_MAX),
    U32(sw_trainer_open, TrainerOpen, pid, ANY),
    BYTES(sw_trainer_open, TrainerOpen, trainer),
};
SCHEMA(trainer_open, sw_trainer_open, trainer_open);

static const struct sw_field source_fields[] = {
    COL_NAME(sw_source, Sources, name, name, SW_NAME_MAX),
    COL_ENUM(sw_source, Sources, dtype, dtype, SW_DTYPE_COUNT - 1),
    COL_U32(sw_source, Sources, ndim, ndim, SW_MAX_DIMS),
    COL_DIMS(sw_source, Sources, shape, shape, ndim),
    COL_DIMS(sw_source, Sources, box.lo, box_lo, ndim),
    COL_DIMS(sw_source, Sources, box.len, box_len, ndim),
};
COLUMN_SCHEMA(source, sw_source);

/* A box has as many dimensions as its tensor: sent once. */
static const char *sources_rule(void *ours, bool decoding)
{
    struct sw_sources *sources = ours;

    for (uint32_t i = 0; i < sources->n; i++) {
        struct sw_source *item = &sources->items[i];

        if (decoding)
            item->box.ndim = item->ndim;
        else if (item->box.ndim != item->ndim)
            return "a box whose number of dimensions is not its tensor's";
    }
    return NULL;
}

static const struct sw_field sources_fields[] = {
    U32(sw_sources, Sources, rank, RANK_LIMIT),
    U32(sw_sources, Sources, world, SW_WORLD_MAX),
    BYTES(sw_sources, Sources, trainer),
    U32(sw_sources, Sources, first, SW_TENSORS_MAX),
    U32(sw_sources, Sources, total, SW_TENSORS_MAX),
    {COLUMNS(sw_sources, items, n, SW_PART_ITEMS_MAX, source),
        PARTS(sw_sources, first, total, SW_TENSORS_MAX)},
};
SCHEMA_RULE(sources, sw_sources, sources, sources_rule);

static const struct sw_field rank_reply_fields[] = {
    U32(sw_rank_reply, RankReply, rank, RANK_LIMIT),
    U64(sw_rank_reply, RankReply, version, ANY),
    U64(sw_rank_reply, RankReply, layout_epoch, ANY),
    U32(sw_rank_reply, RankReply, buffer, ANY),
    STRUCT(sw_rank_reply, RankReply, error, failure),
};
SCHEMA(rank_reply, sw_rank_reply, rank_reply);

static const struct sw_field begin_fields[] = {
    U32(sw_begin, Begin, rank, RANK_LIMIT), U64(sw_begin, Begin, version, ANY),
    {.name = "base",
        .type = SW_FIELD_U64,
        .max = ANY,
        .offset = OURS(sw_begin, base, 8),
        .pb = THEIRS(Begin, base_version, 8)}, /* protobuf-c has a member `base` of its own */
};
SCHEMA(begin, sw_begin, begin);

static const struct sw_field template_fields[] = {
    COL_ENUM(sw_load_template, LoadProgram, transform, template_transform, SW_TRANSFORM_ZERO),
    COL_U32(sw_load_template, LoadProgram, src_dtype, template_src_dtype, SW_DTYPE_COUNT - 1),
    COL_ENUM(sw_load_template, LoadProgram, dst_dtype, template_dst_dtype, SW_DTYPE_COUNT - 1),
    COL_U32(sw_load_template, LoadProgram, ndim, template_ndim, SW_MAX_DIMS),
    COL_DIMS(sw_load_template, LoadProgram, lo, template_lo, ndim),
    COL_DIMS(sw_load_template, LoadProgram, len, template_len, ndim),
    COL_DIMS(sw_load_template, LoadProgram, dst_stride, template_dst_stride, ndim),
};
COLUMN_SCHEMA(template, sw_load_template);

static const struct sw_field load_fields[] = {
    COL_U32(sw_load, LoadProgram, source, load_source, ANY), /* see load_program_rule */
    COL_U32(sw_load, LoadProgram, tmpl, load_tmpl, SW_TENSORS_MAX - 1),
    COL_U32(sw_load, LoadProgram, tile, load_tile, SW_EXTENTS_MAX - 1),
    COL_U64(sw_load, LoadProgram, offset, load_offset),
    COL_U32(sw_load, LoadProgram, grid, load_grid, ANY),
};
COLUMN_SCHEMA(load, sw_load);

static const struct sw_field grid_fields[] = {
    COL_U32(sw_grid, LoadProgram, source, grid_source, SW_TENSORS_MAX - 1),
    COL_U32(sw_grid, LoadProgram, block[0], grid_block_rows, ANY),
    COL_U32(sw_grid, LoadProgram, block[1], grid_block_columns, ANY),
    COL_ENUM(sw_grid, LoadProgram, scale, grid_scale, SW_SCALE_UE8M0),
    COL_U32(sw_grid, LoadProgram, shared, grid_shared, 1),
    COL_U64(sw_grid, LoadProgram, first, grid_first),
};
COLUMN_SCHEMA(grid, sw_grid);

static const struct sw_field check_fields[] = {
    COL_U32(sw_alias_check, LoadProgram, source, check_source, SW_TENSORS_MAX - 1),
    COL_U32(sw_alias_check, LoadProgram, set, check_set, ANY),
};
COLUMN_SCHEMA(check, sw_alias_check);

static const struct sw_field tile_fields[] = {
    COL_U64(sw_tile, LoadProgram, offset, tile_offset),
    COL_U64(sw_tile, LoadProgram, bytes, tile_bytes),
};
COLUMN_SCHEMA(tile, sw_tile);

/* No source and no source dtype are what constant zero has, no grid what isn't FP8. */
static const char *load_program_rule(void *ours, bool decoding)
{
    const struct sw_load_program *p = ours;

    (void)decoding;
    for (uint32_t i = 0; i < p->n_templates; i++)
        if (!p->templates[i].src_dtype != (p->templates[i].transform == SW_TRANSFORM_ZERO))
            return "a template without a source dtype is constant zero, and no other is";
    for (uint32_t i = 0; i < p->n_loads; i++) {
        if (p->loads[i].source >= SW_TENSORS_MAX && p->loads[i].source != UINT32_MAX)
            return "a load from a source whose number is over the limit";
        if (p->loads[i].grid >= SW_TENSORS_MAX && p->loads[i].grid != UINT32_MAX)
            return "a load with a grid whose number is over the limit";
    }
    return NULL;
}

static const struct sw_field load_program_fields[] = {
    U64(sw_load_program, LoadProgram, layout_epoch, ANY),
    U32(sw_load_program, LoadProgram, rank, RANK_LIMIT),
    U64(sw_load_program, LoadProgram, replica_bytes, SW_BYTES_MAX),
    U64(sw_load_program, LoadProgram, n_maxima, SW_BYTES_MAX / sizeof(float)),
    U32(sw_load_program, LoadProgram, first_template, SW_TENSORS_MAX),
    U32(sw_load_program, LoadProgram, total_templates, SW_TENSORS_MAX),
    {COLUMNS(sw_load_program, templates, n_templates, SW_PART_ITEMS_MAX, template),
        PARTS(sw_load_program, first_template, total_templates, SW_TENSORS_MAX)},
    U32(sw_load_program, LoadProgram, first_load, SW_EXTENTS_MAX),
    U32(sw_load_program, LoadProgram, total_loads, SW_EXTENTS_MAX),
    {COLUMNS(sw_load_program, loads, n_loads, SW_PART_ITEMS_MAX, load),
        PARTS(sw_load_program, first_load, total_loads, SW_EXTENTS_MAX)},
    U32(sw_load_program, LoadProgram, first_grid, SW_TENSORS_MAX),
    U32(sw_load_program, LoadProgram, total_grids, SW_TENSORS_MAX),
    {COLUMNS(sw_load_program, grids, n_grids, SW_PART_ITEMS_MAX, grid),
        PARTS(sw_load_program, first_grid, total_grids, SW_TENSORS_MAX)},
    U32(sw_load_program, LoadProgram, first_check, SW_TENSORS_MAX),
    U32(sw_load_program, LoadProgram, total_checks, SW_TENSORS_MAX),
    {COLUMNS(sw_load_program, checks, n_checks, SW_PART_ITEMS_MAX, check),
        PARTS(sw_load_program, first_check, total_checks, SW_TENSORS_MAX)},
    U32(sw_load_program, LoadProgram, first_tile, SW_EXTENTS_MAX),
    U32(sw_load_program, LoadProgram, total_tiles, SW_EXTENTS_MAX),
    {COLUMNS(sw_load_program, tiles, n_tiles, SW_PART_ITEMS_MAX, tile),
        PARTS(sw_load_program, first_tile, total_tiles, SW_EXTENTS_MAX)},
};
SCHEMA_RULE(load_program, sw_load_program, load_program, load_program_rule);

static const struct sw_field buffer_fields[] = {
    U32(sw_buffer, Buffer, rank, RANK_LIMIT),
    U32(sw_buffer, Buffer, index, ANY),
    U64(sw_buffer, Buffer, generation, ANY),
    U64(sw_buffer, Buffer, data_bytes, SW_BYTES_MAX),
    U64(sw_buffer, Buffer, counter_bytes, SW_BYTES_MAX),
    U64(sw_buffer, Buffer, maxima_bytes, SW_BYTES_MAX),
};
SCHEMA(buffer, sw_buffer, buffer);

static const struct sw_field share_fields[] = {
    COL_U64(sw_share, MaximaProgram, count, share_count),
    COL_U32(sw_share, MaximaProgram, first_member, share_first_member, ANY),
    COL_U32(sw_share, MaximaProgram, n_members, share_n_members, SW_WORLD_MAX),
};
COLUMN_SCHEMA(share, sw_share);

static const struct sw_field share_member_fields[] = {
    COL_U32(sw_share_member, MaximaProgram, rank, member_rank, RANK_LIMIT),
    COL_U64(sw_share_member, MaximaProgram, first, member_first),
};
COLUMN_SCHEMA(share_member, sw_share_member);

static const struct sw_field maxima_program_fields[] = {
    U64(sw_maxima_program, MaximaProgram, layout_epoch, ANY),
    U32(sw_maxima_program, MaximaProgram, first_share, SW_EXTENTS_MAX),
    U32(sw_maxima_program, MaximaProgram, total_shares, SW_EXTENTS_MAX),
    {COLUMNS(sw_maxima_program, shares, n_shares, SW_PART_ITEMS_MAX, share),
        PARTS(sw_maxima_program, first_share, total_shares, SW_EXTENTS_MAX)},
    U32(sw_maxima_program, MaximaProgram, first_member, SW_EXTENTS_MAX),
    U32(sw_maxima_program, MaximaProgram, total_members, SW_EXTENTS_MAX),
    {COLUMNS(sw_maxima_program, members, n_members, SW_PART_ITEMS_MAX, share_member),
        PARTS(sw_maxima_program, first_member, total_members, SW_EXTENTS_MAX)},
};
SCHEMA(maxima_program, sw_maxima_program, maxima_program);

static const struct sw_field maxima_fields[] = {
    U32(sw_maxima, Maxima, rank, RANK_LIMIT),
    U64(sw_maxima, Maxima, version, ANY),
};
SCHEMA(maxima, sw_maxima, maxima);

static const struct sw_field digest_fields[] = {
    COL_U32(sw_digest, End, set, digest_set, ANY),
    COL_U32(sw_digest, End, source, digest_source, SW_TENSORS_MAX - 1),
    COL_U64(sw_digest, End, high, digest_high),
    COL_U64(sw_digest, End, low, digest_low),
};
COLUMN_SCHEMA(digest, sw_digest);

static const struct sw_field end_fields[] = {
    U32(sw_end, End, rank, RANK_LIMIT),
    U64(sw_end, End, version, ANY),
    U64(sw_end, End, bytes, ANY),
    U64(sw_end, End, stage_ns, ANY),
    {COLUMNS(sw_end, digests, n, SW_TENSORS_MAX, digest)},
};
SCHEMA(end, sw_end, end);

static const struct sw_field abort_version_fields[] = {
    U32(sw_abort, Abort, rank, ANY),
    U64(sw_abort, Abort, version, ANY),
    TEXT(sw_abort, Abort, reason),
};
SCHEMA(abort_version, sw_abort, abort);

static const struct sw_field publish_fields[] = {
    U64(sw_publish, Publish, request, ANY),
    U64(sw_publish, Publish, version, ANY),
    BOOL(sw_publish, Publish, wait_only),
};
SCHEMA(publish, sw_publish, publish);

static const struct sw_field engine_result_fields[] = {
    NAME(sw_engine_result, EngineResult, engine, SW_LABEL_MAX),
    BOOL(sw_engine_result, EngineResult, live),
    U64(sw_engine_result, EngineResult, version, ANY),
    NAME(sw_engine_result, EngineResult, state, SW_LABEL_MAX),
    TEXT(sw_engine_result, EngineResult, reason),
    U64(sw_engine_result, EngineResult, drain_ns, ANY),
    U64(sw_engine_result, EngineResult, pause_ns, ANY),
    U64(sw_engine_result, EngineResult, write_ns, ANY),
    U64(sw_engine_result, EngineResult, post_ns, ANY),
    U64(sw_engine_result, EngineResult, bytes, ANY),
    NAME(sw_engine_result, EngineResult, transport, SW_LABEL_MAX),
};
SCHEMA(engine_result, sw_engine_result, engine_result);

static const struct sw_field result_fields[] = {
    U64(sw_result, Result, request, ANY),
    U64(sw_result, Result, version, ANY),
    STRUCT(sw_result, Result, error, failure),
    U64(sw_result, Result, stage_ns, ANY),
    U64(sw_result, Result, stage_bytes, ANY),
    {STRUCTS(sw_result, Result, engines, n, SW_ENGINES_MAX, engine_result)},
};
SCHEMA(result, sw_result, result);

static const struct sw_field rank_gone_fields[] = {
    U32(sw_rank_gone, RankGone, rank, RANK_LIMIT),
    BYTES(sw_rank_gone, RankGone, trainer),
    TEXT(sw_rank_gone, RankGone, reason),
};
SCHEMA(rank_gone, sw_rank_gone, rank_gone);

/* ---- coordinator <-> trainerd ---- */

static const struct sw_field plan_done_fields[] = {
    U64(sw_plan_done, PlanDone, layout_epoch, ANY),
    STRUCT(sw_plan_done, PlanDone, error, failure),
};
SCHEMA(plan_done, sw_plan_done, plan_done);

static const struct sw_field target_fields[] = {
    U32(sw_target, Target, target, ANY),
    NAME(sw_target, Target, engine, SW_LABEL_MAX),
    U32(sw_target, Target, engine_rank, RANK_LIMIT),
    BYTES(sw_target, Target, engine_instance),
    BYTES(sw_target, Target, inferd),
    NAME(sw_target, Target, address, HOST_LIMIT),
    U32(sw_target, Target, data_port, UINT16_MAX),
    NAME(sw_target, Target, unix_path, PATH_LIMIT),
    BYTES(sw_target, Target, host_nonce),
    NUMBERS(sw_target, Target, region_bytes, n_regions, SW_REGIONS_MAX),
};
SCHEMA(target, sw_target, target);

static const struct sw_field targets_fields[] = {
    U64(sw_targets, Targets, layout_epoch, ANY),
    U64(sw_targets, Targets, membership_epoch, ANY),
    U32(sw_targets, Targets, first, ANY),
    U32(sw_targets, Targets, total, ANY),
    {STRUCTS(sw_targets, Targets, items, n, SW_PART_ITEMS_MAX, target),
        PARTS(sw_targets, first, total, SW_EXTENTS_MAX)},
};
SCHEMA(targets, sw_targets, targets);

static const struct sw_field extent_fields[] = {
    COL_U64(sw_extent, WriteProgram, src, extent_src),
    COL_U64(sw_extent, WriteProgram, dst, extent_dst),
    COL_U64(sw_extent, WriteProgram, length, extent_length),
    COL_U32(sw_extent, WriteProgram, region, extent_region, SW_REGIONS_MAX - 1),
};
COLUMN_SCHEMA(extent, sw_extent);

static const struct sw_field write_program_fields[] = {
    U64(sw_write_program, WriteProgram, layout_epoch, ANY),
    U64(sw_write_program, WriteProgram, membership_epoch, ANY),
    U32(sw_write_program, WriteProgram, rank, RANK_LIMIT),
    U32(sw_write_program, WriteProgram, target, ANY),
    U32(sw_write_program, WriteProgram, first, SW_EXTENTS_MAX),
    U32(sw_write_program, WriteProgram, total, SW_EXTENTS_MAX),
    {COLUMNS(sw_write_program, extents, n, SW_PART_ITEMS_MAX, extent),
        PARTS(sw_write_program, first, total, SW_EXTENTS_MAX)},
};
SCHEMA(write_program, sw_write_program, write_program);

static const struct sw_field connect_fields[] = {
    U64(sw_connect, Connect, update, ANY),
    U64(sw_connect, Connect, version, ANY),
    U64(sw_connect, Connect, layout_epoch, ANY),
    U64(sw_connect, Connect, membership_epoch, ANY),
    U32(sw_connect, Connect, target, ANY),
    BLOBS(sw_connect, Connect, tokens, n, SW_TCP_CONNECTIONS_MAX),
};
SCHEMA(connect, sw_connect, connect);

static const struct sw_field connected_fields[] = {
    U64(sw_connected, Connected, update, ANY),
    U32(sw_connected, Connected, target, ANY),
    NAME(sw_connected, Connected, transport, SW_LABEL_MAX),
    TEXT(sw_connected, Connected, why),
    STRUCT(sw_connected, Connected, error, failure),
};
SCHEMA(connected, sw_connected, connected);

static const struct sw_field write_fields[] = {
    U64(sw_write, Write, update, ANY),
    U64(sw_write, Write, version, ANY),
    U32(sw_write, Write, target, ANY),
    BYTES(sw_write, Write, window),
};
SCHEMA(write, sw_write, write);

static const struct sw_field written_fields[] = {
    U64(sw_written, Written, update, ANY),
    U32(sw_written, Written, target, ANY),
    U64(sw_written, Written, bytes, ANY),
    U64(sw_written, Written, ns, ANY),
    STRUCT(sw_written, Written, error, failure),
};
SCHEMA(written, sw_written, written);

static const struct sw_field update_end_fields[] = {
    U64(sw_update_end, UpdateEnd, update, ANY),
    U32(sw_update_end, UpdateEnd, target, ANY),
};
SCHEMA(update_end, sw_update_end, update_end);

/* ---- engine -> inferd -> coordinator, and back ---- */

static const struct sw_field member_fields[] = {
    NAME(sw_member, Member, name, HOST_LIMIT),
    NAME(sw_member, Member, advertise, HOST_LIMIT),
    U32(sw_member, Member, data_port, UINT16_MAX),
    NAME(sw_member, Member, unix_path, PATH_LIMIT),
    BYTES(sw_member, Member, host_nonce),
};
SCHEMA(member, sw_member, member);

#define GROUP_MEMBER(kind, m, p)                                                                   \
    {                                                                                              \
        .name = #p, .type = SW_FIELD_U32, .max = ANY,                                              \
        .offset = OURS(sw_coordinates, of[kind].m, 4), .pb = THEIRS(Coordinates, p, 4)             \
    }
#define GROUP(kind, p) GROUP_MEMBER(kind, rank, p)
#define GROUP_SIZE(kind, p) GROUP_MEMBER(kind, size, p)

static const struct sw_field coordinates_fields[] = {
    GROUP(SW_GROUP_PP, pp),
    GROUP_SIZE(SW_GROUP_PP, pp_size),
    GROUP(SW_GROUP_TP, tp),
    GROUP_SIZE(SW_GROUP_TP, tp_size),
    GROUP(SW_GROUP_EP, ep),
    GROUP_SIZE(SW_GROUP_EP, ep_size),
    GROUP(SW_GROUP_DP, dp),
    GROUP_SIZE(SW_GROUP_DP, dp_size),
    GROUP(SW_GROUP_ATTN_TP, attn_tp),
    GROUP_SIZE(SW_GROUP_ATTN_TP, attn_tp_size),
    GROUP(SW_GROUP_MOE_TP, moe_tp),
    GROUP_SIZE(SW_GROUP_MOE_TP, moe_tp_size),
    GROUP(SW_GROUP_MLP_TP, mlp_tp),
    GROUP_SIZE(SW_GROUP_MLP_TP, mlp_tp_size),
    GROUP(SW_GROUP_SHARED_TP, shared_tp),
    GROUP_SIZE(SW_GROUP_SHARED_TP, shared_tp_size),
    GROUP(SW_GROUP_EMBED_TP, embed_tp),
    GROUP_SIZE(SW_GROUP_EMBED_TP, embed_tp_size),
    GROUP(SW_GROUP_HEAD_TP, head_tp),
    GROUP_SIZE(SW_GROUP_HEAD_TP, head_tp_size),
};
SCHEMA(coordinates, sw_coordinates, coordinates);

/* The items are plain numbers: a column list of structs that are one uint32_t. */
static const struct sw_field expert_fields[] = {
    {.name = "expert_map",
        .type = SW_FIELD_U32,
        .max = SW_EXPERTS_MAX - 1,
        .offset = 0,
        .pb = offsetof(PB(EngineRank), expert_map) +
              PROVEN(sizeof(*((PB(EngineRank) *)0)->expert_map) == sizeof(uint32_t)),
        .n_pb = offsetof(PB(EngineRank), n_expert_map)},
};
static const struct sw_schema expert = {
    .size = sizeof(uint32_t), .n_fields = 1, .fields = expert_fields};

static const char *engine_rank_rule(void *ours, bool decoding)
{
    const struct sw_engine_rank *r = ours;

    (void)decoding;
    if ((uint64_t)r->expert_map_layers * r->expert_map_slots != r->n_expert_map)
        return "an expert map that has not layers times slots numbers";
    return NULL;
}

static const struct sw_field engine_rank_fields[] = {
    NAME(sw_engine_rank, EngineRank, engine, SW_LABEL_MAX),
    U32(sw_engine_rank, EngineRank, rank, RANK_LIMIT),
    U32(sw_engine_rank, EngineRank, world, SW_WORLD_MAX),
    BYTES(sw_engine_rank, EngineRank, instance),
    STRUCT(sw_engine_rank, EngineRank, at, coordinates),
    NAME(sw_engine_rank, EngineRank, layout, SW_LABEL_MAX),
    U32(sw_engine_rank, EngineRank, kind, SW_ENGINE_VLLM),
    NAME(sw_engine_rank, EngineRank, config, SW_CONFIG_TEXT_MAX),
    NAME(sw_engine_rank, EngineRank, scale_format, SW_LABEL_MAX),
    U32(sw_engine_rank, EngineRank, block_rows, ANY),
    U32(sw_engine_rank, EngineRank, block_columns, ANY),
    U32(sw_engine_rank, EngineRank, fused_shared_experts, 1),
    U64(sw_engine_rank, EngineRank, expert_map_version, ANY),
    U32(sw_engine_rank, EngineRank, expert_map_layers, SW_EXPERT_MAP_MAX),
    U32(sw_engine_rank, EngineRank, expert_map_slots, SW_EXPERT_MAP_MAX),
    {COLUMNS(sw_engine_rank, expert_map, n_expert_map, SW_EXPERT_MAP_MAX, expert)},
    U64(sw_engine_rank, EngineRank, version, ANY),
    BOOL(sw_engine_rank, EngineRank, torn),
    U32(sw_engine_rank, EngineRank, pid, ANY),
    U32(sw_engine_rank, EngineRank, n_parameters, SW_PARAMETERS_MAX),
    NUMBERS(sw_engine_rank, EngineRank, region_bytes, n_regions, SW_REGIONS_MAX),
};
SCHEMA_RULE(engine_rank, sw_engine_rank, engine_rank, engine_rank_rule);

static const struct sw_field parameter_fields[] = {
    COL_NAME(sw_parameter, Parameters, name, name, SW_NAME_MAX),
    COL_ENUM(sw_parameter, Parameters, dtype, dtype, SW_DTYPE_COUNT - 1),
    COL_U32(sw_parameter, Parameters, ndim, ndim, SW_MAX_DIMS),
    COL_DIMS(sw_parameter, Parameters, shape, shape, ndim),
    COL_U32(sw_parameter, Parameters, region, region, SW_REGIONS_MAX - 1),
    COL_U64(sw_parameter, Parameters, offset, offset),
    {COLUMN(sw_parameter, Parameters, alias_of, alias_of, NAME, sizeof(char *), sizeof(char *),
         SW_NAME_MAX),
        .nullable = true},
};
COLUMN_SCHEMA(parameter, sw_parameter);

static const struct sw_field parameters_fields[] = {
    NAME(sw_parameters, Parameters, engine, SW_LABEL_MAX),
    U32(sw_parameters, Parameters, rank, RANK_LIMIT),
    BYTES(sw_parameters, Parameters, instance),
    U32(sw_parameters, Parameters, first, SW_PARAMETERS_MAX),
    U32(sw_parameters, Parameters, total, SW_PARAMETERS_MAX),
    {COLUMNS(sw_parameters, items, n, SW_PART_ITEMS_MAX, parameter),
        PARTS(sw_parameters, first, total, SW_PARAMETERS_MAX)},
};
SCHEMA(parameters, sw_parameters, parameters);

static const struct sw_field registered_fields[] = {
    NAME(sw_registered, Registered, engine, SW_LABEL_MAX),
    U32(sw_registered, Registered, rank, RANK_LIMIT),
    STRUCT(sw_registered, Registered, error, failure),
};
SCHEMA(registered, sw_registered, registered);

static const struct sw_field writer_ref_fields[] = {
    BYTES(sw_writer_ref, WriterRef, trainerd),
    U32(sw_writer_ref, WriterRef, connections, SW_TCP_CONNECTIONS_MAX),
};
SCHEMA(writer_ref, sw_writer_ref, writer_ref);

static const struct sw_field phase_fields[] = {
    ENUM(sw_phase_msg, PhaseStep, phase, SW_PHASE_ABORT),
    U64(sw_phase_msg, PhaseStep, update, ANY),
    U64(sw_phase_msg, PhaseStep, version, ANY),
    U64(sw_phase_msg, PhaseStep, layout_epoch, ANY),
    U64(sw_phase_msg, PhaseStep, membership_epoch, ANY),
    NAME(sw_phase_msg, PhaseStep, engine, SW_LABEL_MAX),
    U32(sw_phase_msg, PhaseStep, rank, RANK_LIMIT),
    BYTES(sw_phase_msg, PhaseStep, instance),
    U64(sw_phase_msg, PhaseStep, expected_bytes, ANY),
    TEXT(sw_phase_msg, PhaseStep, reason),
    {STRUCTS(sw_phase_msg, PhaseStep, writers, n, SW_WORLD_MAX, writer_ref)},
};
SCHEMA(phase, sw_phase_msg, phase_step);

static const struct sw_field issued_fields[] = {
    BYTES(sw_issued, Issued, trainerd),
    BLOBS(sw_issued, Issued, tokens, n, SW_TCP_CONNECTIONS_MAX),
};
SCHEMA(issued, sw_issued, issued);

static const struct sw_field phase_done_fields[] = {
    ENUM(sw_phase_done, PhaseDone, phase, SW_PHASE_ABORT),
    U64(sw_phase_done, PhaseDone, update, ANY),
    NAME(sw_phase_done, PhaseDone, engine, SW_LABEL_MAX),
    U32(sw_phase_done, PhaseDone, rank, RANK_LIMIT),
    BYTES(sw_phase_done, PhaseDone, instance),
    STRUCT(sw_phase_done, PhaseDone, error, failure),
    BYTES(sw_phase_done, PhaseDone, window),
    U64(sw_phase_done, PhaseDone, bytes, ANY),
    ENUM(sw_phase_done, PhaseDone, state, SW_RANK_GONE),
    {STRUCTS(sw_phase_done, PhaseDone, issued, n, SW_WORLD_MAX, issued)},
};
SCHEMA(phase_done, sw_phase_done, phase_done);

static const struct sw_field rank_state_fields[] = {
    NAME(sw_rank_state_msg, RankChange, engine, SW_LABEL_MAX),
    U32(sw_rank_state_msg, RankChange, rank, RANK_LIMIT),
    BYTES(sw_rank_state_msg, RankChange, instance),
    ENUM(sw_rank_state_msg, RankChange, state, SW_RANK_GONE),
    U64(sw_rank_state_msg, RankChange, version, ANY),
    TEXT(sw_rank_state_msg, RankChange, reason),
};
SCHEMA(rank_state, sw_rank_state_msg, rank_change);

/* ---- data paths ---- */

static const struct sw_field path_open_fields[] = {
    NAME(sw_path_open, PathOpen, engine, SW_LABEL_MAX),
    U32(sw_path_open, PathOpen, engine_rank, RANK_LIMIT),
    BYTES(sw_path_open, PathOpen, engine_instance),
    U64(sw_path_open, PathOpen, layout_epoch, ANY),
    BOOL(sw_path_open, PathOpen, local),
    BYTES(sw_path_open, PathOpen, host_nonce),
    BYTES(sw_path_open, PathOpen, token),
};
SCHEMA(path_open, sw_path_open, path_open);

static const struct sw_field path_done_fields[] = {
    STRUCT(sw_path_done, PathDone, error, failure),
};
SCHEMA(path_done, sw_path_done, path_done);

static const struct sw_field local_source_fields[] = {
    U64(sw_local_source, LocalSource, source, ANY),
    U64(sw_local_source, LocalSource, bytes, SW_BYTES_MAX),
};
SCHEMA(local_source, sw_local_source, local_source);

static const struct sw_field local_mapped_fields[] = {
    U64(sw_local_mapped, LocalMapped, source, ANY),
    STRUCT(sw_local_mapped, LocalMapped, error, failure),
};
SCHEMA(local_mapped, sw_local_mapped, local_mapped);

static const struct sw_field local_copy_fields[] = {
    U64(sw_local_copy, LocalCopy, copy, ANY),
    U64(sw_local_copy, LocalCopy, source, ANY),
    BYTES(sw_local_copy, LocalCopy, window),
    ENUM(sw_local_copy, LocalCopy, mode, SW_LOCAL_VERIFY),
    U64(sw_local_copy, LocalCopy, n, SW_EXTENTS_MAX),
};
SCHEMA(local_copy, sw_local_copy, local_copy);

static const struct sw_field local_done_fields[] = {
    U64(sw_local_done, LocalDone, copy, ANY),
    U64(sw_local_done, LocalDone, bytes, ANY),
    STRUCT(sw_local_done, LocalDone, error, failure),
};
SCHEMA(local_done, sw_local_done, local_done);

/* ---- anyone -> daemon ---- */

static const struct sw_field status_fields[] = {
    U64(sw_status, Status, request, ANY),
};
SCHEMA(status, sw_status, status);

static const struct sw_field engines_fields[] = {
    U64(sw_engines, Engines, request, ANY),
};
SCHEMA(engines, sw_engines, engines);

static const struct sw_field engines_done_fields[] = {
    U64(sw_engines_done, EnginesDone, request, ANY),
    U32(sw_engines_done, EnginesDone, n, ANY),
};
SCHEMA(engines_done, sw_engines_done, engines_done);

static const struct sw_field status_text_fields[] = {
    U64(sw_status_text, StatusText, request, ANY),
    BOOL(sw_status_text, StatusText, last),
    NAME(sw_status_text, StatusText, text, SW_FRAME_MAX),
};
SCHEMA(status_text, sw_status_text, status_text);

/* ---- kinds ---- */

#define KINDS(X)                                                                                   \
    X(HELLO, hello)                                                                                \
    X(HELLO_REPLY, hello)                                                                          \
    X(HELLO_PROOF, hello_proof)                                                                    \
    X(HELLO_DONE, hello_done)                                                                      \
    X(ERROR, failure)                                                                              \
    X(TRAINER_OPEN, trainer_open)                                                                  \
    X(SOURCES, sources)                                                                            \
    X(SOURCES_DONE, rank_reply)                                                                    \
    X(BEGIN, begin)                                                                                \
    X(BEGIN_DONE, rank_reply)                                                                      \
    X(LOAD_PROGRAM, load_program)                                                                  \
    X(BUFFER, buffer)                                                                              \
    X(END, end)                                                                                    \
    X(END_DONE, rank_reply)                                                                        \
    X(ABORT, abort_version)                                                                        \
    X(PUBLISH, publish)                                                                            \
    X(RESULT, result)                                                                              \
    X(RANK_GONE, rank_gone)                                                                        \
    X(PLAN_DONE, plan_done)                                                                        \
    X(TARGETS, targets)                                                                            \
    X(WRITE_PROGRAM, write_program)                                                                \
    X(CONNECT, connect)                                                                            \
    X(CONNECTED, connected)                                                                        \
    X(WRITE, write)                                                                                \
    X(WRITTEN, written)                                                                            \
    X(UPDATE_END, update_end)                                                                      \
    X(MEMBER, member)                                                                              \
    X(ENGINE_RANK, engine_rank)                                                                    \
    X(PARAMETERS, parameters)                                                                      \
    X(REGISTERED, registered)                                                                      \
    X(PHASE, phase)                                                                                \
    X(PHASE_DONE, phase_done)                                                                      \
    X(RANK_STATE, rank_state)                                                                      \
    X(PATH_OPEN, path_open)                                                                        \
    X(PATH_DONE, path_done)                                                                        \
    X(LOCAL_SOURCE, local_source)                                                                  \
    X(LOCAL_MAPPED, local_mapped)                                                                  \
    X(LOCAL_COPY, local_copy)                                                                      \
    X(LOCAL_DONE, local_done)                                                                      \
    X(STATUS, status)                                                                              \
    X(STATUS_TEXT, status_text)                                                                    \
    X(MAXIMA_PROGRAM, maxima_program)                                                              \
    X(MAXIMA, maxima)                                                                              \
    X(MAXIMA_DONE, rank_reply)                                                                     \
    X(ENGINES, engines)                                                                            \
    X(ENGINES_DONE, engines_done)

#define SAME_NUMBER(NAME, schema)                                                                  \
    _Static_assert((int)SW_MSG_##NAME == (int)SHARDWIRE__V1__FRAME__BODY_##NAME,                   \
        "a kind's number is its number in the Frame");
KINDS(SAME_NUMBER)

_Static_assert((int)SW_ROLE_WRITER == (int)SHARDWIRE__V1__ROLE__ROLE_WRITER, "roles");
_Static_assert((int)SW_PHASE_ABORT == (int)SHARDWIRE__V1__PHASE__PHASE_ABORT, "phases");
_Static_assert((int)SW_RANK_GONE == (int)SHARDWIRE__V1__RANK_STATE__RANK_STATE_GONE, "states");
_Static_assert((int)SW_LOCAL_VERIFY == (int)SHARDWIRE__V1__LOCAL_MODE__LOCAL_MODE_VERIFY, "modes");
_Static_assert((int)SW_TRANSFORM_ZERO == (int)SHARDWIRE__V1__TRANSFORM__TRANSFORM_ZERO, "zero");
_Static_assert((int)SW_SCALE_UE8M0 == (int)SHARDWIRE__V1__SCALE_FORMAT__SCALE_UE8M0, "scales");
_Static_assert((int)SW_ENGINE_VLLM == (int)SHARDWIRE__V1__ENGINE_KIND__ENGINE_VLLM, "kinds");
_Static_assert((int)SW_F6_E3M2 == (int)SHARDWIRE__V1__DTYPE__DTYPE_F6_E3M2, "dtypes");

const struct sw_schema *sw_schema_find(unsigned kind)
{
#define ROW(NAME, schema) [SW_MSG_##NAME] = &(schema),
    static const struct sw_schema *const kinds[SW_MSG_KIND_COUNT] = {KINDS(ROW)};

    return kind < SW_MSG_KIND_COUNT ? kinds[kind] : NULL;
}
