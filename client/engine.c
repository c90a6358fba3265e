/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's connection: open, register (again), close. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/engine_impl.h"
#include "client/options.h"
#include "common/engine_rank.h"
#include "common/error.h"
#include "common/limits.h"

/* ---- open ---- */

int engine_connect(struct sw_engine *en, uint64_t deadline, struct sw_error *e)
{
    struct sw_identity self;
    int rc = sw_client_identity(&self, SW_ROLE_ENGINE, en->group, en->host, e);

    if (rc)
        return rc;
    en->instance = self.instance;
    return sw_channel_dial(en->socket, "inferd", &self, deadline, &en->channel, e);
}

void engine_disconnect(struct sw_engine *en)
{
    sw_channel_free(en->channel);
    en->channel = NULL;
    en->registered = false;
}

static int set_names(struct sw_engine *en, const struct sw_engine_options *o, struct sw_error *e)
{
    int rc = sw_client_label(en->group, "group", o->group, SW_GROUP_DEFAULT, e);

    if (!rc)
        rc = sw_client_label(en->name, "engine", o->engine, NULL, e);
    if (rc)
        return rc;
    en->socket = strdup(o->socket ? o->socket : SW_INFERD_SOCKET);
    en->names = sw_names_new();
    if (!en->socket || !en->names)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an engine");
    return 0;
}

/* In the order of enum sw_group_kind. */
static void set_coordinates(struct sw_coordinates *at, const struct sw_engine_coordinates *given)
{
    at->of[SW_GROUP_PP] = (struct sw_group){given->pp, given->pp_size};
    at->of[SW_GROUP_TP] = (struct sw_group){given->tp, given->tp_size};
    at->of[SW_GROUP_EP] = (struct sw_group){given->ep, given->ep_size};
    at->of[SW_GROUP_DP] = (struct sw_group){given->dp, given->dp_size};
    at->of[SW_GROUP_ATTN_TP] = (struct sw_group){given->attn_tp, given->attn_tp_size};
    at->of[SW_GROUP_MOE_TP] = (struct sw_group){given->moe_tp, given->moe_tp_size};
    at->of[SW_GROUP_MLP_TP] = (struct sw_group){given->mlp_tp, given->mlp_tp_size};
    at->of[SW_GROUP_SHARED_TP] = (struct sw_group){given->shared_tp, given->shared_tp_size};
    at->of[SW_GROUP_EMBED_TP] = (struct sw_group){given->embed_tp, given->embed_tp_size};
    at->of[SW_GROUP_HEAD_TP] = (struct sw_group){given->head_tp, given->head_tp_size};
}

static const char *keep(struct sw_engine *en, const char *text)
{
    return sw_arena_strdup(&en->arena, text ? text : "");
}

/* Checks map and all before it takes the map, so that a wrong one changes nothing. */
static int set_map(struct sw_engine *en, uint64_t version, uint32_t layers, uint32_t slots,
    const uint32_t *map, struct sw_error *e)
{
    const uint64_t n = (uint64_t)layers * slots;
    struct sw_engine_rank self = en->self;
    uint32_t *copy;
    int rc;

    self.expert_map_version = version;
    self.expert_map_layers = layers;
    self.expert_map_slots = slots;
    self.n_expert_map = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
    self.expert_map = (uint32_t *)map; /* only read */
    rc = sw_engine_rank_check(&self, e);
    if (rc)
        return rc;
    copy = malloc((n + 1) * sizeof(*copy));
    if (!copy)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an expert map");
    if (n)
        memcpy(copy, map, n * sizeof(*copy));
    free(en->expert_map);
    en->expert_map = self.expert_map = copy;
    en->self = self;
    return 0;
}

/* What the engine says of itself, as it will be sent. */
static int set_self(struct sw_engine *en, const struct sw_engine_options *o, struct sw_error *e)
{
    const int kind = sw_engine_kind_from_name(o->kind ? o->kind : "");

    if (kind < 0)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "engine kind %.32s is unknown; known are sglang and vllm", o->kind);
    if (o->config && strnlen(o->config, SW_CONFIG_TEXT_MAX + 1) > SW_CONFIG_TEXT_MAX)
        return sw_fail(
            e, SW_ERR_LIMIT, "the text of config.json has more than %u bytes", SW_CONFIG_TEXT_MAX);
    en->self = (struct sw_engine_rank){.engine = en->name,
        .rank = en->rank,
        .world = en->world,
        .layout = keep(en, o->layout),
        .kind = (enum sw_engine_kind)kind,
        .config = keep(en, o->config),
        .scale_format = keep(en, o->scale_format),
        .block_rows = o->block_rows,
        .block_columns = o->block_columns,
        .fused_shared_experts = o->fused_shared_experts};
    if (!en->self.layout || !en->self.config || !en->self.scale_format)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an engine");
    set_coordinates(&en->self.at, &o->at);
    return set_map(
        en, o->expert_map_version, o->expert_map_layers, o->expert_map_slots, o->expert_map, e);
}

int sw_engine_open(const struct sw_engine_options *options, sw_engine **engine, struct sw_error *e)
{
    struct sw_engine_options o;
    struct sw_engine *en;
    int rc = options ? sw_client_options(&o, sizeof(o), options, options->size, e)
                     : sw_fail(e, SW_ERR_INVALID, "options is NULL");

    if (rc)
        return rc;
    en = calloc(1, sizeof(*en));
    if (!en)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an engine");
    en->rank = o.rank;
    en->world = o.world ? o.world : 1;
    en->threads = o.threads ? o.threads : 1;
    en->timeout_ms = o.timeout_ms ? o.timeout_ms : SW_CLIENT_MS;
    rc = set_names(en, &o, e);
    if (!rc)
        rc = set_self(en, &o, e);
    if (!rc)
        rc = engine_connect(en, sw_deadline_in(en->timeout_ms), e);
    if (rc) {
        sw_engine_close(en);
        return rc;
    }
    *engine = en;
    return 0;
}

void sw_engine_close(sw_engine *en)
{
    if (!en)
        return;
    engine_disconnect(en);
    sw_local_engine_free(en->local);
    engine_memory_free(en);
    free(en->expert_map);
    free(en->socket);
    free(en);
}

int sw_engine_fd(const sw_engine *en)
{
    return en->channel ? sw_channel_fd(en->channel) : -1;
}

uint64_t sw_engine_version(const sw_engine *en, int *paused)
{
    if (paused)
        *paused = en->paused;
    return en->version;
}

/* ---- register ---- */

static int send_rank(struct sw_engine *en, uint64_t deadline, struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ENGINE_RANK);
    uint64_t bytes[ENGINE_REGIONS_MAX];
    int fds[ENGINE_REGIONS_MAX];
    int rc;

    if (!msg)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a message to inferd");
    for (uint32_t i = 0; i < en->n_regions; i++) {
        bytes[i] = en->regions[i].bytes;
        fds[i] = en->regions[i].fd;
    }
    msg->u.engine_rank = en->self;
    msg->u.engine_rank.instance = en->instance;
    msg->u.engine_rank.version = en->version;
    msg->u.engine_rank.torn = en->paused && en->prepared;
    msg->u.engine_rank.n_parameters = en->n_parameters;
    msg->u.engine_rank.n_regions = en->n_regions;
    msg->u.engine_rank.region_bytes = bytes;
    rc = sw_channel_send(en->channel, msg, fds, en->n_regions, deadline, e);
    sw_msg_free(msg);
    return rc;
}

static uint32_t part_length(const struct sw_engine *en, uint32_t first)
{
    size_t bytes = 0;
    uint32_t n = 0;

    while (first + n < en->n_parameters && n < SW_PART_ITEMS_MAX && bytes < SW_PART_BYTES_TARGET) {
        const struct sw_parameter *p = &en->parameters[first + n++];

        bytes += strlen(p->name) + (p->alias_of ? strlen(p->alias_of) : 0) + 48 + 10u * p->ndim;
    }
    return n;
}

static int send_parameters(struct sw_engine *en, uint64_t deadline, struct sw_error *e)
{
    int rc = 0;

    for (uint32_t first = 0, n; first < en->n_parameters && !rc; first += n) {
        struct sw_msg *msg = sw_msg_new(SW_MSG_PARAMETERS);

        if (!msg)
            return sw_fail(e, SW_ERR_NOMEM, "no memory for a message to inferd");
        n = part_length(en, first);
        msg->u.parameters = (struct sw_parameters){.engine = en->name,
            .rank = en->rank,
            .instance = en->instance,
            .first = first,
            .total = en->n_parameters,
            .n = n,
            .items = en->parameters + first};
        rc = sw_channel_send(en->channel, msg, NULL, 0, deadline, e);
        sw_msg_free(msg);
    }
    return rc;
}

static int check_answer(const struct sw_msg *msg, struct sw_error *e)
{
    const struct sw_failure *f;

    if (msg->kind != SW_MSG_REGISTERED && msg->kind != SW_MSG_ERROR)
        return sw_fail(e, SW_ERR_PROTOCOL, "inferd sent %s before it had registered the engine",
            sw_msg_kind_name(msg->kind));
    f = msg->kind == SW_MSG_ERROR ? &msg->u.error : &msg->u.registered.error;
    if (msg->kind == SW_MSG_REGISTERED && !f->code)
        return 0;
    return sw_fail(e, f->code < 0 ? f->code : SW_ERR_CLOSED, "inferd refused: %.900s",
        f->reason[0] ? f->reason : sw_code_name(f->code));
}

static int register_on(struct sw_engine *en, uint64_t deadline, struct sw_error *e)
{
    struct sw_msg *msg;
    int rc = send_rank(en, deadline, e);

    if (!rc)
        rc = send_parameters(en, deadline, e);
    if (!rc)
        rc = sw_channel_receive(en->channel, deadline, "the answer to register", &msg, e);
    if (rc)
        return rc;
    rc = check_answer(msg, e);
    sw_msg_free(msg);
    return rc;
}

static int check_ready(const struct sw_engine *en, struct sw_error *e)
{
    if (en->registered)
        return sw_fail(
            e, SW_ERR_STATE, "engine %s rank %u is registered already", en->name, en->rank);
    if (!en->n_regions || !en->n_parameters)
        return sw_fail(e, SW_ERR_STATE,
            "engine %s rank %u has %u regions and %u parameters; it needs one of each at least",
            en->name, en->rank, en->n_regions, en->n_parameters);
    return 0;
}

/* Whatever was asked before is void. A clean engine that was paused goes on by itself: inferd takes
 * it for one that serves. */
static void registered(struct sw_engine *en)
{
    en->registered = en->declared = true;
    en->event.kind = SW_EVENT_NONE;
    en->resume_due = en->paused && !en->prepared;
    en->lost.code = 0;
}

int sw_engine_register(sw_engine *en, struct sw_error *e)
{
    const uint64_t deadline = sw_deadline_in(en->timeout_ms);
    int rc = check_ready(en, e);

    if (!rc && !en->channel)
        rc = engine_connect(en, deadline, e);
    if (rc)
        return rc;
    rc = engine_local_new(en, e);
    if (!rc)
        rc = register_on(en, deadline, e);
    if (rc) {
        engine_disconnect(en); /* the next try begins anew */
        return rc;
    }
    registered(en);
    return 0;
}

int sw_engine_expert_map(sw_engine *en, uint64_t version, uint32_t layers, uint32_t slots,
    const uint32_t *map, struct sw_error *e)
{
    int rc;

    if (en->paused || en->event.kind != SW_EVENT_NONE)
        return sw_fail(e, SW_ERR_STATE,
            "engine %s rank %u: an update is under way; give it another expert map after RESUME",
            en->name, en->rank);
    if (version <= en->self.expert_map_version)
        return sw_fail(e, SW_ERR_VERSION,
            "engine %s rank %u: expert map version %" PRIu64 " is not above %" PRIu64
            ", which it has",
            en->name, en->rank, version, en->self.expert_map_version);
    rc = set_map(en, version, layers, slots, map, e);
    if (!rc)
        engine_disconnect(en); /* a rank is registered as a whole */
    return rc;
}
