/* SPDX-License-Identifier: Apache-2.0 */
#include "common/handshake.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec.h"
#include "common/test_suite.h"

#define SECRET_A ((const uint8_t *)"a secret of the test")
#define SECRET_B ((const uint8_t *)"another secret of it")
#define SECRET_BYTES 20
#define BIT(role) (1u << (role))

static const struct sw_identity dialler = {.group = "rl",
    .role = SW_ROLE_TRAINERD,
    .instance = {{1, 2, 3}},
    .host = "train0",
    .secret = SECRET_A,
    .secret_bytes = SECRET_BYTES};
static const struct sw_identity listener = {.group = "rl",
    .role = SW_ROLE_TRAINERD,
    .instance = {{9, 8, 7}},
    .host = "train1",
    .secret = SECRET_A,
    .secret_bytes = SECRET_BYTES};

/* A step, with the message sent through the codec as it would be. */
static int step(struct sw_handshake *h, const struct sw_msg *in, struct sw_msg **reply, bool *done,
    struct sw_peer *peer, struct sw_error *e)
{
    struct sw_msg *wire = NULL;
    uint8_t *bytes;
    size_t length;
    int rc;

    e->code = 0;
    ck_assert_int_eq(sw_codec_encode(in, &bytes, &length, e), 0);
    ck_assert_int_eq(sw_codec_decode(bytes, length, &wire, e), 0);
    free(bytes);
    rc = sw_handshake_step(h, wire, reply, done, peer, e);
    sw_msg_free(wire);
    return rc;
}

struct outcome {
    int dialler, listener; /* codes; 0 = proven */
    struct sw_error why_dialler, why_listener;
    struct sw_peer at_dialler, at_listener;
};

/* Sends messages to and fro until nobody has one; `change` may change them on the way. */
static void talk(struct sw_handshake *d, struct sw_handshake *l, void (*change)(struct sw_msg *),
    struct outcome *out)
{
    struct sw_msg *msg = sw_handshake_start(d), *reply;
    bool done, to_listener = true;

    memset(out, 0, sizeof(*out));
    out->dialler = out->listener = 1; /* undecided */
    while (msg) {
        if (change)
            change(msg);
        if (to_listener) {
            const int rc = step(l, msg, &reply, &done, &out->at_listener, &out->why_listener);

            if (rc || done)
                out->listener = rc;
        } else {
            const int rc = step(d, msg, &reply, &done, &out->at_dialler, &out->why_dialler);

            if (rc || done)
                out->dialler = rc;
        }
        sw_msg_free(msg);
        msg = reply;
        to_listener = !to_listener;
    }
    sw_handshake_free(d);
    sw_handshake_free(l);
}

START_TEST(proven)
{
    const bool secret = _i;
    struct outcome o;

    talk(sw_handshake_dial(&dialler, secret, &listener.instance),
        sw_handshake_listen(&listener, secret, BIT(SW_ROLE_TRAINERD) | BIT(SW_ROLE_INFERD)), NULL,
        &o);
    ck_assert_msg(o.dialler == 0, "%s", o.why_dialler.text);
    ck_assert_msg(o.listener == 0, "%s", o.why_listener.text);
    ck_assert_str_eq(o.at_dialler.group, "rl");
    ck_assert_str_eq(o.at_dialler.host, "train1");
    ck_assert_str_eq(o.at_listener.host, "train0");
    ck_assert_int_eq(o.at_listener.role, SW_ROLE_TRAINERD);
    ck_assert(sw_id_equal(&o.at_listener.instance, &dialler.instance));
    ck_assert(sw_id_equal(&o.at_dialler.instance, &listener.instance));
    ck_assert_uint_eq(o.at_dialler.protocol, SW_PROTOCOL_MAX);
    ck_assert_uint_eq(o.at_listener.protocol, SW_PROTOCOL_MAX);
}
END_TEST

/* ---- refusals: what differs between the two sides ---- */

static const uint8_t no_secret[1];
static const struct sw_id another = {{5}};

static const struct {
    const char *group;
    const uint8_t *secret_dialler, *secret_listener;
    enum sw_role dials, answers;
    const struct sw_id *expect;
    int code;
    const char *says;
} refusals[] = {
    {"rl", SECRET_A, SECRET_B, SW_ROLE_TRAINERD, SW_ROLE_TRAINERD, NULL, SW_ERR_AUTH,
        "shared secrets differ"},
    {"rl", SECRET_A, no_secret, SW_ROLE_TRAINERD, SW_ROLE_TRAINERD, NULL, SW_ERR_AUTH,
        "trainerd on train0 has a shared secret and the trainerd on train1 has none"},
    {"rl", no_secret, SECRET_A, SW_ROLE_TRAINERD, SW_ROLE_TRAINERD, NULL, SW_ERR_AUTH,
        "trainerd on train1 has a shared secret and the trainerd on train0 has none"},
    {"other", SECRET_A, SECRET_A, SW_ROLE_TRAINERD, SW_ROLE_TRAINERD, NULL, SW_ERR_AUTH,
        "\"other\" came to \"rl\""},
    {"", SECRET_A, SECRET_A, SW_ROLE_TRAINERD, SW_ROLE_TRAINERD, NULL, SW_ERR_AUTH,
        "groups differ"},
    {"rl", SECRET_A, SECRET_A, SW_ROLE_ENGINE, SW_ROLE_INFERD, NULL, SW_ERR_AUTH,
        "inferd takes no engine"},
    {"rl", SECRET_A, SECRET_A, SW_ROLE_TRAINERD, SW_ROLE_INFERD, NULL, SW_ERR_AUTH,
        "dialled as trainerd, and inferd answered"},
    {"rl", SECRET_A, SECRET_A, SW_ROLE_INFERD, SW_ROLE_WRITER, NULL, SW_ERR_AUTH,
        "dialled as inferd, and writer answered"},
    {"rl", SECRET_A, SECRET_A, SW_ROLE_TRAINERD, SW_ROLE_TRAINERD, &another, SW_ERR_AUTH,
        "0500000000000000 was expected"},
};

START_TEST(refused)
{
    struct sw_identity d = dialler, l = listener;
    struct outcome o;

    d.group = refusals[_i].group;
    d.role = refusals[_i].dials;
    l.role = refusals[_i].answers;
    d.secret = refusals[_i].secret_dialler == no_secret ? NULL : refusals[_i].secret_dialler;
    l.secret = refusals[_i].secret_listener == no_secret ? NULL : refusals[_i].secret_listener;
    talk(sw_handshake_dial(&d, true, refusals[_i].expect),
        sw_handshake_listen(&l, true, BIT(SW_ROLE_TRAINERD) | BIT(SW_ROLE_INFERD)), NULL, &o);
    /* Both know, with one text: one found out, the other was told. */
    ck_assert_int_eq(o.dialler, refusals[_i].code);
    ck_assert_int_eq(o.listener, refusals[_i].code);
    ck_assert_str_eq(o.why_dialler.text, o.why_listener.text);
    ck_assert_msg(strstr(o.why_dialler.text, refusals[_i].says) != NULL, "%s", o.why_dialler.text);
    ck_assert_int_eq(o.at_dialler.role, 0); /* no peer is given */
    ck_assert_int_eq(o.at_listener.role, 0);
}
END_TEST

/* ---- changed on the way ---- */

static void newer_protocol(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.protocol_min = msg->u.hello.protocol_max = SW_PROTOCOL_MAX + 1;
}

static void older_protocol(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.protocol_min = msg->u.hello.protocol_max = SW_PROTOCOL_MIN - 1;
}

static void backward_range(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.protocol_min = SW_PROTOCOL_MAX + 5;
}

static void wider_range(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.protocol_max = 9; /* fine in itself, but it is signed */
}

static void chosen_out_of_range(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO_REPLY)
        msg->u.hello.protocol_min = msg->u.hello.protocol_max = SW_PROTOCOL_MAX + 1;
}

static void other_instance(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.instance.bytes[15] ^= 1;
}

static void other_role(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.role = SW_ROLE_INFERD;
}

static void other_nonce(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.nonce[0] ^= 1;
}

static void no_nonce(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        memset(msg->u.hello.nonce, 0, sizeof(msg->u.hello.nonce));
}

static void other_proof_of_listener(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO_REPLY)
        msg->u.hello.proof[31] ^= 1;
}

static void other_proof_of_dialler(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO_PROOF)
        msg->u.hello_proof.proof[31] ^= 1;
}

static void no_proof_of_dialler(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO_PROOF)
        memset(msg->u.hello_proof.proof, 0, 32);
}

static void secret_denied(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO || msg->kind == SW_MSG_HELLO_REPLY)
        msg->u.hello.has_secret = 0;
}

static void nonce_reflected(struct sw_msg *msg)
{
    static uint8_t nonce[SW_NONCE_BYTES];

    if (msg->kind == SW_MSG_HELLO)
        memcpy(nonce, msg->u.hello.nonce, sizeof(nonce));
    if (msg->kind == SW_MSG_HELLO_REPLY)
        memcpy(msg->u.hello.nonce, nonce, sizeof(nonce));
}

static const struct {
    void (*change)(struct sw_msg *);
    int code;
} changes[] = {
    {newer_protocol, SW_ERR_UNSUPPORTED},
    {older_protocol, SW_ERR_UNSUPPORTED},
    {backward_range, SW_ERR_PROTOCOL},
    {wider_range, SW_ERR_AUTH},
    {chosen_out_of_range, SW_ERR_PROTOCOL},
    {other_instance, SW_ERR_AUTH},
    {other_role, SW_ERR_AUTH},
    {other_nonce, SW_ERR_AUTH},
    {no_nonce, SW_ERR_PROTOCOL},
    {other_proof_of_listener, SW_ERR_AUTH},
    {other_proof_of_dialler, SW_ERR_AUTH},
    {no_proof_of_dialler, SW_ERR_AUTH},
    {secret_denied, SW_ERR_AUTH},
    {nonce_reflected, SW_ERR_AUTH},
};

START_TEST(changed_on_the_way)
{
    struct outcome o;

    talk(sw_handshake_dial(&dialler, true, NULL),
        sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD) | BIT(SW_ROLE_INFERD)),
        changes[_i].change, &o);
    ck_assert_msg(o.dialler == changes[_i].code, "%s", o.why_dialler.text);
    ck_assert_msg(o.listener == changes[_i].code, "%s", o.why_listener.text);
}
END_TEST

START_TEST(versions_in_the_text)
{
    struct outcome o;

    talk(sw_handshake_dial(&dialler, true, NULL),
        sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD)), newer_protocol, &o);
    ck_assert_str_eq(o.why_listener.text,
        "no common protocol version: trainerd on train0 speaks 2 to 2, trainerd on train1 speaks 1 "
        "to 1");
}
END_TEST

/* ---- replays ---- */

/* Runs a session of two honest sides and keeps its second and third message. */
static void record(struct sw_msg **hello_reply, struct sw_msg **hello_proof)
{
    struct sw_handshake *d = sw_handshake_dial(&dialler, true, NULL);
    struct sw_handshake *l = sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD));
    struct sw_msg *hello = sw_handshake_start(d);
    struct sw_peer peer;
    struct sw_error e;
    bool done;

    ck_assert_int_eq(step(l, hello, hello_reply, &done, &peer, &e), 0);
    ck_assert_int_eq(step(d, *hello_reply, hello_proof, &done, &peer, &e), 0);
    sw_msg_free(hello);
    sw_handshake_free(d);
    sw_handshake_free(l);
}

START_TEST(replayed)
{
    struct sw_msg *old_reply, *old_proof, *hello, *reply, *answer;
    struct sw_handshake *d = sw_handshake_dial(&dialler, true, NULL);
    struct sw_handshake *l = sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD));
    struct sw_peer peer = {0};
    struct sw_error e;
    bool done;

    record(&old_reply, &old_proof);
    hello = sw_handshake_start(d);
    ck_assert_int_eq(step(d, old_reply, &answer, &done, &peer, &e), SW_ERR_AUTH);
    ck_assert_int_eq(answer->kind, SW_MSG_ERROR);
    sw_msg_free(answer);
    ck_assert_int_eq(step(l, hello, &reply, &done, &peer, &e), 0);
    ck_assert_int_eq(step(l, old_proof, &answer, &done, &peer, &e), SW_ERR_AUTH);
    ck_assert(!done);
    ck_assert_int_eq(answer->kind, SW_MSG_ERROR);
    sw_msg_free(answer);
    /* Who was refused once can't go on in the same session, with whatever. */
    ck_assert_int_eq(step(l, hello, &answer, &done, &peer, &e), SW_ERR_PROTOCOL);
    sw_msg_free(answer);
    sw_msg_free(hello);
    sw_msg_free(reply);
    sw_msg_free(old_reply);
    sw_msg_free(old_proof);
    sw_handshake_free(d);
    sw_handshake_free(l);
}
END_TEST

/* The listener's proof, sent back as the dialler's: what somebody without the secret has at hand.
 */
START_TEST(reflected)
{
    struct sw_handshake *d = sw_handshake_dial(&dialler, true, NULL);
    struct sw_handshake *l = sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD));
    struct sw_msg *hello = sw_handshake_start(d), *reply, *answer;
    struct sw_msg *forged = sw_msg_new(SW_MSG_HELLO_PROOF);
    struct sw_peer peer = {0};
    struct sw_error e;
    bool done;

    ck_assert_int_eq(step(l, hello, &reply, &done, &peer, &e), 0);
    memcpy(forged->u.hello_proof.proof, reply->u.hello.proof, 32);
    ck_assert_int_eq(step(l, forged, &answer, &done, &peer, &e), SW_ERR_AUTH);
    sw_msg_free(answer);
    sw_msg_free(forged);
    sw_msg_free(reply);
    sw_msg_free(hello);
    sw_handshake_free(d);
    sw_handshake_free(l);
}
END_TEST

/* Every message in every state, except the one that has its place there. */
START_TEST(out_of_order)
{
    for (int state = 0; state < 4; state++) {
        static const enum sw_msg_kind right[] = {
            SW_MSG_HELLO, SW_MSG_HELLO_PROOF, SW_MSG_HELLO_REPLY, SW_MSG_HELLO_DONE};
        struct sw_handshake *d = sw_handshake_dial(&dialler, true, NULL);
        struct sw_handshake *l = sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD));
        struct sw_msg *hello = sw_handshake_start(d), *reply = NULL, *proof = NULL, *answer;
        struct sw_msg *wrong = sw_msg_new((enum sw_msg_kind)_i);
        struct sw_peer peer = {0};
        struct sw_error e = {0};
        bool done;

        if (state != 0)
            ck_assert_int_eq(sw_handshake_step(l, hello, &reply, &done, &peer, &e), 0);
        if (state == 3)
            ck_assert_int_eq(sw_handshake_step(d, reply, &proof, &done, &peer, &e), 0);
        if (_i != (int)right[state] && _i != SW_MSG_ERROR) {
            ck_assert_int_eq(sw_handshake_step(state < 2 ? l : d, wrong, &answer, &done, &peer, &e),
                SW_ERR_PROTOCOL);
            ck_assert(!done);
            ck_assert_int_eq(answer->kind, SW_MSG_ERROR);
            sw_msg_free(answer);
        }
        sw_msg_free(wrong);
        sw_msg_free(hello);
        sw_msg_free(reply);
        sw_msg_free(proof);
        sw_handshake_free(d);
        sw_handshake_free(l);
    }
}
END_TEST

START_TEST(told_by_the_other)
{
    struct sw_handshake *d = sw_handshake_dial(&dialler, true, NULL);
    struct sw_msg *hello = sw_handshake_start(d), *error = sw_msg_new(SW_MSG_ERROR), *answer;
    struct sw_peer peer;
    struct sw_error e;
    bool done;

    error->u.error.code = SW_ERR_LIMIT;
    error->u.error.reason = "full";
    ck_assert_int_eq(step(d, error, &answer, &done, &peer, &e), SW_ERR_LIMIT);
    ck_assert_str_eq(e.text, "full");
    ck_assert_ptr_null(answer); /* an error is not answered with an error */
    sw_msg_free(error);
    sw_msg_free(hello);
    sw_handshake_free(d);
}
END_TEST

/* What the other host calls itself is printed in logs. */
static void host_with_escapes(struct sw_msg *msg)
{
    if (msg->kind == SW_MSG_HELLO)
        msg->u.hello.host = "a\x1b[31m\nb";
}

START_TEST(printable_host)
{
    struct outcome o;

    talk(sw_handshake_dial(&dialler, true, NULL),
        sw_handshake_listen(&listener, true, BIT(SW_ROLE_TRAINERD)), host_with_escapes, &o);
    ck_assert_int_eq(o.listener, 0);
    ck_assert_str_eq(o.at_listener.host, "a?[31m?b");
}
END_TEST

START_TEST(random_ids)
{
    struct sw_id a = {0}, b = {0};

    ck_assert_int_eq(sw_id_random(&a), 0);
    ck_assert_int_eq(sw_id_random(&b), 0);
    ck_assert(!sw_id_is_none(&a));
    ck_assert(!sw_id_equal(&a, &b));
}
END_TEST

/* ---- secret files ---- */

static char secret_path[] = "/tmp/shardwire-secret-XXXXXX";

static void write_secret(const void *bytes, size_t n, mode_t mode)
{
    int fd;

    memset(secret_path + sizeof(secret_path) - 7, 'X', 6);
    fd = mkstemp(secret_path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, n), n);
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static const struct {
    const char *content;
    size_t n, bytes; /* bytes: of the secret, 0 = refused */
    mode_t mode;
    int code;
    const char *says;
} secrets[] = {
    {"0123456789abcdef\n", 17, 16, 0600, 0, NULL},
    {"0123456789abcdef", 16, 16, 0400, 0, NULL},
    {"0123456789abcdef\n\n", 18, 17, 0600, 0, NULL},
    {"0123\00056789abcdefg", 17, 17, 0600, 0, NULL},
    {"0123456789abcde\n", 16, 0, 0600, SW_ERR_LIMIT, "15 bytes, at least 16"},
    {"", 0, 0, 0600, SW_ERR_LIMIT, "0 bytes"},
    {"0123456789abcdef", 16, 0, 0640, SW_ERR_AUTH, "mode 640"},
    {"0123456789abcdef", 16, 0, 0604, SW_ERR_AUTH, "chmod 600"},
};

START_TEST(secret_files)
{
    struct sw_error e = {0};
    uint8_t *secret = NULL;
    size_t bytes = 0;
    int rc;

    write_secret(secrets[_i].content, secrets[_i].n, secrets[_i].mode);
    rc = sw_secret_load(secret_path, &secret, &bytes, &e);
    unlink(secret_path);
    ck_assert_msg(rc == secrets[_i].code, "%s", e.text);
    ck_assert_uint_eq(bytes, secrets[_i].bytes);
    if (rc)
        ck_assert_msg(
            strstr(e.text, secrets[_i].says) && strstr(e.text, secret_path), "%s", e.text);
    else
        ck_assert_mem_eq(secret, secrets[_i].content, bytes);
    free(secret);
}
END_TEST

START_TEST(secret_that_is_no_file)
{
    char large[4097];
    struct sw_error e = {0};
    uint8_t *secret;
    size_t bytes;

    ck_assert_int_eq(sw_secret_load("/nonexistent/secret", &secret, &bytes, &e), SW_ERR_IO);
    ck_assert_ptr_nonnull(strstr(e.text, "/nonexistent/secret: No such file"));
    ck_assert_int_eq(sw_secret_load("/tmp", &secret, &bytes, &e), SW_ERR_INVALID);
    ck_assert_int_eq(sw_secret_load("/dev/zero", &secret, &bytes, &e), SW_ERR_INVALID);
    memset(large, 's', sizeof(large));
    write_secret(large, sizeof(large), 0600);
    ck_assert_int_eq(sw_secret_load(secret_path, &secret, &bytes, &e), SW_ERR_LIMIT);
    unlink(secret_path);
    write_secret(large, 4096, 0600);
    ck_assert_int_eq(sw_secret_load(secret_path, &secret, &bytes, &e), 0);
    unlink(secret_path);
    ck_assert_uint_eq(bytes, 4096);
    free(secret);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("handshake");
    TCase *t = tcase_create("handshake");

    tcase_add_loop_test(t, proven, 0, 2);
    tcase_add_loop_test(t, refused, 0, sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_loop_test(t, changed_on_the_way, 0, sizeof(changes) / sizeof(changes[0]));
    tcase_add_test(t, versions_in_the_text);
    tcase_add_test(t, replayed);
    tcase_add_test(t, reflected);
    tcase_add_loop_test(t, out_of_order, 1, SW_MSG_KIND_COUNT);
    tcase_add_test(t, told_by_the_other);
    tcase_add_test(t, printable_host);
    tcase_add_test(t, random_ids);
    tcase_add_loop_test(t, secret_files, 0, sizeof(secrets) / sizeof(secrets[0]));
    tcase_add_test(t, secret_that_is_no_file);
    suite_add_tcase(s, t);
    return test_suite_run(s);
}
