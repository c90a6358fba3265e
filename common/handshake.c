/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is signed has a label and the side that signs, so that a proof is good for nothing else, and
 * both nonces, so that it is good only once. Each side takes its own values from its own memory and
 * the other's from the messages that it received: whoever changes one on the way makes two
 * different transcripts.
 */
#include "common/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"

#define SOFTWARE "shardwire " SW_VERSION
#define PROOF_LABEL "shardwire handshake 1"
#define SECRET_FILE_MAX 4096

enum state {
    DIAL_NEW,
    DIAL_SENT_HELLO,
    DIAL_SENT_PROOF,
    LISTEN_NEW,
    LISTEN_SENT_REPLY,
    FINISHED, /* one way or the other: no more messages are taken */
};

struct side {
    uint8_t nonce[SW_NONCE_BYTES];
    struct sw_id instance;
    enum sw_role role;
};

struct sw_handshake {
    const struct sw_identity *self;
    enum state state;
    bool use_secret;
    uint32_t roles;
    struct sw_id expect;
    bool has_expect;
    struct side dialler, listener;
    uint32_t offered_min, offered_max, chosen;
    char peer_host[SW_LABEL_MAX * 4 + 1];
};

static int random_bytes(void *out, size_t n)
{
    for (size_t have = 0; have < n;) {
        const ssize_t got = getrandom((char *)out + have, n - have, 0);

        if (got < 0 && errno != EINTR)
            return -1;
        if (got > 0)
            have += (size_t)got;
    }
    return 0;
}

int sw_id_random(struct sw_id *id)
{
    struct sw_id new = {{0}};

    if (random_bytes(new.bytes, sizeof(new.bytes)))
        return -1;
    *id = new;
    return 0;
}

/* ---- making ---- */

static struct sw_handshake *handshake_new(
    const struct sw_identity *self, bool use_secret, bool dialler)
{
    struct sw_handshake *h = calloc(1, sizeof(*h));
    struct side *own;

    if (!h)
        return NULL;
    own = dialler ? &h->dialler : &h->listener;
    if (random_bytes(own->nonce, sizeof(own->nonce))) {
        free(h);
        return NULL;
    }
    own->instance = self->instance;
    own->role = self->role;
    h->self = self;
    h->use_secret = use_secret && self->secret;
    h->state = dialler ? DIAL_NEW : LISTEN_NEW;
    return h;
}

struct sw_handshake *sw_handshake_dial(
    const struct sw_identity *self, bool use_secret, const struct sw_id *expect)
{
    struct sw_handshake *h = handshake_new(self, use_secret, true);

    if (h && expect) {
        h->expect = *expect;
        h->has_expect = true;
    }
    return h;
}

struct sw_handshake *sw_handshake_listen(
    const struct sw_identity *self, bool use_secret, uint32_t roles)
{
    struct sw_handshake *h = handshake_new(self, use_secret, false);

    if (h)
        h->roles = roles;
    return h;
}

void sw_handshake_free(struct sw_handshake *h)
{
    free(h);
}

/* ---- proofs ---- */

static uint8_t *put(uint8_t *to, const void *bytes, size_t n)
{
    memcpy(to, bytes, n);
    return to + n;
}

static uint8_t *put_u32(uint8_t *to, uint32_t value)
{
    const uint8_t bytes[4] = {
        (uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value};

    return put(to, bytes, sizeof(bytes));
}

/* The proof of one side. All parts but the last have a fixed length. */
static int make_proof(
    const struct sw_handshake *h, bool of_dialler, uint8_t proof[32], struct sw_error *e)
{
    uint8_t text[sizeof(PROOF_LABEL) + 4 + 2 * (SW_NONCE_BYTES + 16 + 4) + 3 * 4 + SW_LABEL_MAX];
    uint8_t *at = text;
    size_t length = 0;

    at = put(at, PROOF_LABEL, sizeof(PROOF_LABEL));
    at = put_u32(at, of_dialler ? 1 : 2);
    at = put(at, h->dialler.nonce, SW_NONCE_BYTES);
    at = put(at, h->listener.nonce, SW_NONCE_BYTES);
    at = put(at, h->dialler.instance.bytes, 16);
    at = put(at, h->listener.instance.bytes, 16);
    at = put_u32(at, h->dialler.role);
    at = put_u32(at, h->listener.role);
    at = put_u32(at, h->offered_min);
    at = put_u32(at, h->offered_max);
    at = put_u32(at, h->chosen);
    at = put(at, h->self->group, strnlen(h->self->group, SW_LABEL_MAX));
    if (!EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, h->self->secret, h->self->secret_bytes, text,
            (size_t)(at - text), proof, 32, &length) ||
        length != 32)
        return sw_fail(e, SW_ERR_NOMEM, "libcrypto can't compute an HMAC-SHA256");
    return 0;
}

static int check_proof(
    const struct sw_handshake *h, bool of_dialler, const uint8_t proof[32], struct sw_error *e)
{
    uint8_t expected[32];
    int rc;

    if (!h->use_secret)
        return 0;
    rc = make_proof(h, of_dialler, expected, e);
    if (rc == 0 && CRYPTO_memcmp(expected, proof, sizeof(expected)) != 0)
        rc = sw_fail(e, SW_ERR_AUTH,
            "the shared secrets differ: the same secret file is needed on both hosts");
    OPENSSL_cleanse(expected, sizeof(expected));
    return rc;
}

/* ---- checks of a hello ---- */

static int check_group(const struct sw_handshake *h, const struct sw_hello *in, struct sw_error *e)
{
    if (strcmp(in->group, h->self->group) == 0)
        return 0;
    return sw_fail(e, SW_ERR_AUTH, "groups differ: \"%s\" came to \"%s\"",
        h->state == LISTEN_NEW ? in->group : h->self->group,
        h->state == LISTEN_NEW ? h->self->group : in->group);
}

static int check_secret(const struct sw_handshake *h, const struct sw_hello *in, struct sw_error *e)
{
    const char *const self = sw_role_name(h->self->role), *const other = sw_role_name(in->role);

    if (h->use_secret == (in->has_secret != 0))
        return 0;
    return sw_fail(e, SW_ERR_AUTH, "the %s on %s has a shared secret and the %s on %s has none",
        h->use_secret ? self : other, h->use_secret ? h->self->host : in->host,
        h->use_secret ? other : self, h->use_secret ? in->host : h->self->host);
}

static int check_nonce(const struct sw_handshake *h, const struct side *own,
    const struct sw_hello *in, struct sw_error *e)
{
    static const uint8_t none[SW_NONCE_BYTES];

    if (memcmp(in->nonce, none, sizeof(none)) == 0)
        return sw_fail(e, SW_ERR_PROTOCOL, "message %s without a nonce",
            sw_msg_kind_name(h->state == LISTEN_NEW ? SW_MSG_HELLO : SW_MSG_HELLO_REPLY));
    if (memcmp(in->nonce, own->nonce, sizeof(own->nonce)) == 0)
        return sw_fail(e, SW_ERR_AUTH, "the other side sent our own nonce back");
    return 0;
}

/* Who dials whom (docs/protocol.md). */
static bool may_answer(enum sw_role dialler, enum sw_role listener)
{
    switch (dialler) {
    case SW_ROLE_ENGINE:
    case SW_ROLE_WRITER:
        return listener == SW_ROLE_INFERD;
    case SW_ROLE_CLIENT:
        return listener == SW_ROLE_TRAINERD || listener == SW_ROLE_INFERD;
    default:
        return listener == SW_ROLE_TRAINERD;
    }
}

static void keep_host(struct sw_handshake *h, const char *host)
{
    snprintf(h->peer_host, sizeof(h->peer_host), "%s", host);
    for (char *c = h->peer_host; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* it is printed */
}

/* ---- steps ---- */

static void fill_hello(const struct sw_handshake *h, const struct side *own, struct sw_hello *out)
{
    out->group = h->self->group;
    out->role = own->role;
    out->instance = own->instance;
    memcpy(out->nonce, own->nonce, sizeof(out->nonce));
    out->has_secret = h->use_secret;
    out->software = SOFTWARE;
    out->host = h->self->host;
}

struct sw_msg *sw_handshake_start(struct sw_handshake *h)
{
    struct sw_msg *msg;

    if (h->state != DIAL_NEW)
        return NULL;
    msg = sw_msg_new(SW_MSG_HELLO);
    if (!msg)
        return NULL;
    h->offered_min = SW_PROTOCOL_MIN;
    h->offered_max = SW_PROTOCOL_MAX;
    fill_hello(h, &h->dialler, &msg->u.hello);
    msg->u.hello.protocol_min = h->offered_min;
    msg->u.hello.protocol_max = h->offered_max;
    h->state = DIAL_SENT_HELLO;
    return msg;
}

static int no_memory(struct sw_error *e)
{
    return sw_fail(e, SW_ERR_NOMEM, "no memory for the handshake");
}

static int choose_version(struct sw_handshake *h, const struct sw_hello *in, struct sw_error *e)
{
    if (in->protocol_min > in->protocol_max)
        return sw_fail(e, SW_ERR_PROTOCOL, "a range of protocol versions from %u to %u",
            in->protocol_min, in->protocol_max);
    if (in->protocol_max < SW_PROTOCOL_MIN || in->protocol_min > SW_PROTOCOL_MAX)
        return sw_fail(e, SW_ERR_UNSUPPORTED,
            "no common protocol version: %s on %s speaks %u to %u, %s on %s speaks %u to %u",
            sw_role_name(in->role), in->host, in->protocol_min, in->protocol_max,
            sw_role_name(h->self->role), h->self->host, SW_PROTOCOL_MIN, SW_PROTOCOL_MAX);
    h->offered_min = in->protocol_min;
    h->offered_max = in->protocol_max;
    h->chosen = in->protocol_max < SW_PROTOCOL_MAX ? in->protocol_max : SW_PROTOCOL_MAX;
    return 0;
}

/* Listener: HELLO -> HELLO_REPLY. */
static int answer_hello(
    struct sw_handshake *h, const struct sw_hello *in, struct sw_msg **reply, struct sw_error *e)
{
    int rc = choose_version(h, in, e);

    if (rc == 0)
        rc = check_group(h, in, e);
    if (rc == 0 && ((unsigned)in->role > 31 || !(h->roles & 1u << in->role)))
        rc = sw_fail(e, SW_ERR_AUTH, "this %s takes no %s here: another socket or port is meant",
            sw_role_name(h->self->role), sw_role_name(in->role));
    if (rc == 0)
        rc = check_secret(h, in, e);
    if (rc == 0)
        rc = check_nonce(h, &h->listener, in, e);
    if (rc)
        return rc;
    keep_host(h, in->host);
    h->dialler.instance = in->instance;
    h->dialler.role = in->role;
    memcpy(h->dialler.nonce, in->nonce, sizeof(in->nonce));
    *reply = sw_msg_new(SW_MSG_HELLO_REPLY);
    if (!*reply)
        return no_memory(e);
    fill_hello(h, &h->listener, &(*reply)->u.hello);
    (*reply)->u.hello.protocol_min = (*reply)->u.hello.protocol_max = h->chosen;
    h->state = LISTEN_SENT_REPLY;
    return h->use_secret ? make_proof(h, false, (*reply)->u.hello.proof, e) : 0;
}

static int check_reply(struct sw_handshake *h, const struct sw_hello *in, struct sw_error *e)
{
    char want[17], got[17];
    int rc;

    if (in->protocol_min != in->protocol_max || in->protocol_min < h->offered_min ||
        in->protocol_max > h->offered_max)
        return sw_fail(e, SW_ERR_PROTOCOL,
            "the other side chose protocol version %u to %u out of %u to %u", in->protocol_min,
            in->protocol_max, h->offered_min, h->offered_max);
    rc = check_group(h, in, e);
    if (rc == 0 && !may_answer(h->self->role, in->role))
        rc = sw_fail(e, SW_ERR_AUTH,
            "dialled as %s, and %s answered, which takes none: check host and port",
            sw_role_name(h->self->role), sw_role_name(in->role));
    if (rc == 0 && h->has_expect && !sw_id_equal(&h->expect, &in->instance))
        rc = sw_fail(e, SW_ERR_AUTH, "instance %s answered, and %s was expected: it was restarted",
            sw_id_short(&in->instance, got), sw_id_short(&h->expect, want));
    if (rc == 0)
        rc = check_secret(h, in, e);
    return rc ? rc : check_nonce(h, &h->dialler, in, e);
}

/* Dialler: HELLO_REPLY -> HELLO_PROOF. */
static int answer_reply(
    struct sw_handshake *h, const struct sw_hello *in, struct sw_msg **reply, struct sw_error *e)
{
    int rc = check_reply(h, in, e);

    if (rc)
        return rc;
    keep_host(h, in->host);
    h->chosen = in->protocol_max;
    h->listener.instance = in->instance;
    h->listener.role = in->role;
    memcpy(h->listener.nonce, in->nonce, sizeof(in->nonce));
    rc = check_proof(h, false, in->proof, e);
    if (rc)
        return rc;
    *reply = sw_msg_new(SW_MSG_HELLO_PROOF);
    if (!*reply)
        return no_memory(e);
    h->state = DIAL_SENT_PROOF;
    return h->use_secret ? make_proof(h, true, (*reply)->u.hello_proof.proof, e) : 0;
}

static void finish(struct sw_handshake *h, const struct side *other, struct sw_peer *peer)
{
    snprintf(peer->group, sizeof(peer->group), "%s", h->self->group);
    snprintf(peer->host, sizeof(peer->host), "%s", h->peer_host);
    peer->role = other->role;
    peer->instance = other->instance;
    peer->protocol = h->chosen;
    h->state = FINISHED;
}

/* Listener: HELLO_PROOF -> HELLO_DONE. */
static int answer_proof(struct sw_handshake *h, const struct sw_hello_proof *in,
    struct sw_msg **reply, struct sw_error *e)
{
    int rc = check_proof(h, true, in->proof, e);

    if (rc)
        return rc;
    *reply = sw_msg_new(SW_MSG_HELLO_DONE);
    return *reply ? 0 : no_memory(e);
}

static int refused(const struct sw_failure *in, struct sw_error *e)
{
    return sw_fail(e, in->code ? in->code : SW_ERR_PROTOCOL, "%s",
        in->reason[0] ? in->reason : "refused without a reason");
}

static int step(struct sw_handshake *h, const struct sw_msg *in, struct sw_msg **reply, bool *done,
    struct sw_peer *peer, struct sw_error *e)
{
    int rc;

    if (h->state == LISTEN_NEW && in->kind == SW_MSG_HELLO)
        return answer_hello(h, &in->u.hello, reply, e);
    if (h->state == DIAL_SENT_HELLO && in->kind == SW_MSG_HELLO_REPLY)
        return answer_reply(h, &in->u.hello, reply, e);
    if (h->state == LISTEN_SENT_REPLY && in->kind == SW_MSG_HELLO_PROOF) {
        rc = answer_proof(h, &in->u.hello_proof, reply, e);
        if (rc == 0) {
            finish(h, &h->dialler, peer);
            *done = true;
        }
        return rc;
    }
    if (h->state == DIAL_SENT_PROOF && in->kind == SW_MSG_HELLO_DONE) {
        finish(h, &h->listener, peer);
        *done = true;
        return 0;
    }
    return sw_fail(e, SW_ERR_PROTOCOL, "message %s in the handshake, where it has no place",
        sw_msg_kind_name(in->kind));
}

/* What the peer is told. Its reason lies in the message's own arena. */
static struct sw_msg *error_message(int code, const char *text)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ERROR);

    if (!msg)
        return NULL;
    msg->u.error.code = code;
    msg->u.error.reason = sw_arena_strdup(&msg->arena, text);
    return msg;
}

int sw_handshake_step(struct sw_handshake *h, const struct sw_msg *in, struct sw_msg **reply,
    bool *done, struct sw_peer *peer, struct sw_error *e)
{
    struct sw_error own = {0};
    int rc;

    *reply = NULL;
    *done = false;
    if (in->kind == SW_MSG_ERROR && h->state != FINISHED) {
        h->state = FINISHED;
        return refused(&in->u.error, e); /* an error is not answered with an error */
    }
    rc = step(h, in, reply, done, peer, &own);
    if (rc) {
        h->state = FINISHED;
        sw_msg_free(*reply);
        *reply = error_message(rc, own.text);
        if (e)
            *e = own;
    }
    return rc;
}

/* ---- secret file ---- */

static int read_secret(int fd, const char *path, uint8_t *buffer, size_t *n, struct sw_error *e)
{
    struct stat st;
    size_t have = 0;

    if (fstat(fd, &st))
        return sw_fail_errno(e, SW_ERR_IO, errno, "secret file %s", path);
    if (!S_ISREG(st.st_mode))
        return sw_fail(e, SW_ERR_INVALID, "secret file %s is no regular file", path);
    if (st.st_mode & 077)
        return sw_fail(e, SW_ERR_AUTH,
            "secret file %s has mode %03o, so that others can use it: chmod 600 %s", path,
            (unsigned)st.st_mode & 0777, path);
    for (;;) {
        const ssize_t got = read(fd, buffer + have, SECRET_FILE_MAX + 1 - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return sw_fail_errno(e, SW_ERR_IO, errno, "secret file %s", path);
        if (got == 0)
            break;
        have += (size_t)got;
        if (have > SECRET_FILE_MAX)
            return sw_fail(
                e, SW_ERR_LIMIT, "secret file %s has over %d bytes", path, SECRET_FILE_MAX);
    }
    if (have && buffer[have - 1] == '\n')
        have--;
    if (have < SW_SECRET_MIN)
        return sw_fail(e, SW_ERR_LIMIT, "secret file %s has %zu bytes, at least %d are needed",
            path, have, SW_SECRET_MIN);
    *n = have;
    return 0;
}

int sw_secret_load(const char *path, uint8_t **secret, size_t *bytes, struct sw_error *e)
{
    uint8_t *buffer;
    size_t n = 0;
    int fd, rc;

    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return sw_fail_errno(e, SW_ERR_IO, errno, "secret file %s", path);
    buffer = malloc(SECRET_FILE_MAX + 1);
    rc = buffer ? read_secret(fd, path, buffer, &n, e)
                : sw_fail(e, SW_ERR_NOMEM, "no memory for secret file %s", path);
    close(fd);
    if (rc) {
        if (buffer)
            OPENSSL_cleanse(buffer, SECRET_FILE_MAX + 1);
        free(buffer);
        return rc;
    }
    *secret = buffer;
    *bytes = n;
    return 0;
}
