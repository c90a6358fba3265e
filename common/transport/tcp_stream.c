/* SPDX-License-Identifier: Apache-2.0 */
#include "common/transport/tcp_stream.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "common/error.h"
#include "common/transport/shared.h"
#include "common/transport/tcp_wire.h"

#define STEPS_MAX 16 /* calls for one stream before the others on its thread get their turn */
#define SCRATCH (64u << 10)

enum state {
    IDLE,
    SENDING,  /* a record; payload included */
    REPLYING, /* waits for ACK or READ_REPLY */
    READING,  /* READ_REPLY's payload */
    ENDED,
};

struct sw_stream {
    struct sw_io_watch watch;
    struct sw_io_task begin, start, stop;
    struct sw_io_thread *thread;
    struct sw_stream_hub *hub;
    enum state state;
    bool flushed; /* what is sent, or was sent last, is the job's FLUSH */
    /* What was taken: iov[0] is record and table, then a piece for each extent. */
    struct iovec iov[SW_WIRE_EXTENTS + 1];
    unsigned iov_at, iov_n;
    uint64_t first_extent, first_offset; /* of the first piece in the job */
    uint64_t taken;                      /* bytes */
    size_t got;                          /* bytes of in[] */
    uint64_t compared;                   /* bytes of READ_REPLY's payload */
    uint8_t *scratch;
    uint8_t in[SW_WIRE_RECORD];
    uint8_t out[SW_WIRE_RECORD + SW_WIRE_TABLE];
};

/* ---- ends ---- */

static void end(struct sw_stream *s)
{
    if (s->state == ENDED)
        return;
    sw_io_thread_unwatch(s->thread, &s->watch);
    close(s->watch.fd);
    free(s->scratch);
    s->scratch = NULL;
    s->state = ENDED;
}

static bool fail(struct sw_stream *s, const struct sw_error *why)
{
    struct sw_stream_hub *h = s->hub;

    end(s);
    pthread_mutex_lock(&h->lock);
    if (!h->failed) {
        h->failed = true;
        h->error = *why;
    }
    uv_async_send(&h->async); /* under the lock: see sw_stream_stop */
    pthread_mutex_unlock(&h->lock);
    return false;
}

static bool fail_text(struct sw_stream *s, int code, const char *text)
{
    struct sw_error e;

    sw_fail(&e, code, "%s", text);
    return fail(s, &e);
}

static bool fail_call(struct sw_stream *s, const char *call, int err)
{
    struct sw_error e;

    sw_fail_errno(&e, err == EPIPE || err == ECONNRESET ? SW_ERR_CLOSED : SW_ERR_IO, err,
        "%s on a data connection", call);
    return fail(s, &e);
}

static bool set_interest(struct sw_stream *s)
{
    const uint32_t events = s->state == SENDING ? EPOLLIN | EPOLLOUT : EPOLLIN;
    const int err = sw_io_thread_change(s->thread, &s->watch, events);

    return err ? fail_call(s, "epoll_ctl", err) : true;
}

static bool try_again(ssize_t n)
{
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

/* ---- taking work ---- */

/* Takes pieces of the job, at most `limit` bytes. False: nothing is left. */
static bool take(struct sw_stream *s, uint64_t limit)
{
    struct sw_stream_hub *h = s->hub;

    s->taken = 0;
    s->iov_n = 1;
    pthread_mutex_lock(&h->lock);
    s->first_extent = h->at_extent;
    s->first_offset = h->at_offset;
    while (!h->differs && h->at_extent < h->n && s->taken < limit && s->iov_n <= SW_WIRE_EXTENTS) {
        const struct sw_extent *x = &h->extents[h->at_extent];
        uint64_t length = x->length - h->at_offset;

        if (length > limit - s->taken)
            length = limit - s->taken;
        s->iov[s->iov_n].iov_base = (uint8_t *)(uintptr_t)h->base + x->src + h->at_offset;
        s->iov[s->iov_n++].iov_len = length;
        s->taken += length;
        h->at_offset += length;
        if (h->at_offset == x->length) {
            h->at_extent++;
            h->at_offset = 0;
        }
    }
    pthread_mutex_unlock(&h->lock);
    return s->taken > 0;
}

/* The record that describes what was taken, into iov[0]. */
static void describe(struct sw_stream *s, uint32_t kind)
{
    const struct sw_stream_hub *h = s->hub;
    struct sw_wire_record r = {
        .kind = kind, .n = s->iov_n - 1, .window = h->window, .bytes = s->taken};

    for (unsigned i = 1; i < s->iov_n; i++) {
        const struct sw_extent *x = &h->extents[s->first_extent + i - 1];
        const struct sw_wire_extent w = {.offset = x->dst + (i == 1 ? s->first_offset : 0),
            .length = s->iov[i].iov_len,
            .region = x->region};

        if (i == 1)
            r.first = w;
        else
            sw_wire_put_extent(s->out + SW_WIRE_RECORD + (i - 2) * SW_WIRE_EXTENT, &w);
    }
    sw_wire_put_record(s->out, &r);
    s->iov[0].iov_base = s->out;
    s->iov[0].iov_len = SW_WIRE_RECORD + (r.n > 1 ? (r.n - 1) * SW_WIRE_EXTENT : 0);
    s->iov_at = 0;
    s->state = SENDING;
}

static void finish(struct sw_stream *s, uint64_t bytes)
{
    struct sw_stream_hub *h = s->hub;

    s->state = IDLE;
    free(s->scratch);
    s->scratch = NULL;
    pthread_mutex_lock(&h->lock);
    h->bytes += bytes;
    h->finished++;
    uv_async_send(&h->async);
    pthread_mutex_unlock(&h->lock);
}

/* What comes next in the job: a record to send, or the end. */
static void next_record(struct sw_stream *s)
{
    const struct sw_stream_hub *h = s->hub;

    if (h->verify) {
        const uint64_t limit = h->chunk_bytes < SW_WIRE_READ ? h->chunk_bytes : SW_WIRE_READ;

        if (take(s, limit))
            describe(s, SW_WIRE_READ_ASK);
        else
            finish(s, 0);
        return;
    }
    if (take(s, h->chunk_bytes)) {
        describe(s, SW_WIRE_WRITE);
        return;
    }
    s->flushed = true;
    describe(s, SW_WIRE_FLUSH);
}

/* ---- receiving ---- */

static bool refused(struct sw_stream *s, const struct sw_wire_record *r)
{
    char text[SW_WIRE_TEXT + 1];
    const size_t length = r->bytes < SW_WIRE_TEXT ? (size_t)r->bytes : SW_WIRE_TEXT;
    ssize_t n = recv(s->watch.fd, text, length, MSG_DONTWAIT);
    struct sw_error e;

    text[n > 0 ? n : 0] = '\0';
    for (char *c = text; *c; c++) {
        if ((unsigned char)*c < ' ')
            *c = '?';
    }
    sw_fail(&e, r->code < 0 ? r->code : SW_ERR_PROTOCOL, "refused by the target: %s", text);
    return fail(s, &e);
}

static bool take_reply(struct sw_stream *s)
{
    const struct sw_stream_hub *h = s->hub;
    struct sw_wire_record r;

    s->got = 0;
    if (!sw_wire_get_record(s->in, &r))
        return fail_text(s, SW_ERR_PROTOCOL, "no record of a data connection");
    if (r.kind == SW_WIRE_REFUSED)
        return refused(s, &r);
    if (s->state != REPLYING || !sw_id_equal(&r.window, &h->window) ||
        r.kind != (h->verify ? SW_WIRE_READ_REPLY : SW_WIRE_ACK) ||
        (h->verify && r.bytes != s->taken))
        return fail_text(s, SW_ERR_PROTOCOL, "an answer that nobody asked for");
    if (!h->verify) {
        finish(s, r.bytes);
        return true;
    }
    s->iov_at = 1;
    s->compared = 0;
    s->state = READING;
    return true;
}

static void differs_at(struct sw_stream *s, uint64_t extent, uint64_t offset)
{
    struct sw_stream_hub *h = s->hub;

    pthread_mutex_lock(&h->lock);
    if (!h->differs || extent < h->diff_extent ||
        (extent == h->diff_extent && offset < h->diff_offset)) {
        h->differs = true;
        h->diff_extent = extent;
        h->diff_offset = offset;
    }
    pthread_mutex_unlock(&h->lock);
}

/* Compares n bytes that came with the pieces from the cursor on. */
static void compare(struct sw_stream *s, const uint8_t *bytes, size_t n)
{
    while (n > 0) {
        struct iovec *piece = &s->iov[s->iov_at];
        const size_t part = piece->iov_len < n ? piece->iov_len : n;

        if (memcmp(piece->iov_base, bytes, part) != 0) {
            const uint64_t extent = s->first_extent + s->iov_at - 1;
            const uint8_t *ours = piece->iov_base;
            size_t i = 0;

            /* Bounded: memory that changes under us may be equal by now. */
            while (i + 1 < part && ours[i] == bytes[i])
                i++;
            differs_at(
                s, extent, (uint64_t)(ours + i - (s->hub->base + s->hub->extents[extent].src)));
        }
        piece->iov_base = (uint8_t *)piece->iov_base + part;
        piece->iov_len -= part;
        if (piece->iov_len == 0)
            s->iov_at++;
        bytes += part;
        n -= part;
    }
}

static void compared_all(struct sw_stream *s)
{
    struct sw_stream_hub *h = s->hub;

    pthread_mutex_lock(&h->lock);
    h->bytes += s->taken;
    pthread_mutex_unlock(&h->lock);
    next_record(s);
}

/* One receiving call. False: nothing came, or the stream has ended. */
static bool receive(struct sw_stream *s)
{
    uint8_t *to = s->in + s->got;
    size_t want = sizeof(s->in) - s->got;
    ssize_t n;

    if (s->state == READING) {
        if (!s->scratch && !(s->scratch = malloc(SCRATCH)))
            return fail_text(s, SW_ERR_NOMEM, "no memory to compare with");
        to = s->scratch;
        want = s->taken - s->compared < SCRATCH ? (size_t)(s->taken - s->compared) : SCRATCH;
    }
    n = recv(s->watch.fd, to, want, MSG_DONTWAIT);
    if (n == 0)
        return fail_text(s, SW_ERR_CLOSED, "the target closed a data connection");
    if (n < 0)
        return try_again(n) ? false : fail_call(s, "recv", errno);
    if (s->state == READING) {
        compare(s, s->scratch, (size_t)n);
        s->compared += (uint64_t)n;
        if (s->compared == s->taken)
            compared_all(s);
        return true;
    }
    s->got += (size_t)n;
    return s->got < sizeof(s->in) ? true : take_reply(s);
}

/* ---- sending ---- */

static void sent(struct sw_stream *s, size_t n)
{
    while (n > 0) {
        struct iovec *v = &s->iov[s->iov_at];

        if (n < v->iov_len) {
            v->iov_base = (uint8_t *)v->iov_base + n;
            v->iov_len -= n;
            return;
        }
        n -= v->iov_len;
        s->iov_at++;
    }
}

/* One sending call. False: the socket is full, all is sent, or the stream has ended. */
static bool transmit(struct sw_stream *s)
{
    unsigned last = s->hub->verify ? 1 : s->iov_n;
    struct msghdr m = {.msg_iov = s->iov + s->iov_at, .msg_iovlen = last - s->iov_at};
    ssize_t n = sendmsg(s->watch.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (n < 0 && !try_again(n)) {
        const int err = errno;

        /* A refusal tells more than the reset that came after it. */
        while (s->state != ENDED && receive(s))
            continue;
        return s->state == ENDED ? false : fail_call(s, "send", err);
    }
    if (n < 0)
        return false;
    sent(s, (size_t)n);
    if (s->iov_at < last)
        return true;
    if (s->hub->verify || s->flushed) {
        s->state = REPLYING;
        return false;
    }
    next_record(s);
    return true;
}

/* ---- the thread ---- */

static void stream_ready(struct sw_io_watch *w, uint32_t events)
{
    struct sw_stream *s = SW_CONTAINER(w, struct sw_stream, watch);

    if (events & ~(uint32_t)EPOLLOUT) {
        for (int i = 0; i < STEPS_MAX && s->state != ENDED && receive(s); i++)
            continue;
    }
    for (int i = 0; i < STEPS_MAX && s->state == SENDING && transmit(s); i++)
        continue;
    if (s->state != ENDED)
        set_interest(s);
}

static void begin_run(struct sw_io_task *t)
{
    struct sw_stream *s = SW_CONTAINER(t, struct sw_stream, begin);
    int err;

    s->watch.events = EPOLLIN;
    err = sw_io_thread_watch(s->thread, &s->watch);
    if (err)
        fail_call(s, "epoll_ctl", err);
}

static void start_run(struct sw_io_task *t)
{
    struct sw_stream *s = SW_CONTAINER(t, struct sw_stream, start);

    if (s->state == ENDED)
        return;
    assert(s->state == IDLE);
    s->flushed = false;
    next_record(s);
    stream_ready(&s->watch, EPOLLOUT);
}

static void stop_run(struct sw_io_task *t)
{
    struct sw_stream *s = SW_CONTAINER(t, struct sw_stream, stop);
    struct sw_stream_hub *h = s->hub;

    end(s);
    /* The wake-up is sent under the lock: the loop closes the handle only after it has had it. */
    pthread_mutex_lock(&h->lock);
    h->stopped++;
    uv_async_send(&h->async);
    pthread_mutex_unlock(&h->lock);
}

struct sw_stream *sw_stream_new(struct sw_stream_hub *hub, struct sw_io_thread *thread, int fd)
{
    struct sw_stream *s = calloc(1, sizeof(*s));

    if (!s) {
        close(fd);
        return NULL;
    }
    s->watch.fd = fd;
    s->watch.ready = stream_ready;
    s->begin.run = begin_run;
    s->start.run = start_run;
    s->stop.run = stop_run;
    s->thread = thread;
    s->hub = hub;
    sw_io_thread_post(thread, &s->begin);
    return s;
}

void sw_stream_start(struct sw_stream *s)
{
    sw_io_thread_post(s->thread, &s->start);
}

void sw_stream_stop(struct sw_stream *s)
{
    sw_io_thread_post(s->thread, &s->stop);
}

void sw_stream_free(struct sw_stream *s)
{
    free(s);
}
