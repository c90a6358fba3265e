/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "client/options.h"
#include "client/trainer_impl.h"
#include "common/error.h"
#include "common/limits.h"

const char *sw_version_string(void)
{
    return SW_VERSION;
}

static bool replied(const struct sw_trainer *t)
{
    return t->replied;
}

/* ---- open ---- */

static int dial(struct sw_trainer *t, const char *socket, struct sw_error *e)
{
    char host[SW_LABEL_MAX * 4 + 1];
    const uint64_t deadline = sw_deadline_in(t->timeout_ms);
    struct sw_identity self;
    struct sw_msg *msg;
    int rc = sw_client_identity(&self, SW_ROLE_TRAINER, t->group, host, e);

    if (rc)
        return rc;
    t->instance = self.instance;
    rc = sw_channel_dial(
        socket ? socket : SW_TRAINERD_SOCKET, "trainerd", &self, deadline, &t->channel, e);
    if (rc)
        return rc;
    msg = sw_msg_new(SW_MSG_TRAINER_OPEN);
    if (msg) {
        msg->u.trainer_open.rank = t->rank;
        msg->u.trainer_open.world = t->world;
        msg->u.trainer_open.trainer = t->instance;
    }
    return trainer_post(t, msg, deadline, e);
}

static int check_options(const struct sw_trainer_options *o, struct sw_error *e)
{
    const uint32_t world = o->world ? o->world : 1;

    if (world > SW_WORLD_MAX || o->rank >= world)
        return sw_fail(e, SW_ERR_INVALID,
            "trainer rank %u of a world of %u: ranks go from 0 to world - 1, worlds up to %u",
            o->rank, world, SW_WORLD_MAX);
    return 0;
}

int sw_trainer_open(
    const struct sw_trainer_options *options, sw_trainer **trainer, struct sw_error *e)
{
    struct sw_trainer_options o;
    struct sw_trainer *t;
    int rc = options ? sw_client_options(&o, sizeof(o), options, options->size, e)
                     : sw_fail(e, SW_ERR_INVALID, "options is NULL");

    if (!rc)
        rc = check_options(&o, e);
    if (rc)
        return rc;
    t = calloc(1, sizeof(*t));
    if (!t || !(t->buffers = sw_buffers_new())) {
        free(t);
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a trainer");
    }
    pthread_mutex_init(&t->lock, NULL);
    t->rank = o.rank;
    t->world = o.world ? o.world : 1;
    t->threads = o.threads ? o.threads : 1;
    t->timeout_ms = o.timeout_ms ? o.timeout_ms : SW_CLIENT_MS;
    rc = sw_client_label(t->group, "group", o.group, SW_GROUP_DEFAULT, e);
    if (!rc)
        rc = dial(t, o.socket, e);
    if (rc) {
        sw_trainer_close(t);
        return rc;
    }
    *trainer = t;
    return 0;
}

void sw_trainer_close(sw_trainer *t)
{
    if (!t)
        return;
    if (t->channel && (t->state == TRAINER_STAGING || t->state == TRAINER_SHARING) &&
        !t->fault.code)
        trainer_send_abort(t, t->version, "the trainer closed its session before it ended");
    sw_channel_free(t->channel);
    trainer_forget_results(t);
    free(t->statuses);
    trainer_uncheck(t);
    sw_loads_free(t->coming);
    sw_loads_free(t->loads);
    sw_buffers_free(t->buffers);
    sw_declaration_free(t->declared);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- declare ---- */

/* An upper bound of what a source takes on the wire. */
static size_t wire_bytes(const struct sw_source *s)
{
    return strlen(s->name) + 32 + 30u * s->ndim;
}

static uint32_t part_length(const struct sw_declaration *d, uint32_t first)
{
    size_t bytes = 0;
    uint32_t n = 0;

    while (first + n < d->n && n < SW_PART_ITEMS_MAX && bytes < SW_PART_BYTES_TARGET)
        bytes += wire_bytes(&d->sources[first + n++]);
    return n;
}

static int send_sources(
    struct sw_trainer *t, const struct sw_declaration *d, uint64_t deadline, struct sw_error *e)
{
    uint32_t first = 0;
    int rc;

    do {
        struct sw_msg *msg = sw_msg_new(SW_MSG_SOURCES);
        const uint32_t n = part_length(d, first);

        if (msg)
            msg->u.sources = (struct sw_sources){.rank = t->rank,
                .world = t->world,
                .trainer = t->instance,
                .first = first,
                .total = d->n,
                .n = n,
                .items = d->sources + first};
        rc = trainer_post(t, msg, deadline, e);
        first += n;
    } while (!rc && first < d->n);
    return rc;
}

int sw_trainer_declare(
    sw_trainer *t, const struct sw_source_tensor *tensors, size_t n, struct sw_error *e)
{
    const uint64_t deadline = sw_deadline_in(t->timeout_ms);
    struct sw_declaration *d;
    struct sw_error why;
    int rc = trainer_enter(t, e);

    if (rc)
        return rc;
    if (trainer_staging(t))
        return sw_fail(e, SW_ERR_STATE,
            "declare: version %" PRIu64 " is begun; end or abort it first", t->version);
    rc = sw_declaration_new(tensors, n, &d, e);
    if (rc)
        return rc;
    trainer_uncheck(t);
    sw_declaration_free(t->declared); /* trainerd will not know it any more */
    t->declared = NULL;
    t->state = TRAINER_DECLARING;
    t->replied = false;
    rc = send_sources(t, d, deadline, &why);
    if (!rc)
        rc = trainer_await(t, replied, deadline, "the answer to declare", &why);
    t->state = TRAINER_IDLE;
    if (rc && !t->fault.code) /* half a manifest, or an answer that the next one would get */
        sw_fail(&t->fault, SW_ERR_CLOSED, "declare was not finished: %.900s", why.text);
    if (!rc && t->outcome.code) {
        rc = t->outcome.code;
        why = t->outcome;
    }
    if (rc) {
        sw_declaration_free(d);
        return sw_fail(e, rc, "%s", why.text);
    }
    t->declared = d;
    return 0;
}

/* ---- begin ---- */

static int find_unused(struct sw_trainer *t, struct sw_error *e)
{
    const struct sw_loads *l = t->loads;

    t->unused = calloc(l->n_sources + 1ull, sizeof(*t->unused));
    if (!t->unused)
        return sw_fail(e, SW_ERR_NOMEM, "no memory for a list of %u tensors", l->n_sources);
    for (uint32_t s = 0; s < l->n_sources; s++)
        if (!sw_loads_wants(l, s))
            t->unused[t->n_unused++] = s;
    return 0;
}

/* Checks the program against the declaration, once for each pair of them. */
static int check_program(struct sw_trainer *t, uint64_t layout_epoch, struct sw_error *e)
{
    int rc;

    if (!t->loads || t->loads->layout_epoch != layout_epoch)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "trainerd began layout epoch %" PRIu64 " and sent no load program for it",
            layout_epoch);
    if (t->checked)
        return 0;
    rc = sw_loads_check(t->loads, t->declared->sources, t->declared->n, e);
    if (!rc)
        rc = find_unused(t, e);
    if (!rc && !(t->executor = sw_executor_new(t->loads, t->declared->sources, t->threads)))
        rc = sw_fail(e, SW_ERR_NOMEM, "no memory for %u tensors", t->declared->n);
    if (rc) {
        trainer_uncheck(t);
        return rc;
    }
    t->checked = true;
    return 0;
}

/* The version is granted: everything that puts go by is made ready. */
static int prepare(struct sw_trainer *t, struct sw_error *e)
{
    struct sw_buffer_memory memory;
    int rc;

    if (t->reply.version == 0)
        return sw_fail(e, SW_ERR_PROTOCOL, "trainerd began version 0");
    rc = check_program(t, t->reply.layout_epoch, e);
    if (!rc)
        rc = sw_buffers_use(t->buffers, t->reply.buffer,
            &(struct sw_buffer_need){.replica_bytes = t->loads->replica_bytes,
                .n_tiles = t->loads->n_tiles,
                .n_maxima = t->loads->n_maxima},
            t->threads, &memory, e);
    if (rc)
        return rc;
    sw_executor_begin(t->executor, memory.data, memory.counters);
    if (sw_executor_needs_maxima(t->executor))
        sw_executor_set_maxima(t->executor, memory.maxima, t->loads->n_maxima);
    return 0;
}

static int granted(struct sw_trainer *t, struct sw_error *e)
{
    struct sw_error why;
    int rc = prepare(t, &why);

    if (rc) {
        trainer_bury(t, t->reply.version);
        trainer_send_abort(t, t->reply.version, why.text);
        return sw_fail(e, rc, "begin of version %" PRIu64 ": %.900s", t->reply.version, why.text);
    }
    trainer_forget_results(t);
    t->version = t->reply.version;
    t->granted_ns = sw_clock_ns();
    atomic_store(&t->look_ns, 0);
    t->shared = false;
    t->state = TRAINER_STAGING;
    return 0;
}

/* The deadline passed: whoever grants it later must not wait for us. */
static void give_up_begin(struct sw_trainer *t)
{
    trainer_send_abort(t, t->asked, "the trainer gave up its begin: its deadline passed");
    t->stale_begins++;
    t->stale_asked = t->asked;
}

static int ask_to_begin(
    struct sw_trainer *t, uint64_t version, uint64_t deadline, struct sw_error *e)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_BEGIN);
    char what[128];
    int rc;

    if (msg) {
        msg->u.begin.rank = t->rank;
        msg->u.begin.version = version;
    }
    rc = trainer_post(t, msg, deadline, e);
    if (rc)
        return rc;
    if (version)
        snprintf(what, sizeof(what),
            "begin of version %" PRIu64 " (all trainer ranks, a complete engine, the plan)",
            version);
    else
        snprintf(what, sizeof(what),
            "begin of the next version (all trainer ranks, a complete engine, the plan)");
    t->state = TRAINER_BEGINNING;
    t->asked = version;
    t->aborted = UINT64_MAX;
    t->replied = false;
    rc = trainer_await(t, replied, deadline, what, e);
    if (rc == SW_ERR_TIMEOUT)
        give_up_begin(t);
    t->state = TRAINER_IDLE;
    return rc;
}

int sw_trainer_begin(
    sw_trainer *t, uint64_t version, uint32_t timeout_ms, uint64_t *begun, struct sw_error *e)
{
    const uint64_t deadline = trainer_deadline(timeout_ms);
    const bool staged = t->state == TRAINER_STAGED || t->state == TRAINER_PUBLISHED;
    struct sw_error why;
    int rc = trainer_enter(t, &why);

    /* A staged version that was given up, by whom it may be, is no matter to who begins another. */
    if (rc && !(staged && rc == SW_ERR_ABORTED))
        return sw_fail(e, rc, "%s", why.text);
    if (t->fault.code)
        return trainer_closed(t, e);
    if (trainer_staging(t))
        return sw_fail(e, SW_ERR_STATE,
            "begin: version %" PRIu64 " is begun; end or abort it first", t->version);
    if (!t->declared)
        return sw_fail(e, SW_ERR_STATE, "begin: no tensors are declared; call sw_trainer_declare");
    rc = ask_to_begin(t, version, deadline, e);
    if (rc)
        return rc;
    if (t->outcome.code)
        return sw_fail(e, t->outcome.code, "%s", t->outcome.text);
    rc = granted(t, e);
    if (!rc && begun)
        *begun = t->version;
    return rc;
}

/* ---- put ---- */

/* Several puts may come here at once: one of them looks whether the version still lives; not at
 * each put, since asking the kernel costs more than to put a small tensor. */
static int look_for_trouble(struct sw_trainer *t, struct sw_error *e)
{
    const uint64_t now = sw_clock_ns();
    int rc = 0;

    if (now >= atomic_load_explicit(&t->look_ns, memory_order_relaxed) &&
        pthread_mutex_trylock(&t->lock) == 0) {
        atomic_store_explicit(&t->look_ns, now + TRAINER_LOOK_NS, memory_order_relaxed);
        trainer_look(t);
        pthread_mutex_unlock(&t->lock);
    }
    if (!atomic_load(&t->trouble))
        return 0;
    pthread_mutex_lock(&t->lock);
    if (t->over.code)
        rc = sw_fail(e, SW_ERR_ABORTED, "%s", t->over.text);
    else if (t->fault.code)
        rc = trainer_closed(t, e);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

int sw_trainer_put(
    sw_trainer *t, const char *name, const struct sw_tensor *value, struct sw_error *e)
{
    uint32_t source;
    int rc;

    if (!name || !value)
        return sw_fail(e, SW_ERR_INVALID, "put: %s is NULL", name ? "value" : "name");
    if (t->state != TRAINER_STAGING)
        return sw_fail(e, SW_ERR_STATE, "put of tensor %.512s: %s", name,
            trainer_staging(t) ? "end was called and has not returned an answer yet"
                               : "no version is begun; call sw_trainer_begin");
    rc = look_for_trouble(t, e);
    if (rc)
        return rc;
    source = sw_names_find(t->declared->names, name);
    if (source == SW_NAMES_NONE)
        return sw_fail(e, SW_ERR_NOT_FOUND, "tensor %.512s was not declared", name);
    return sw_executor_put(t->executor, source, value, e);
}

/* ---- abort ---- */

int sw_trainer_abort(sw_trainer *t, const char *reason, struct sw_error *e)
{
    int rc = trainer_enter(t, e);

    if (rc == SW_ERR_ABORTED)
        return 0;
    if (rc)
        return rc;
    if (t->state == TRAINER_PUBLISHED)
        return sw_fail(e, SW_ERR_STATE,
            "abort: version %" PRIu64
            " is being published; sw_trainer_wait tells what becomes of it",
            t->version);
    if (t->state != TRAINER_IDLE) {
        trainer_send_abort(t, t->version, reason ? reason : "the trainer gave no reason");
        trainer_bury(t, t->version);
        t->state = TRAINER_IDLE;
    }
    return 0;
}

/* ---- what the plan made of it ---- */

int sw_trainer_plan(const sw_trainer *t, struct sw_trainer_plan *plan, struct sw_error *e)
{
    if (!t->checked)
        return sw_fail(e, SW_ERR_STATE, "there is no plan yet; call sw_trainer_begin");
    *plan = (struct sw_trainer_plan){.layout_epoch = t->loads->layout_epoch,
        .replica_bytes = t->loads->replica_bytes,
        .n_tensors = t->declared->n,
        .n_unused = t->n_unused};
    return 0;
}

const char *sw_trainer_unused(const sw_trainer *t, size_t i)
{
    return t->checked && i < t->n_unused ? t->declared->sources[t->unused[i]].name : NULL;
}

int sw_trainer_holds(const sw_trainer *t, const char *name)
{
    const uint32_t source =
        t->checked && name ? sw_names_find(t->declared->names, name) : SW_NAMES_NONE;

    return source != SW_NAMES_NONE && sw_executor_holds(t->executor, source);
}
