/* SPDX-License-Identifier: Apache-2.0 */
#include "common/message.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sw_msg *sw_msg_new(enum sw_msg_kind kind)
{
    struct sw_msg *msg = calloc(1, sizeof(*msg));

    if (!msg)
        return NULL;
    msg->kind = kind;
    for (uint32_t i = 0; i < SW_FRAME_FDS_MAX; i++)
        msg->fds[i] = -1;
    return msg;
}

void sw_msg_free(struct sw_msg *msg)
{
    if (!msg)
        return;
    for (uint32_t i = 0; i < msg->n_fds && i < SW_FRAME_FDS_MAX; i++)
        if (msg->fds[i] >= 0)
            close(msg->fds[i]);
    sw_arena_clear(&msg->arena);
    free(msg);
}

int sw_msg_take_fd(struct sw_msg *msg, uint32_t i)
{
    int fd;

    if (i >= msg->n_fds || i >= SW_FRAME_FDS_MAX)
        return -1;
    fd = msg->fds[i];
    msg->fds[i] = -1;
    return fd;
}

static const char *const kind_names[SW_MSG_KIND_COUNT] = {
    [SW_MSG_HELLO] = "HELLO",
    [SW_MSG_HELLO_REPLY] = "HELLO_REPLY",
    [SW_MSG_HELLO_PROOF] = "HELLO_PROOF",
    [SW_MSG_HELLO_DONE] = "HELLO_DONE",
    [SW_MSG_ERROR] = "ERROR",
    [SW_MSG_TRAINER_OPEN] = "TRAINER_OPEN",
    [SW_MSG_SOURCES] = "SOURCES",
    [SW_MSG_SOURCES_DONE] = "SOURCES_DONE",
    [SW_MSG_BEGIN] = "BEGIN",
    [SW_MSG_BEGIN_DONE] = "BEGIN_DONE",
    [SW_MSG_LOAD_PROGRAM] = "LOAD_PROGRAM",
    [SW_MSG_BUFFER] = "BUFFER",
    [SW_MSG_END] = "END",
    [SW_MSG_END_DONE] = "END_DONE",
    [SW_MSG_ABORT] = "ABORT",
    [SW_MSG_PUBLISH] = "PUBLISH",
    [SW_MSG_RESULT] = "RESULT",
    [SW_MSG_RANK_GONE] = "RANK_GONE",
    [SW_MSG_PLAN_DONE] = "PLAN_DONE",
    [SW_MSG_TARGETS] = "TARGETS",
    [SW_MSG_WRITE_PROGRAM] = "WRITE_PROGRAM",
    [SW_MSG_CONNECT] = "CONNECT",
    [SW_MSG_CONNECTED] = "CONNECTED",
    [SW_MSG_WRITE] = "WRITE",
    [SW_MSG_WRITTEN] = "WRITTEN",
    [SW_MSG_UPDATE_END] = "UPDATE_END",
    [SW_MSG_MEMBER] = "MEMBER",
    [SW_MSG_ENGINE_RANK] = "ENGINE_RANK",
    [SW_MSG_PARAMETERS] = "PARAMETERS",
    [SW_MSG_REGISTERED] = "REGISTERED",
    [SW_MSG_PHASE] = "PHASE",
    [SW_MSG_PHASE_DONE] = "PHASE_DONE",
    [SW_MSG_RANK_STATE] = "RANK_STATE",
    [SW_MSG_PATH_OPEN] = "PATH_OPEN",
    [SW_MSG_PATH_DONE] = "PATH_DONE",
    [SW_MSG_LOCAL_SOURCE] = "LOCAL_SOURCE",
    [SW_MSG_LOCAL_MAPPED] = "LOCAL_MAPPED",
    [SW_MSG_LOCAL_COPY] = "LOCAL_COPY",
    [SW_MSG_LOCAL_DONE] = "LOCAL_DONE",
    [SW_MSG_STATUS] = "STATUS",
    [SW_MSG_STATUS_TEXT] = "STATUS_TEXT",
    [SW_MSG_MAXIMA_PROGRAM] = "MAXIMA_PROGRAM",
    [SW_MSG_MAXIMA] = "MAXIMA",
    [SW_MSG_MAXIMA_DONE] = "MAXIMA_DONE",
    [SW_MSG_ENGINES] = "ENGINES",
    [SW_MSG_ENGINES_DONE] = "ENGINES_DONE",
};

static const char *const phase_names[] = {[SW_PHASE_ARM] = "arm",
    [SW_PHASE_PAUSE] = "pause",
    [SW_PHASE_PREPARE] = "prepare",
    [SW_PHASE_OPEN] = "open",
    [SW_PHASE_CLOSE] = "close",
    [SW_PHASE_POST] = "post",
    [SW_PHASE_ACTIVATE] = "activate",
    [SW_PHASE_RESUME] = "resume",
    [SW_PHASE_ABORT] = "abort"};

static const char *const role_names[] = {[SW_ROLE_TRAINER] = "trainer",
    [SW_ROLE_ENGINE] = "engine",
    [SW_ROLE_TRAINERD] = "trainerd",
    [SW_ROLE_INFERD] = "inferd",
    [SW_ROLE_CLIENT] = "client",
    [SW_ROLE_WRITER] = "writer"};

static const char *const rank_state_names[] = {[SW_RANK_SERVING] = "serving",
    [SW_RANK_PAUSING] = "pausing",
    [SW_RANK_PAUSED] = "paused",
    [SW_RANK_OPEN] = "open",
    [SW_RANK_CLOSED] = "closed",
    [SW_RANK_ACTIVE] = "active",
    [SW_RANK_TORN] = "torn",
    [SW_RANK_GONE] = "gone"};

static const char *const update_state_names[] = {[SW_UPDATE_IDLE] = "idle",
    [SW_UPDATE_STAGING] = "staging",
    [SW_UPDATE_STAGED] = "staged",
    [SW_UPDATE_PUBLISHING] = "publishing",
    [SW_UPDATE_LIVE] = "live",
    [SW_UPDATE_PARTIAL] = "partial",
    [SW_UPDATE_ABORTED] = "aborted"};

static const char *name_of(const char *const *names, size_t count, unsigned value)
{
    return value < count && names[value] ? names[value] : "unknown";
}

#define NAME_OF(names, value) name_of(names, sizeof(names) / sizeof((names)[0]), (unsigned)(value))

const char *sw_msg_kind_name(enum sw_msg_kind kind)
{
    return NAME_OF(kind_names, kind);
}

const char *sw_phase_name(enum sw_phase phase)
{
    return NAME_OF(phase_names, phase);
}

const char *sw_role_name(enum sw_role role)
{
    return NAME_OF(role_names, role);
}

const char *sw_rank_state_name(enum sw_rank_state state)
{
    return NAME_OF(rank_state_names, state);
}

const char *sw_update_state_name(enum sw_update_state state)
{
    return NAME_OF(update_state_names, state);
}

bool sw_id_equal(const struct sw_id *a, const struct sw_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

bool sw_id_is_none(const struct sw_id *a)
{
    static const struct sw_id none;

    return sw_id_equal(a, &none);
}

const char *sw_id_short(const struct sw_id *id, char out[17])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < 8; i++) {
        out[2 * i] = digits[id->bytes[i] >> 4];
        out[2 * i + 1] = digits[id->bytes[i] & 15];
    }
    out[16] = '\0';
    return out;
}
