/* SPDX-License-Identifier: Apache-2.0 */
/* An engine's connection: open, register (again), close. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/engine_impl.h"
#include "client/options.h"
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

static bool coordinate_ok(uint32_t at, uint32_t size)
{
    return size == 0 ? at == 0 : at < size;
}

static int check_options(const struct sw_engine_options *o, struct sw_error *e)
{
    const struct sw_engine_coordinates *at = &o->at;
    const uint32_t world = o->world ? o->world : 1;

    if (world > SW_WORLD_MAX || o->rank >= world)
        return sw_fail(e, SW_ERR_INVALID,
            "engine rank %u of a world of %u: ranks go from 0 to world - 1, worlds up to %u",
            o->rank, world, SW_WORLD_MAX);
    if (!coordinate_ok(at->pp, at->pp_size) || !coordinate_ok(at->tp, at->tp_size) ||
        !coordinate_ok(at->ep, at->ep_size) || !coordinate_ok(at->dp, at->dp_size))
        return sw_fail(e, SW_ERR_INVALID,
            "engine rank %u: pp %u/%u, tp %u/%u, ep %u/%u, dp %u/%u: a coordinate must be less "
            "than "
            "its size",
            o->rank, at->pp, at->pp_size, at->tp, at->tp_size, at->ep, at->ep_size, at->dp,
            at->dp_size);
    if (o->scale_format && o->scale_format[0] && strcmp(o->scale_format, "fp32") != 0 &&
        strcmp(o->scale_format, "ue8m0") != 0)
        return sw_fail(e, SW_ERR_INVALID, "scale format %.32s is unknown; known are fp32 and ue8m0",
            o->scale_format);
    return 0;
}

static int set_names(struct sw_engine *en, const struct sw_engine_options *o, struct sw_error *e)
{
    int rc = sw_client_label(en->group, "group", o->group, SW_GROUP_DEFAULT, e);

    if (!rc)
        rc = sw_client_label(en->name, "engine", o->engine, NULL, e);
    if (rc)
        return rc;
    if (o->scale_format)
        snprintf(en->scale_format, sizeof(en->scale_format), "%s", o->scale_format);
    en->socket = strdup(o->socket ? o->socket : SW_INFERD_SOCKET);
    en->names = sw_names_new();
    if (!en->socket || !en->names)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an engine");
    return 0;
}

int sw_engine_open(const struct sw_engine_options *options, sw_engine **engine, struct sw_error *e)
{
    struct sw_engine_options o;
    struct sw_engine *en;
    int rc = options ? sw_client_options(&o, sizeof(o), options, options->size, e)
                     : sw_fail(e, SW_ERR_INVALID, "options is NULL");

    if (!rc)
        rc = check_options(&o, e);
    if (rc)
        return rc;
    en = calloc(1, sizeof(*en));
    if (!en)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for an engine");
    en->rank = o.rank;
    en->world = o.world ? o.world : 1;
    en->threads = o.threads ? o.threads : 1;
    en->timeout_ms = o.timeout_ms ? o.timeout_ms : SW_CLIENT_MS;
    en->at = o.at;
    en->expert_map_version = o.expert_map_version;
    rc = set_names(en, &o, e);
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
    msg->u.engine_rank = (struct sw_engine_rank){.engine = en->name,
        .rank = en->rank,
        .world = en->world,
        .instance = en->instance,
        .at = {en->at.pp, en->at.pp_size, en->at.tp, en->at.tp_size, en->at.ep, en->at.ep_size,
            en->at.dp, en->at.dp_size},
        .scale_format = en->scale_format,
        .expert_map_version = en->expert_map_version,
        .version = en->version,
        .torn = en->paused && en->prepared,
        .n_parameters = en->n_parameters,
        .n_regions = en->n_regions,
        .region_bytes = bytes};
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
