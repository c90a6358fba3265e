/* SPDX-License-Identifier: Apache-2.0 */
/* What several transports need; in transport.c. */
#ifndef SW_COMMON_TRANSPORT_SHARED_H
#define SW_COMMON_TRANSPORT_SHARED_H

#include <stddef.h>
#include "common/transport.h"

#define SW_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* A target as a path keeps it: for PATH_OPEN, for checks and for messages. */
struct sw_path_target {
    struct sw_id inferd, engine_instance;
    char engine[SW_LABEL_MAX + 1];
    uint32_t engine_rank;
    uint64_t layout_epoch;
    uint8_t host_nonce[SW_NONCE_BYTES];
    uint32_t n_regions;
    uint64_t *region_bytes;
    char name[SW_LABEL_MAX + 160]; /* "tcp path to engine A/2 at 10.0.0.1:7472" */
};
int sw_path_target_init(struct sw_path_target *t, const char *transport,
    const struct sw_path_spec *spec, struct sw_error *e);
void sw_path_target_clear(struct sw_path_target *t);
/* PATH_OPEN for it; NULL = no memory. */
struct sw_msg *sw_path_target_ask(
    const struct sw_path_target *t, bool local, const struct sw_token *token);

/* Checks a job's extents against the source memory and the target's regions; *bytes in all. */
int sw_write_job_check(const struct sw_path_target *t, const struct sw_write_job *job,
    uint64_t *bytes, struct sw_error *e);

/* The functions of the table, by transport. */
int sw_tcp_path_open(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e);
int sw_tcp_path_attach(struct sw_path *p, const struct sw_source_memory *m, sw_path_done done,
    void *arg, struct sw_error *e);
int sw_tcp_path_write(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e);
int sw_tcp_path_verify(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e);
void sw_tcp_path_close(struct sw_path *p, sw_path_done done, void *arg);
int sw_tcp_port_new(
    uv_loop_t *loop, const struct sw_port_spec *spec, struct sw_port **out, struct sw_error *e);
int sw_tcp_port_open(struct sw_port *p, const struct sw_id *window, struct sw_error *e);
void sw_tcp_port_close(struct sw_port *p, sw_port_closed closed, void *arg);
void sw_tcp_port_free(struct sw_port *p, sw_port_closed closed, void *arg);

int sw_local_path_open(uv_loop_t *loop, const struct sw_path_spec *spec, sw_path_broken broken,
    sw_path_done done, void *arg, struct sw_path **out, struct sw_error *e);
int sw_local_path_attach(struct sw_path *p, const struct sw_source_memory *m, sw_path_done done,
    void *arg, struct sw_error *e);
int sw_local_path_write(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e);
int sw_local_path_verify(struct sw_path *p, const struct sw_write_job *job, sw_path_done done,
    void *arg, struct sw_error *e);
void sw_local_path_close(struct sw_path *p, sw_path_done done, void *arg);
int sw_local_port_new(
    uv_loop_t *loop, const struct sw_port_spec *spec, struct sw_port **out, struct sw_error *e);
int sw_local_port_open(struct sw_port *p, const struct sw_id *window, struct sw_error *e);
void sw_local_port_close(struct sw_port *p, sw_port_closed closed, void *arg);
void sw_local_port_free(struct sw_port *p, sw_port_closed closed, void *arg);

/* Non-blocking, no delay, keep-alive. 0 or an errno. */
int sw_tcp_socket_prepare(int fd);

#endif
