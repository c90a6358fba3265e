/* SPDX-License-Identifier: Apache-2.0 */
#include "common/test_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/codec_schema.h"

uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u); /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct maker {
    struct sw_msg *msg;
    uint64_t state;
    uint32_t items;
};

/* Never 0; small and huge numbers alike. */
static uint64_t number(struct maker *m, uint64_t most)
{
    const uint64_t value = test_random(&m->state) >> (test_random(&m->state) % 64);

    return 1 + (most == UINT64_MAX ? value >> 1 : value % most);
}

static uint32_t n32(struct maker *m, uint32_t most)
{
    return (uint32_t)number(m, most);
}

static uint64_t n64(struct maker *m)
{
    return number(m, UINT64_MAX);
}

static void *array(struct maker *m, uint32_t n, size_t size)
{
    void *out = sw_arena_array(&m->msg->arena, n, size);

    if (!out)
        abort();
    return out;
}

static const char *text(struct maker *m, uint32_t most)
{
    static const char *const letters[] = {"a", "Z", "0", ".", "_", " ", "\"", "\xc3\xbc",
        "\xe2\x82\xac", "\xf0\x9f\xa6\x8a", "\x01", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"};
    const uint32_t length = n32(m, most);
    char *out = array(m, length + 1, 1);
    uint32_t used = 0;

    for (;;) {
        const char *letter = letters[test_random(&m->state) % (sizeof(letters) / sizeof(*letters))];

        if (used + strlen(letter) > length)
            break;
        memcpy(out + used, letter, strlen(letter));
        used += (uint32_t)strlen(letter);
    }
    if (used == 0)
        out[0] = 'x';
    return out;
}

static void bytes(struct maker *m, void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)out)[i] = (uint8_t)test_random(&m->state);
}

static struct sw_id id(struct maker *m)
{
    struct sw_id out = {{0}};

    bytes(m, out.bytes, sizeof(out.bytes));
    return out;
}

static void dims(struct maker *m, uint32_t n, uint64_t out[SW_MAX_DIMS])
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = n64(m);
}

/* In place, like all structs that have padding: it is compared, too. */
static void failure(struct maker *m, struct sw_failure *out)
{
    out->code = -(int32_t)n32(m, 16);
    out->reason = text(m, SW_TEXT_MAX);
}

static enum sw_dtype dtype(struct maker *m)
{
    return (enum sw_dtype)n32(m, SW_DTYPE_COUNT - 1);
}

/* A part somewhere in a whole. */
static uint32_t part(struct maker *m, uint32_t *first, uint32_t *total, uint32_t most)
{
    const uint32_t n = n32(m, m->items);

    *first = n32(m, most / 2);
    *total = *first + n + n32(m, most / 4);
    return n;
}

static uint64_t *region_bytes(struct maker *m, uint32_t *n)
{
    uint64_t *out;

    *n = n32(m, m->items < SW_REGIONS_MAX ? m->items : SW_REGIONS_MAX);
    out = array(m, *n, sizeof(*out));
    for (uint32_t i = 0; i < *n; i++)
        out[i] = number(m, SW_BYTES_MAX);
    return out;
}

static struct sw_token *tokens(struct maker *m, uint32_t *n)
{
    struct sw_token *out;

    *n = n32(m, m->items < SW_TCP_CONNECTIONS_MAX ? m->items : SW_TCP_CONNECTIONS_MAX);
    out = array(m, *n, sizeof(*out));
    bytes(m, out, *n * sizeof(*out));
    return out;
}

static void make_hello(struct maker *m, struct sw_hello *u)
{
    u->protocol_min = n32(m, UINT32_MAX - 1);
    u->protocol_max = n32(m, UINT32_MAX - 1);
    u->group = text(m, SW_LABEL_MAX);
    u->role = (enum sw_role)n32(m, SW_ROLE_WRITER);
    u->instance = id(m);
    bytes(m, u->nonce, sizeof(u->nonce));
    u->has_secret = 1;
    bytes(m, u->proof, sizeof(u->proof));
    u->software = text(m, SW_LABEL_MAX);
    u->host = text(m, SW_LABEL_MAX * 4);
}

static void make_sources(struct maker *m, struct sw_sources *u)
{
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->world = n32(m, SW_WORLD_MAX);
    u->trainer = id(m);
    u->n = part(m, &u->first, &u->total, SW_TENSORS_MAX - SW_PART_ITEMS_MAX);
    u->items = array(m, u->n, sizeof(*u->items));
    for (uint32_t i = 0; i < u->n; i++) {
        struct sw_source *s = &u->items[i];

        s->name = text(m, SW_NAME_MAX);
        s->dtype = dtype(m);
        s->ndim = s->box.ndim = (uint32_t)(test_random(&m->state) % (SW_MAX_DIMS + 1));
        dims(m, s->ndim, s->shape);
        dims(m, s->ndim, s->box.lo);
        dims(m, s->ndim, s->box.len);
    }
}

static void make_rank_reply(struct maker *m, struct sw_rank_reply *u)
{
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->version = n64(m);
    u->layout_epoch = n64(m);
    u->buffer = n32(m, 2);
    failure(m, &u->error);
}

static void make_templates(struct maker *m, struct sw_load_program *u)
{
    u->n_templates =
        part(m, &u->first_template, &u->total_templates, SW_TENSORS_MAX - SW_PART_ITEMS_MAX);
    u->templates = array(m, u->n_templates, sizeof(*u->templates));
    for (uint32_t i = 0; i < u->n_templates; i++) {
        struct sw_load_template *t = &u->templates[i];

        t->transform = (enum sw_transform)n32(m, SW_TRANSFORM_ZERO);
        t->src_dtype = t->transform == SW_TRANSFORM_ZERO ? SW_DTYPE_INVALID : dtype(m);
        t->dst_dtype = dtype(m);
        t->ndim = n32(m, SW_MAX_DIMS);
        dims(m, t->ndim, t->lo);
        dims(m, t->ndim, t->len);
        dims(m, t->ndim, t->dst_stride);
    }
}

static void make_grids(struct maker *m, struct sw_load_program *u)
{
    u->n_maxima = number(m, SW_BYTES_MAX / sizeof(float));
    u->n_grids = part(m, &u->first_grid, &u->total_grids, SW_TENSORS_MAX - SW_PART_ITEMS_MAX);
    u->grids = array(m, u->n_grids, sizeof(*u->grids));
    for (uint32_t i = 0; i < u->n_grids; i++)
        u->grids[i] = (struct sw_grid){.source = n32(m, SW_TENSORS_MAX - 1),
            .block = {n32(m, 65536), n32(m, 65536)},
            .scale = (enum sw_scale_format)n32(m, SW_SCALE_UE8M0),
            .shared = i % 2,
            .first = n64(m)};
}

static void make_maxima_program(struct maker *m, struct sw_maxima_program *u)
{
    u->layout_epoch = n64(m);
    u->n_shares = part(m, &u->first_share, &u->total_shares, SW_EXTENTS_MAX - SW_PART_ITEMS_MAX);
    u->shares = array(m, u->n_shares, sizeof(*u->shares));
    for (uint32_t i = 0; i < u->n_shares; i++)
        u->shares[i] = (struct sw_share){.count = n64(m),
            .first_member = n32(m, SW_EXTENTS_MAX),
            .n_members = n32(m, SW_WORLD_MAX)};
    u->n_members = part(m, &u->first_member, &u->total_members, SW_EXTENTS_MAX - SW_PART_ITEMS_MAX);
    u->members = array(m, u->n_members, sizeof(*u->members));
    for (uint32_t i = 0; i < u->n_members; i++) {
        u->members[i].rank = n32(m, SW_WORLD_MAX - 1);
        u->members[i].first = n64(m);
    }
}

static void make_load_program(struct maker *m, struct sw_load_program *u)
{
    u->layout_epoch = n64(m);
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->replica_bytes = number(m, SW_BYTES_MAX);
    make_templates(m, u);
    u->n_loads = part(m, &u->first_load, &u->total_loads, SW_EXTENTS_MAX - SW_PART_ITEMS_MAX);
    u->loads = array(m, u->n_loads, sizeof(*u->loads));
    for (uint32_t i = 0; i < u->n_loads; i++) {
        u->loads[i].source = i % 7 ? n32(m, SW_TENSORS_MAX - 1) : UINT32_MAX;
        u->loads[i].grid = i % 3 ? n32(m, SW_TENSORS_MAX - 1) : UINT32_MAX;
        u->loads[i].tmpl = n32(m, SW_TENSORS_MAX - 1);
        u->loads[i].tile = n32(m, SW_EXTENTS_MAX - 1);
        u->loads[i].offset = n64(m);
    }
    make_grids(m, u);
    u->n_checks = part(m, &u->first_check, &u->total_checks, SW_TENSORS_MAX - SW_PART_ITEMS_MAX);
    u->checks = array(m, u->n_checks, sizeof(*u->checks));
    for (uint32_t i = 0; i < u->n_checks; i++)
        u->checks[i] = (struct sw_alias_check){
            .source = n32(m, SW_TENSORS_MAX - 1), .set = n32(m, UINT32_MAX - 1)};
    u->n_tiles = part(m, &u->first_tile, &u->total_tiles, SW_EXTENTS_MAX - SW_PART_ITEMS_MAX);
    u->tiles = array(m, u->n_tiles, sizeof(*u->tiles));
    for (uint32_t i = 0; i < u->n_tiles; i++)
        u->tiles[i] = (struct sw_tile){.offset = n64(m), .bytes = n64(m)};
}

static void make_end(struct maker *m, struct sw_end *u)
{
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->version = n64(m);
    u->bytes = n64(m);
    u->stage_ns = n64(m);
    u->n = n32(m, m->items);
    u->digests = array(m, u->n, sizeof(*u->digests));
    for (uint32_t i = 0; i < u->n; i++)
        u->digests[i] = (struct sw_digest){.set = n32(m, UINT32_MAX - 1),
            .source = n32(m, SW_TENSORS_MAX - 1),
            .high = n64(m),
            .low = n64(m)};
}

static void make_result(struct maker *m, struct sw_result *u)
{
    u->request = n64(m);
    u->version = n64(m);
    failure(m, &u->error);
    u->stage_ns = n64(m);
    u->stage_bytes = n64(m);
    u->n = n32(m, m->items < SW_ENGINES_MAX ? m->items : SW_ENGINES_MAX);
    u->engines = array(m, u->n, sizeof(*u->engines));
    for (uint32_t i = 0; i < u->n; i++) {
        struct sw_engine_result *r = &u->engines[i];

        r->engine = text(m, SW_LABEL_MAX);
        r->live = 1;
        r->version = n64(m);
        r->state = text(m, SW_LABEL_MAX);
        r->reason = text(m, 100);
        r->drain_ns = n64(m);
        r->pause_ns = n64(m);
        r->write_ns = n64(m);
        r->post_ns = n64(m);
        r->bytes = n64(m);
        r->transport = text(m, SW_LABEL_MAX);
    }
}

static void make_targets(struct maker *m, struct sw_targets *u)
{
    u->layout_epoch = n64(m);
    u->membership_epoch = n64(m);
    u->n = part(m, &u->first, &u->total, SW_EXTENTS_MAX - SW_PART_ITEMS_MAX);
    u->items = array(m, u->n, sizeof(*u->items));
    for (uint32_t i = 0; i < u->n; i++) {
        struct sw_target *t = &u->items[i];

        t->target = n32(m, UINT32_MAX - 1);
        t->engine = text(m, SW_LABEL_MAX);
        t->engine_rank = n32(m, SW_WORLD_MAX - 1);
        t->engine_instance = id(m);
        t->inferd = id(m);
        t->address = text(m, SW_LABEL_MAX);
        t->data_port = n32(m, UINT16_MAX);
        t->unix_path = text(m, 107);
        bytes(m, t->host_nonce, sizeof(t->host_nonce));
        t->region_bytes = region_bytes(m, &t->n_regions);
    }
}

static void make_write_program(struct maker *m, struct sw_write_program *u)
{
    u->layout_epoch = n64(m);
    u->membership_epoch = n64(m);
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->target = n32(m, UINT32_MAX - 1);
    u->n = part(m, &u->first, &u->total, SW_EXTENTS_MAX - SW_PART_ITEMS_MAX);
    u->extents = array(m, u->n, sizeof(*u->extents));
    for (uint32_t i = 0; i < u->n; i++)
        u->extents[i] = (struct sw_extent){
            .src = n64(m), .dst = n64(m), .length = n64(m), .region = n32(m, SW_REGIONS_MAX - 1)};
}

static void make_engine_rank(struct maker *m, struct sw_engine_rank *u)
{
    u->engine = text(m, SW_LABEL_MAX);
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->world = n32(m, SW_WORLD_MAX);
    u->instance = id(m);
    for (uint32_t g = 0; g < SW_GROUP_COUNT; g++)
        u->at.of[g] = (struct sw_group){n32(m, 64), n32(m, 64)};
    u->layout = text(m, SW_LABEL_MAX);
    u->kind = (enum sw_engine_kind)n32(m, SW_ENGINE_VLLM);
    u->config = text(m, 5000);
    u->scale_format = text(m, SW_LABEL_MAX);
    u->block_rows = n32(m, 4096);
    u->block_columns = n32(m, 4096);
    u->fused_shared_experts = 1;
    u->expert_map_version = n64(m);
    u->expert_map_layers = n32(m, 8);
    u->expert_map_slots = n32(m, m->items);
    u->n_expert_map = u->expert_map_layers * u->expert_map_slots;
    u->expert_map = array(m, u->n_expert_map, sizeof(*u->expert_map));
    for (uint32_t i = 0; i < u->n_expert_map; i++)
        u->expert_map[i] = n32(m, SW_EXPERTS_MAX - 1);
    u->version = n64(m);
    u->torn = 1;
    u->pid = n32(m, UINT32_MAX - 1);
    u->n_parameters = n32(m, SW_PARAMETERS_MAX);
    u->region_bytes = region_bytes(m, &u->n_regions);
}

static void make_parameters(struct maker *m, struct sw_parameters *u)
{
    u->engine = text(m, SW_LABEL_MAX);
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->instance = id(m);
    u->n = part(m, &u->first, &u->total, SW_PARAMETERS_MAX - SW_PART_ITEMS_MAX);
    u->items = array(m, u->n, sizeof(*u->items));
    for (uint32_t i = 0; i < u->n; i++) {
        struct sw_parameter *p = &u->items[i];

        p->name = text(m, SW_NAME_MAX);
        p->dtype = dtype(m);
        p->ndim = (uint32_t)(test_random(&m->state) % (SW_MAX_DIMS + 1));
        dims(m, p->ndim, p->shape);
        p->region = n32(m, SW_REGIONS_MAX - 1);
        p->offset = n64(m);
        p->alias_of = i % 2 ? NULL : text(m, SW_NAME_MAX);
    }
}

static void make_phase(struct maker *m, struct sw_phase_msg *u)
{
    u->phase = (enum sw_phase)n32(m, SW_PHASE_ABORT);
    u->update = n64(m);
    u->version = n64(m);
    u->layout_epoch = n64(m);
    u->membership_epoch = n64(m);
    u->engine = text(m, SW_LABEL_MAX);
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->instance = id(m);
    u->expected_bytes = n64(m);
    u->reason = text(m, SW_TEXT_MAX);
    u->n = n32(m, m->items);
    u->writers = array(m, u->n, sizeof(*u->writers));
    for (uint32_t i = 0; i < u->n; i++)
        u->writers[i] = (struct sw_writer_ref){
            .trainerd = id(m), .connections = n32(m, SW_TCP_CONNECTIONS_MAX)};
}

static void make_phase_done(struct maker *m, struct sw_phase_done *u)
{
    u->phase = (enum sw_phase)n32(m, SW_PHASE_ABORT);
    u->update = n64(m);
    u->engine = text(m, SW_LABEL_MAX);
    u->rank = n32(m, SW_WORLD_MAX - 1);
    u->instance = id(m);
    failure(m, &u->error);
    u->window = id(m);
    u->bytes = n64(m);
    u->state = (enum sw_rank_state)n32(m, SW_RANK_GONE);
    u->n = n32(m, m->items);
    u->issued = array(m, u->n, sizeof(*u->issued));
    for (uint32_t i = 0; i < u->n; i++) {
        u->issued[i].trainerd = id(m);
        u->issued[i].tokens = tokens(m, &u->issued[i].n);
    }
}

static void make_connect(struct maker *m, struct sw_connect *u)
{
    u->update = n64(m);
    u->version = n64(m);
    u->layout_epoch = n64(m);
    u->membership_epoch = n64(m);
    u->target = n32(m, UINT32_MAX - 1);
    u->tokens = tokens(m, &u->n);
}

static void make_path_open(struct maker *m, struct sw_path_open *u)
{
    u->engine = text(m, SW_LABEL_MAX);
    u->engine_rank = n32(m, SW_WORLD_MAX - 1);
    u->engine_instance = id(m);
    u->layout_epoch = n64(m);
    u->local = 1;
    bytes(m, u->host_nonce, sizeof(u->host_nonce));
    bytes(m, u->token.bytes, sizeof(u->token.bytes));
}

static void make_member(struct maker *m, struct sw_member *u)
{
    u->name = text(m, SW_LABEL_MAX * 4);
    u->advertise = text(m, SW_LABEL_MAX * 4);
    u->data_port = n32(m, UINT16_MAX);
    u->unix_path = text(m, 107);
    bytes(m, u->host_nonce, sizeof(u->host_nonce));
}

static void make_body(struct maker *m, struct sw_msg *msg)
{
    const uint32_t rank = n32(m, SW_WORLD_MAX - 1), target = n32(m, UINT32_MAX - 1);
    const uint64_t a = n64(m), b = n64(m);

    switch (msg->kind) {
    case SW_MSG_HELLO:
    case SW_MSG_HELLO_REPLY:
        make_hello(m, &msg->u.hello);
        break;
    case SW_MSG_HELLO_PROOF:
        bytes(m, msg->u.hello_proof.proof, sizeof(msg->u.hello_proof.proof));
        break;
    case SW_MSG_HELLO_DONE:
    case SW_MSG_KIND_COUNT:
        break;
    case SW_MSG_ERROR:
        failure(m, &msg->u.error);
        break;
    case SW_MSG_TRAINER_OPEN:
        msg->u.trainer_open = (struct sw_trainer_open){
            .rank = rank, .world = n32(m, SW_WORLD_MAX), .pid = target, .trainer = id(m)};
        break;
    case SW_MSG_SOURCES:
        make_sources(m, &msg->u.sources);
        break;
    case SW_MSG_SOURCES_DONE:
    case SW_MSG_BEGIN_DONE:
    case SW_MSG_END_DONE:
    case SW_MSG_MAXIMA_DONE:
        make_rank_reply(m, &msg->u.rank_reply);
        break;
    case SW_MSG_BEGIN:
        msg->u.begin.rank = rank;
        msg->u.begin.version = a;
        msg->u.begin.base = b;
        break;
    case SW_MSG_LOAD_PROGRAM:
        make_load_program(m, &msg->u.load_program);
        break;
    case SW_MSG_BUFFER:
        msg->u.buffer.rank = rank;
        msg->u.buffer.index = n32(m, 2);
        msg->u.buffer.generation = a;
        msg->u.buffer.data_bytes = number(m, SW_BYTES_MAX);
        msg->u.buffer.counter_bytes = number(m, SW_BYTES_MAX);
        msg->u.buffer.maxima_bytes = number(m, SW_BYTES_MAX);
        break;
    case SW_MSG_MAXIMA_PROGRAM:
        make_maxima_program(m, &msg->u.maxima_program);
        break;
    case SW_MSG_MAXIMA:
        msg->u.maxima.rank = rank;
        msg->u.maxima.version = a;
        break;
    case SW_MSG_END:
        make_end(m, &msg->u.end);
        break;
    case SW_MSG_ABORT:
        msg->u.abort.rank = UINT32_MAX;
        msg->u.abort.version = a;
        msg->u.abort.reason = text(m, SW_TEXT_MAX);
        break;
    case SW_MSG_PUBLISH:
        msg->u.publish.request = a;
        msg->u.publish.version = b;
        msg->u.publish.wait_only = 1;
        break;
    case SW_MSG_RESULT:
        make_result(m, &msg->u.result);
        break;
    case SW_MSG_RANK_GONE:
        msg->u.rank_gone.rank = rank;
        msg->u.rank_gone.trainer = id(m);
        msg->u.rank_gone.reason = text(m, SW_TEXT_MAX);
        break;
    case SW_MSG_PLAN_DONE:
        msg->u.plan_done.layout_epoch = a;
        failure(m, &msg->u.plan_done.error);
        break;
    case SW_MSG_TARGETS:
        make_targets(m, &msg->u.targets);
        break;
    case SW_MSG_WRITE_PROGRAM:
        make_write_program(m, &msg->u.write_program);
        break;
    case SW_MSG_CONNECT:
        make_connect(m, &msg->u.connect);
        break;
    case SW_MSG_CONNECTED:
        msg->u.connected.update = a;
        msg->u.connected.target = target;
        msg->u.connected.transport = text(m, SW_LABEL_MAX);
        msg->u.connected.why = text(m, SW_TEXT_MAX);
        failure(m, &msg->u.connected.error);
        break;
    case SW_MSG_WRITE:
        msg->u.write.update = a;
        msg->u.write.version = b;
        msg->u.write.target = target;
        msg->u.write.window = id(m);
        break;
    case SW_MSG_WRITTEN:
        msg->u.written.update = a;
        msg->u.written.target = target;
        msg->u.written.bytes = b;
        msg->u.written.ns = n64(m);
        failure(m, &msg->u.written.error);
        break;
    case SW_MSG_UPDATE_END:
        msg->u.update_end.update = a;
        msg->u.update_end.target = target;
        break;
    case SW_MSG_MEMBER:
        make_member(m, &msg->u.member);
        break;
    case SW_MSG_ENGINE_RANK:
        make_engine_rank(m, &msg->u.engine_rank);
        break;
    case SW_MSG_PARAMETERS:
        make_parameters(m, &msg->u.parameters);
        break;
    case SW_MSG_REGISTERED:
        msg->u.registered.engine = text(m, SW_LABEL_MAX);
        msg->u.registered.rank = rank;
        failure(m, &msg->u.registered.error);
        break;
    case SW_MSG_PHASE:
        make_phase(m, &msg->u.phase);
        break;
    case SW_MSG_PHASE_DONE:
        make_phase_done(m, &msg->u.phase_done);
        break;
    case SW_MSG_RANK_STATE:
        msg->u.rank_state.engine = text(m, SW_LABEL_MAX);
        msg->u.rank_state.rank = rank;
        msg->u.rank_state.instance = id(m);
        msg->u.rank_state.state = (enum sw_rank_state)n32(m, SW_RANK_GONE);
        msg->u.rank_state.version = a;
        msg->u.rank_state.reason = text(m, SW_TEXT_MAX);
        break;
    case SW_MSG_PATH_OPEN:
        make_path_open(m, &msg->u.path_open);
        break;
    case SW_MSG_PATH_DONE:
        failure(m, &msg->u.path_done.error);
        break;
    case SW_MSG_LOCAL_SOURCE:
        msg->u.local_source.source = a;
        msg->u.local_source.bytes = number(m, SW_BYTES_MAX);
        break;
    case SW_MSG_LOCAL_MAPPED:
        msg->u.local_mapped.source = a;
        failure(m, &msg->u.local_mapped.error);
        break;
    case SW_MSG_LOCAL_COPY:
        msg->u.local_copy.copy = a;
        msg->u.local_copy.source = b;
        msg->u.local_copy.window = id(m);
        msg->u.local_copy.mode = (enum sw_local_mode)n32(m, SW_LOCAL_VERIFY);
        msg->u.local_copy.n = number(m, SW_EXTENTS_MAX);
        break;
    case SW_MSG_LOCAL_DONE:
        msg->u.local_done.copy = a;
        msg->u.local_done.bytes = b;
        failure(m, &msg->u.local_done.error);
        break;
    case SW_MSG_STATUS:
        msg->u.status.request = a;
        break;
    case SW_MSG_ENGINES:
        msg->u.engines.request = a;
        break;
    case SW_MSG_ENGINES_DONE:
        msg->u.engines_done.request = a;
        msg->u.engines_done.n = target;
        break;
    case SW_MSG_STATUS_TEXT:
        msg->u.status_text.request = a;
        msg->u.status_text.last = 1;
        msg->u.status_text.text = text(m, 5000);
        break;
    }
}

struct sw_msg *test_message(enum sw_msg_kind kind, uint64_t seed, uint32_t items)
{
    struct sw_msg *msg = sw_msg_new(kind);
    struct maker m = {.msg = msg, .state = seed * 64 + kind, .items = items};

    if (msg)
        make_body(&m, msg);
    return msg;
}

/* ---- comparing ---- */

static bool structs_equal(
    const struct sw_schema *s, const void *a, const void *b, char *difference);

static bool text_equal(const char *a, const char *b)
{
    return !a == !b && (!a || strcmp(a, b) == 0);
}

static bool arrays_equal(const struct sw_field *f, const void *a, const void *b, char *difference)
{
    const uint32_t n = *(const uint32_t *)sw_member(a, f->count);
    const char *x = *(char *const *)sw_member(a, f->offset);
    const char *y = *(char *const *)sw_member(b, f->offset);

    if (n != *(const uint32_t *)sw_member(b, f->count))
        return false;
    if (!f->sub)
        return memcmp(x, y, (size_t)n * f->size) == 0;
    for (uint32_t i = 0; i < n; i++)
        if (!structs_equal(f->sub, x + (size_t)i * f->size, y + (size_t)i * f->size, difference))
            return false;
    return true;
}

static bool is_pointer(const struct sw_field *f)
{
    return f->type == SW_FIELD_NAME || f->type == SW_FIELD_TEXT || f->type == SW_FIELD_STRUCTS ||
           f->type == SW_FIELD_NUMBERS || f->type == SW_FIELD_BLOBS || f->type == SW_FIELD_COLUMNS;
}

/* Pointers by what they point at; all other bytes as they are. A member that the codec's tables
 * forgot is thus a difference. */
static bool structs_equal(const struct sw_schema *s, const void *a, const void *b, char *difference)
{
    char x[1024], y[1024];

    memcpy(x, a, s->size);
    memcpy(y, b, s->size);
    for (uint32_t i = 0; i < s->n_fields; i++) {
        const struct sw_field *f = &s->fields[i];
        bool same = true;

        if (f->type == SW_FIELD_STRUCT) {
            same =
                structs_equal(f->sub, sw_member(a, f->offset), sw_member(b, f->offset), difference);
            memset(x + f->offset, 0, f->sub->size);
            memset(y + f->offset, 0, f->sub->size);
        } else if (is_pointer(f)) {
            same = f->type == SW_FIELD_NAME || f->type == SW_FIELD_TEXT
                       ? text_equal(*(char *const *)sw_member(a, f->offset),
                             *(char *const *)sw_member(b, f->offset))
                       : arrays_equal(f, a, b, difference);
            memset(x + f->offset, 0, sizeof(void *));
            memset(y + f->offset, 0, sizeof(void *));
        }
        if (!same) {
            if (!difference[0])
                snprintf(difference, 128, "member %s differs", f->name);
            return false;
        }
    }
    for (uint32_t i = 0; i < s->size; i++)
        if (x[i] != y[i]) {
            snprintf(difference, 128, "byte %u of the struct differs", i);
            return false;
        }
    return true;
}

bool test_message_equal(const struct sw_msg *a, const struct sw_msg *b, char *difference)
{
    const struct sw_schema *schema = sw_schema_find(a->kind);

    difference[0] = '\0';
    if (a->kind != b->kind || !schema) {
        snprintf(difference, 128, "the kinds differ");
        return false;
    }
    return structs_equal(schema, &a->u, &b->u, difference);
}
