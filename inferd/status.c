/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that ask how things are: one JSON document; or what the engines here are. */
#include "inferd/server_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/status.h"

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

/* What only the I/O knows of each rank. */
static void decorate(struct sw_server *s, json_t *ranks)
{
    size_t i;
    json_t *rank;

    json_array_foreach(ranks, i, rank)
    {
        uint64_t number = (uint64_t)json_integer_value(json_object_get(rank, "session"));
        struct sw_session *k = sw_session_find(s, number);
        struct sw_port *tcp = k ? sw_session_tcp_port(k) : NULL;

        json_object_set_new(
            rank, "tcp_connections", json_integer(tcp ? sw_tcp_port_connections(tcp) : 0));
        json_object_set_new(rank, "process_alive", json_boolean(k && !k->died));
    }
}

static json_t *document(struct sw_server *s)
{
    json_t *o = sw_registry_status(s->registry, uv_hrtime());
    json_t *coordinator = json_object();
    char id[17];

    decorate(s, json_object_get(o, "ranks"));
    json_object_set_new(coordinator, "host", json_string(s->config.coordinator));
    json_object_set_new(coordinator, "port", json_integer(s->config.coordinator_port));
    json_object_set_new(coordinator, "connected", json_boolean(s->link && sw_link_is_up(s->link)));
    json_object_set_new(coordinator, "name", json_string(s->coordinator_name));
    json_object_set(coordinator, "instance", json_object_get(o, "coordinator_instance"));
    json_object_del(o, "coordinator_instance");
    json_object_del(o, "coordinator_connected");
    json_object_set_new(o, "coordinator", coordinator);
    json_object_set_new(o, "daemon", json_string("inferd"));
    json_object_set_new(o, "group", json_string(s->config.group));
    json_object_set_new(o, "host", json_string(or_empty(s->config.host)));
    json_object_set_new(o, "pid", json_integer(getpid()));
    json_object_set_new(o, "instance", json_string(sw_id_short(&s->self.instance, id)));
    json_object_set_new(o, "socket", json_string(s->config.socket));
    json_object_set_new(o, "listen", json_string(s->config.listen));
    json_object_set_new(o, "port", json_integer(sw_listener_port(s->control)));
    json_object_set_new(o, "data_port", json_integer(sw_listener_port(s->data)));
    json_object_set_new(o, "secret", json_boolean(s->config.secret != NULL));
    json_object_set_new(o, "control_messages", sw_status_traffic(&s->traffic));
    json_object_set_new(o, "refused_connections", json_integer((json_int_t)s->refusals));
    return o;
}

/* ---- engines ---- */

#define LISTED_BYTES (SW_SEND_QUEUE_MAX / 2) /* queued for one client */

struct listing {
    struct sw_conn *conn;
    uint32_t n;
    int code; /* why it ended early */
};

static bool list_parameters(struct listing *l, const struct sw_manifest *m)
{
    for (uint32_t first = 0, next = 0; first < m->n; first = next) {
        struct sw_msg *msg = sw_manifest_part(m, first, &next);

        if (!msg) {
            l->code = SW_ERR_NOMEM;
            return false;
        }
        memset(&msg->u.parameters.instance, 0, sizeof(msg->u.parameters.instance));
        sw_conn_send(l->conn, msg);
        if (sw_conn_queued(l->conn) > LISTED_BYTES) {
            l->code = SW_ERR_LIMIT;
            return false;
        }
    }
    return true;
}

/* Nothing that another process could pretend to be it with. */
static bool list_rank(const struct sw_manifest *m, uint32_t pid, void *arg)
{
    struct listing *l = arg;
    struct sw_msg *msg = sw_manifest_rank_message(m, pid);

    if (!msg) {
        l->code = SW_ERR_NOMEM;
        return false;
    }
    memset(&msg->u.engine_rank.instance, 0, sizeof(msg->u.engine_rank.instance));
    sw_conn_send(l->conn, msg);
    l->n++;
    return list_parameters(l, m);
}

static void send_engines(const struct sw_server *s, struct sw_conn *c, uint64_t request)
{
    struct listing l = {.conn = c};
    struct sw_msg *msg;

    sw_registry_each(s->registry, list_rank, &l);
    msg = l.code ? NULL : sw_msg_new(SW_MSG_ENGINES_DONE);
    if (!msg) {
        sw_server_refuse(c, l.code ? l.code : SW_ERR_NOMEM,
            l.code == SW_ERR_LIMIT ? "the engines here have too many parameters to be told at once"
                                   : "inferd is out of memory");
        return;
    }
    msg->u.engines_done.request = request;
    msg->u.engines_done.n = l.n;
    sw_conn_send(c, msg);
}

/* ---- clients ---- */

static void on_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct sw_client *client = arg;

    if (msg->kind == SW_MSG_STATUS)
        sw_status_send(c, msg->u.status.request, document(client->server));
    else if (msg->kind == SW_MSG_ENGINES)
        send_engines(client->server, c, msg->u.engines.request);
    else
        sw_server_refuse(
            c, SW_ERR_UNSUPPORTED, "inferd answers status only; ask trainerd to stage or publish");
    sw_msg_free(msg);
}

static void on_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct sw_client *client = arg;
    struct sw_server *s = client->server;
    struct sw_client **link = &s->clients;

    while (*link != client)
        link = &(*link)->next;
    *link = client->next;
    free(client);
    sw_server_check_stopped(s);
}

void sw_client_accept(struct sw_server *s, struct sw_conn *c)
{
    static const struct sw_conn_handlers handlers = {NULL, on_message, on_closed};
    struct sw_client *client = calloc(1, sizeof(*client));

    if (!client) {
        sw_conn_close(c, "no memory for a client");
        return;
    }
    client->server = s;
    client->conn = c;
    client->next = s->clients;
    s->clients = client;
    sw_conn_set_handlers(c, &handlers, client);
}
