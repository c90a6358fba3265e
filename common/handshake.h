/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is there? Pure state machines for both ends of the handshake:
 *
 *   dialler                               listener
 *   HELLO(group, role, instance, nonce) ->
 *                                      <- HELLO_REPLY(version, instance, nonce, proof)
 *   HELLO_PROOF(proof)                 ->
 *                                      <- HELLO_DONE
 *
 * proof = HMAC-SHA256(secret, side || both nonces || both instances || group || roles || versions).
 * On TCP with a secret both sides prove it, and one side with a secret and one without is an error
 * that says so. UNIX sockets are trusted by file permission and peer credentials: no secret there.
 */
#ifndef SW_COMMON_HANDSHAKE_H
#define SW_COMMON_HANDSHAKE_H

#include <stdbool.h>
#include "common/message.h"
#include <shardwire/error.h>

struct sw_traffic { /* messages on connections, handshakes included */
    uint64_t sent, received;
};

struct sw_identity { /* who this process is; strings and secret are borrowed and must outlive users
                      */
    const char *group;
    enum sw_role role; /* role as dialler; a listener answers SW_ROLE_TRAINERD or SW_ROLE_INFERD */
    struct sw_id instance;
    const char *host;
    const uint8_t *secret; /* NULL = none */
    size_t secret_bytes;
    struct sw_traffic *traffic; /* all connections of this process count here; NULL = nobody does */
};

struct sw_peer { /* the other side, once proven */
    char group[SW_LABEL_MAX + 1];
    char host[SW_LABEL_MAX * 4 + 1];
    enum sw_role role;
    struct sw_id instance;
    uint32_t protocol;
};

struct sw_handshake;

/* use_secret: false on UNIX sockets. `roles` (listener): bit 1 << role for each role it accepts.
 * `expect` (dialler, may be NULL): the instance that must answer. NULL = no memory or randomness.
 */
struct sw_handshake *sw_handshake_dial(
    const struct sw_identity *self, bool use_secret, const struct sw_id *expect);
struct sw_handshake *sw_handshake_listen(
    const struct sw_identity *self, bool use_secret, uint32_t roles);
void sw_handshake_free(struct sw_handshake *h);

/* The first message of a dialler (owned by the caller); NULL for a listener. */
struct sw_msg *sw_handshake_start(struct sw_handshake *h);

/* Takes the next message in (borrowed); *reply (owned by the caller, may be NULL) is to be sent
 * even on failure (an ERROR message for the peer). *done = true: *peer is proven. */
int sw_handshake_step(struct sw_handshake *h, const struct sw_msg *in, struct sw_msg **reply,
    bool *done, struct sw_peer *peer, struct sw_error *e);

/* 16 random bytes from the kernel. */
int sw_id_random(struct sw_id *id);

/* Reads a secret file (at most 4096 bytes, trailing newline dropped, at least SW_SECRET_MIN bytes,
 * refused when group or others can read it). The caller frees *secret. */
int sw_secret_load(const char *path, uint8_t **secret, size_t *bytes, struct sw_error *e);

#endif
