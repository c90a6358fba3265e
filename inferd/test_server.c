/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server with real sockets: this test is coordinator, engine process and trainerd at once, on
 * one loop; engine processes that must die are children.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/memory.h"
#include "inferd/server_impl.h"
#include "inferd/test_support.h"

#define BYTES 65536u
#define KEEP 16

struct end { /* this test's end of a connection */
    struct sw_conn *conn;
    struct sw_identity self;
    bool ready, closed;
    char why[SW_ERROR_TEXT];
    struct sw_msg *got[KEEP]; /* not looked at yet */
    int n;
};

static uv_loop_t loop;
static uv_timer_t watchdog;
static char dir[64], socket_path[128];
static struct sw_server *server;
static struct sw_server_config config;
static struct sw_listener *listener;
static struct end coordinator, engine;
static struct sw_identity coordinator_self;
static struct sw_member member; /* what inferd said of itself; no strings */
static uint8_t *memory;         /* the engine's */
static struct sw_local_engine *copier;
static uint64_t update, version;
static bool stopped, clean;
static int unanswered; /* LOCAL_COPY */

static void too_long(uv_timer_t *t)
{
    ck_abort_msg("waited too long");
}

/* Runs the loop until it holds. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uv_timer_start(&watchdog, too_long, 20000, 0);                                             \
        while (!(condition))                                                                       \
            uv_run(&loop, UV_RUN_ONCE);                                                            \
        uv_timer_stop(&watchdog);                                                                  \
    } while (0)

/* ---- ends ---- */

static void end_ready(struct sw_conn *c, void *arg)
{
    ((struct end *)arg)->ready = true;
}

static void end_message(struct sw_conn *c, struct sw_msg *msg, void *arg)
{
    struct end *e = arg;

    if (e == &engine && (msg->kind == SW_MSG_LOCAL_SOURCE || msg->kind == SW_MSG_LOCAL_COPY)) {
        struct sw_msg *answer = copier ? sw_local_engine_handle(copier, msg) : NULL;

        unanswered += !copier;
        if (answer) /* as libshardwire does, but at once */
            sw_conn_send(c, answer);
        sw_msg_free(msg);
        return;
    }
    ck_assert_int_lt(e->n, KEEP);
    e->got[e->n++] = msg;
}

static void end_closed(struct sw_conn *c, const struct sw_error *why, void *arg)
{
    struct end *e = arg;

    e->conn = NULL;
    e->closed = true;
    snprintf(e->why, sizeof(e->why), "%s", why->text);
}

static const struct sw_conn_handlers end_handlers = {end_ready, end_message, end_closed};

static struct sw_msg *next(struct end *e, enum sw_msg_kind kind)
{
    struct sw_msg *msg;

    UNTIL(e->n || e->closed);
    ck_assert_msg(e->n, "closed: %s", e->why);
    msg = e->got[0];
    memmove(e->got, e->got + 1, (size_t)--e->n * sizeof(e->got[0]));
    ck_assert_msg(msg->kind == kind, "got %s (%s), expected %s", sw_msg_kind_name(msg->kind),
        msg->kind == SW_MSG_ERROR ? msg->u.error.reason : "", sw_msg_kind_name(kind));
    return msg;
}

static void dial_end(struct end *e, uint32_t port)
{
    struct sw_dial how = {.fd = -1, .self = &e->self, .timeout_ms = 5000};
    struct sw_error error;

    e->ready = e->closed = false;
    if (port) {
        how.host = "127.0.0.1";
        how.port = port;
    } else {
        how.path = socket_path;
    }
    ck_assert_int_eq(sw_conn_dial(&loop, &how, &end_handlers, e, &e->conn, &error), 0);
    UNTIL(e->ready || e->closed);
    ck_assert_msg(e->ready, "%s", e->why);
}

static void connect_end(struct end *e, enum sw_role role, uint32_t port)
{
    memset(e, 0, sizeof(*e));
    e->self = (struct sw_identity){.group = "default", .role = role, .host = "test"};
    sw_id_random(&e->self.instance);
    dial_end(e, port);
}

static void end_end(struct end *e)
{
    if (e->conn)
        sw_conn_close(e->conn, "test ends");
    UNTIL(!e->conn);
    for (int i = 0; i < e->n; i++)
        sw_msg_free(e->got[i]);
    e->n = 0;
}

static void coordinator_accepted(struct sw_conn *c, void *arg)
{
    memset(&coordinator, 0, sizeof(coordinator));
    coordinator.conn = c;
    coordinator.ready = true;
    sw_conn_set_handlers(c, &end_handlers, &coordinator);
}

static void coordinator_refused(const struct sw_error *why, void *arg)
{
}

/* ---- setup ---- */

static void on_stopped(bool was_clean, void *arg)
{
    stopped = true;
    clean = was_clean;
}

static void start_coordinator(void)
{
    static const struct sw_listener_handlers handlers = {coordinator_accepted, coordinator_refused};
    const struct sw_listen how = {.host = "127.0.0.1",
        .fd = -1,
        .self = &coordinator_self,
        .roles = 1u << SW_ROLE_INFERD,
        .timeout_ms = 5000,
        .max_connections = 4};
    struct sw_error e;

    coordinator_self =
        (struct sw_identity){.group = "default", .role = SW_ROLE_TRAINERD, .host = "test"};
    sw_id_random(&coordinator_self.instance);
    ck_assert_int_eq(sw_listener_open(&loop, &how, &handlers, NULL, &listener, &e), 0);
}

static void setup(void)
{
    struct sw_msg *msg;
    struct sw_error e;

    uv_loop_init(&loop);
    uv_timer_init(&loop, &watchdog);
    snprintf(dir, sizeof(dir), "/tmp/inferd-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(socket_path, sizeof(socket_path), "%s/inferd.sock", dir);
    start_coordinator();
    config = (struct sw_server_config){.group = "default",
        .host = "test",
        .socket = socket_path,
        .socket_mode = 0600,
        .listen = "127.0.0.1",
        .coordinator = "127.0.0.1",
        .coordinator_port = sw_listener_port(listener),
        .lease_ms = 60000,
        .token_ms = 10000,
        .manifest_ms = 10000,
        .data_threads = 1};
    ck_assert_msg(sw_server_start(&loop, &config, &server, &e) == 0, "%s", e.text);
    UNTIL(coordinator.ready);
    msg = next(&coordinator, SW_MSG_MEMBER);
    member = msg->u.member;
    ck_assert_str_eq(member.unix_path, socket_path);
    ck_assert_uint_eq(member.data_port, sw_server_data_port(server));
    sw_msg_free(msg);
    update = 7;
    version = 4;
    stopped = clean = false;
}

static void stop_server(void)
{
    if (server)
        sw_server_stop(server, on_stopped, NULL);
    server = NULL;
}

static void teardown(void)
{
    stop_server();
    UNTIL(stopped);
    ck_assert(clean);
    sw_listener_close(listener);
    end_end(&coordinator);
    end_end(&engine);
    sw_local_engine_free(copier);
    copier = NULL;
    if (memory)
        munmap(memory, BYTES);
    memory = NULL;
    uv_close((uv_handle_t *)&watchdog, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    ck_assert_int_ne(access(socket_path, F_OK), 0);
    rmdir(dir);
}

/* ---- the engine ---- */

static int make_memory(void)
{
    struct sw_error e;
    int fd;

    ck_assert_int_eq(sw_memory_create("test", BYTES, false, 1, &fd, NULL, &e), 0);
    return fd;
}

static void send_manifest(struct end *e, int fd, uint64_t bytes)
{
    const struct declared half[] = {{"w", 0, bytes / 2, NULL}};
    struct sw_msg *msg = make_engine_rank("A", 0, 1, 0, bytes, 1, fd);

    msg->u.engine_rank.instance = e->self.instance;
    sw_conn_send(e->conn, msg);
    msg = make_parameters("A", 0, 0, 0, 1, half, 1);
    msg->u.parameters.instance = e->self.instance;
    sw_conn_send(e->conn, msg);
}

static void expect_registered(struct end *e, int code, const char *part)
{
    struct sw_msg *msg = next(e, SW_MSG_REGISTERED);

    ck_assert_msg(msg->u.registered.error.code == code, "%s", msg->u.registered.error.reason);
    ck_assert_ptr_nonnull(strstr(msg->u.registered.error.reason, part));
    sw_msg_free(msg);
}

static void expect_announced(void)
{
    sw_msg_free(next(&coordinator, SW_MSG_ENGINE_RANK));
    sw_msg_free(next(&coordinator, SW_MSG_PARAMETERS));
    sw_msg_free(next(&coordinator, SW_MSG_RANK_STATE));
}

static void register_engine(void)
{
    struct sw_port_region region = {.bytes = BYTES};
    struct sw_run run = {0, 0, BYTES / 2};
    struct sw_port_spec spec = {.n_regions = 1, .regions = &region, .n_runs = 1, .runs = &run};
    int fd = make_memory();

    memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    region.base = memory;
    copier = sw_local_engine_new(&spec, 1);
    connect_end(&engine, SW_ROLE_ENGINE, 0);
    send_manifest(&engine, fd, BYTES);
    expect_registered(&engine, 0, "");
    expect_announced();
}

/* ---- the coordinator ---- */

static void ask(struct end *e, enum sw_phase phase, const struct sw_id *writer)
{
    struct sw_msg *msg = make_phase(phase, update, version, "A", 0, 0, BYTES / 2);

    msg->u.phase.instance = e->self.instance;
    if (writer) {
        msg->u.phase.n = 1;
        msg->u.phase.writers[0] = (struct sw_writer_ref){*writer, 2};
    }
    sw_conn_send(coordinator.conn, msg);
}

static struct sw_msg *answered(enum sw_phase phase, int code)
{
    struct sw_msg *msg = next(&coordinator, SW_MSG_PHASE_DONE);

    ck_assert_msg(msg->u.phase_done.phase == phase && msg->u.phase_done.error.code == code, "%s %s",
        sw_phase_name(msg->u.phase_done.phase), msg->u.phase_done.error.reason);
    return msg;
}

/* A phase that the engine process answers. */
static void through_engine(enum sw_phase phase)
{
    struct sw_msg *msg;

    ask(&engine, phase, NULL);
    msg = next(&engine, SW_MSG_PHASE);
    ck_assert_int_eq(msg->u.phase.phase, phase);
    sw_msg_free(msg);
    msg = make_phase_done(phase, update, "A", 0, 0, 0);
    msg->u.phase_done.instance = engine.self.instance;
    sw_conn_send(engine.conn, msg);
    sw_msg_free(answered(phase, 0));
}

static struct sw_id open_window(void)
{
    struct sw_msg *msg;
    struct sw_id id;

    ask(&engine, SW_PHASE_OPEN, NULL);
    msg = answered(SW_PHASE_OPEN, 0);
    id = msg->u.phase_done.window;
    sw_msg_free(msg);
    return id;
}

/* ---- the writer ---- */

struct outcome {
    bool done;
    uint64_t bytes;
    struct sw_error error;
};

static struct outcome last;
static bool broken;

static void path_done(struct sw_path *p, uint64_t bytes, const struct sw_error *e, void *arg)
{
    last = (struct outcome){true, bytes, *e};
}

static void path_broken(struct sw_path *p, const struct sw_error *why, void *arg)
{
    broken = true;
}

static struct sw_identity writer_self;
static struct sw_source_memory source;

static void make_source(void)
{
    struct sw_error e;
    int fd = make_memory();
    uint8_t *bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    for (uint32_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 7 + 1);
    source = (struct sw_source_memory){.base = bytes, .bytes = BYTES, .id = 1};
    ck_assert_int_eq(sw_memory_reopen_readonly(fd, &source.fd, &e), 0);
    close(fd);
}

static void free_source(void)
{
    munmap((void *)source.base, BYTES);
    close(source.fd);
}

static void arm(struct sw_token tokens[2])
{
    struct sw_msg *msg;

    writer_self = (struct sw_identity){.group = "default", .role = SW_ROLE_WRITER, .host = "test"};
    sw_id_random(&writer_self.instance);
    ask(&engine, SW_PHASE_ARM, &writer_self.instance);
    msg = answered(SW_PHASE_ARM, 0);
    ck_assert_uint_eq(msg->u.phase_done.n, 1);
    ck_assert_uint_eq(msg->u.phase_done.issued[0].n, 2);
    memcpy(tokens, msg->u.phase_done.issued[0].tokens, 2 * sizeof(*tokens));
    sw_msg_free(msg);
}

static struct sw_path *make_path(const struct sw_transport *t, const struct sw_token *tokens)
{
    uint64_t region_bytes = BYTES;
    struct sw_target target = {.engine = "A",
        .engine_instance = engine.self.instance,
        .address = "127.0.0.1",
        .data_port = sw_server_data_port(server),
        .unix_path = socket_path,
        .n_regions = 1,
        .region_bytes = &region_bytes};
    struct sw_path_spec spec = {.target = &target,
        .layout_epoch = 10,
        .n_tokens = 2,
        .tokens = tokens,
        .self = &writer_self,
        .timeout_ms = 5000};
    struct sw_path *p = NULL;
    struct sw_error e;

    target.inferd = ((struct sw_server *)server)->self.instance;
    memcpy(target.host_nonce, member.host_nonce, sizeof(target.host_nonce));
    last.done = broken = false;
    ck_assert_msg(
        t->path_open(&loop, &spec, path_broken, path_done, NULL, &p, &e) == 0, "%s", e.text);
    UNTIL(last.done);
    return p;
}

static void attach(const struct sw_transport *t, struct sw_path *p)
{
    struct sw_error e;

    last.done = false;
    ck_assert_int_eq(t->path_attach(p, &source, path_done, NULL, &e), 0);
    UNTIL(last.done);
    ck_assert_msg(last.error.code == 0, "%s", last.error.text);
}

static void write_all(const struct sw_transport *t, struct sw_path *p, struct sw_id window)
{
    static const struct sw_extent extent = {.length = BYTES / 2};
    struct sw_write_job job = {window, &source, &extent, 1};
    struct sw_error e;

    last.done = false;
    if (t->path_write(p, &job, path_done, NULL, &e)) {
        last = (struct outcome){true, 0, e};
        return;
    }
    UNTIL(last.done);
}

static void close_path(const struct sw_transport *t, struct sw_path *p)
{
    last.done = false;
    t->path_close(p, path_done, NULL);
    UNTIL(last.done);
}

/* ---- tests ---- */

static const struct sw_transport *const both[] = {&sw_transport_tcp, &sw_transport_local};

START_TEST(whole_update)
{
    const struct sw_transport *t = both[_i];
    struct sw_token tokens[2];
    struct sw_path *path;
    struct sw_id window;
    struct sw_msg *msg;

    make_source();
    register_engine();
    arm(tokens);
    path = make_path(t, tokens);
    ck_assert_msg(last.error.code == 0, "%s", last.error.text);
    attach(t, path);
    through_engine(SW_PHASE_PAUSE);
    through_engine(SW_PHASE_PREPARE);
    window = open_window();
    write_all(t, path, window);
    ck_assert_msg(last.error.code == 0, "%s", last.error.text);
    ck_assert_uint_eq(last.bytes, BYTES / 2);
    ask(&engine, SW_PHASE_CLOSE, NULL);
    msg = answered(SW_PHASE_CLOSE, 0);
    ck_assert_uint_eq(msg->u.phase_done.bytes, BYTES / 2);
    sw_msg_free(msg);
    ck_assert_int_eq(memcmp(memory, source.base, BYTES / 2), 0);
    ck_assert_uint_eq(memory[BYTES / 2], 0);

    /* The window is closed: nothing is placed, whoever wants it. */
    memset(memory, 0xee, BYTES);
    write_all(t, path, window);
    ck_assert_int_ne(last.error.code, 0);
    ck_assert_uint_eq(memory[0], 0xee);
    through_engine(SW_PHASE_POST);
    through_engine(SW_PHASE_ACTIVATE);
    through_engine(SW_PHASE_RESUME);
    close_path(t, path);
    free_source();
}
END_TEST

/* A tcp token or a nonce that is not good; paths on the wrong socket. */
START_TEST(paths_refused)
{
    struct sw_token tokens[2];
    struct end writer;
    struct sw_msg *msg;
    struct sw_path *path;

    register_engine();
    arm(tokens);
    tokens[1].bytes[0] ^= 1;
    path = make_path(&sw_transport_tcp, tokens);
    ck_assert_int_ne(last.error.code, 0);
    if (path)
        close_path(&sw_transport_tcp, path);
    member.host_nonce[3] ^= 1;
    path = make_path(&sw_transport_local, tokens);
    ck_assert_int_ne(last.error.code, 0);
    if (path)
        close_path(&sw_transport_local, path);
    for (int i = 0; i < 2; i++) { /* a token over the UNIX socket; a nonce over tcp */
        connect_end(&writer, SW_ROLE_WRITER, i ? sw_server_data_port(server) : 0);
        msg = sw_msg_new(SW_MSG_PATH_OPEN);
        msg->u.path_open.engine = keep(msg, "A");
        msg->u.path_open.engine_instance = engine.self.instance;
        msg->u.path_open.local = (uint32_t)i;
        sw_conn_send(writer.conn, msg);
        msg = next(&writer, SW_MSG_PATH_DONE);
        ck_assert_int_eq(msg->u.path_done.error.code, SW_ERR_INVALID);
        sw_msg_free(msg);
        UNTIL(writer.closed);
    }
    connect_end(&writer, SW_ROLE_WRITER, sw_server_data_port(server));
    sw_conn_send(writer.conn, sw_msg_new(SW_MSG_STATUS));
    UNTIL(writer.closed);
    ck_assert_ptr_nonnull(strstr(writer.why, "PATH_OPEN, once"));
}
END_TEST

/* A connection that says nothing more holds nobody up, and the server stops with it. */
START_TEST(idle_connections)
{
    static struct end idle[3];

    connect_end(&idle[0], SW_ROLE_WRITER, sw_server_data_port(server));
    connect_end(&idle[1], SW_ROLE_CLIENT, sw_server_port(server));
    connect_end(&idle[2], SW_ROLE_ENGINE, 0);
    stop_server();
    UNTIL(stopped);
    for (int i = 0; i < 3; i++)
        end_end(&idle[i]);
}
END_TEST

START_TEST(bad_memory)
{
    struct sw_error e;
    int fd;

    connect_end(&engine, SW_ROLE_ENGINE, 0);
    send_manifest(&engine, open("/dev/zero", O_RDWR), BYTES);
    expect_registered(&engine, SW_ERR_INVALID, "region 0");
    fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 1LL << 40), 0);
    send_manifest(&engine, dup(fd), 1ULL << 40);
    expect_registered(&engine, SW_ERR_INVALID, "not sealed against shrinking");
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    send_manifest(&engine, fd, 1ULL << 40);
    expect_registered(&engine, SW_ERR_INVALID, "allocated");
    ck_assert_int_eq(sw_memory_create("small", 4096, false, 1, &fd, NULL, &e), 0);
    send_manifest(&engine, fd, BYTES);
    expect_registered(&engine, SW_ERR_INVALID, "region 0");
    send_manifest(&engine, make_memory(), BYTES); /* and then it is right */
    expect_registered(&engine, 0, "");
    expect_announced();
}
END_TEST

START_TEST(two_processes_claim_one_rank)
{
    static struct end second;

    register_engine();
    connect_end(&second, SW_ROLE_ENGINE, 0);
    send_manifest(&second, make_memory(), BYTES);
    expect_registered(&second, SW_ERR_EXISTS, "is registered already, by process");
    end_end(&engine);
    sw_msg_free(next(&coordinator, SW_MSG_RANK_STATE));
    send_manifest(&second, make_memory(), BYTES);
    expect_registered(&second, 0, "");
    expect_announced();
    end_end(&second);
}
END_TEST

/* The connection is lost in the window: the rank is gone, its window closed for good. */
START_TEST(connection_lost_in_the_window)
{
    struct sw_token tokens[2];
    struct sw_path *path;
    struct sw_id window;
    struct sw_msg *msg;

    make_source();
    register_engine();
    arm(tokens);
    path = make_path(&sw_transport_tcp, tokens);
    attach(&sw_transport_tcp, path);
    through_engine(SW_PHASE_PAUSE);
    through_engine(SW_PHASE_PREPARE);
    window = open_window();
    end_end(&engine);
    msg = next(&coordinator, SW_MSG_RANK_STATE);
    ck_assert_int_eq(msg->u.rank_state.state, SW_RANK_GONE);
    sw_msg_free(msg);
    UNTIL(!server->sessions); /* memory released */
    write_all(&sw_transport_tcp, path, window);
    ck_assert_int_ne(last.error.code, 0);
    ck_assert_uint_eq(memory[0], 0);
    close_path(&sw_transport_tcp, path);
    free_source();
}
END_TEST

/* An engine process that is being copied to never answers; its connection goes, it lives on. Only
 * its death ends the copy. */
START_TEST(local_copy_until_death)
{
    const struct sw_transport *t = &sw_transport_local;
    static const struct sw_extent extent = {.length = BYTES / 2};
    struct sw_write_job job;
    struct sw_token tokens[2];
    struct sw_path *path;
    struct sw_error e;
    struct sw_id window;
    struct sw_msg *msg;

    make_source();
    register_engine();
    arm(tokens);
    path = make_path(t, tokens);
    attach(t, path);
    through_engine(SW_PHASE_PAUSE);
    through_engine(SW_PHASE_PREPARE);
    window = open_window();
    sw_local_engine_free(copier);
    copier = NULL; /* from here on it does not answer */
    job = (struct sw_write_job){window, &source, &extent, 1};
    last.done = false;
    ck_assert_int_eq(t->path_write(path, &job, path_done, NULL, &e), 0);
    UNTIL(unanswered);
    ask(&engine, SW_PHASE_CLOSE, NULL);
    ask(&engine, SW_PHASE_PAUSE, NULL); /* refused: its answer overtakes that of CLOSE */
    sw_msg_free(answered(SW_PHASE_PAUSE, SW_ERR_STATE));
    end_end(&engine);
    msg = next(&coordinator, SW_MSG_RANK_STATE);
    ck_assert_int_eq(msg->u.rank_state.state, SW_RANK_GONE);
    sw_msg_free(msg);
    ck_assert(!last.done);
    ck_assert_ptr_nonnull(server->sessions);
    ck_assert_uint_eq(coordinator.n, 0);
    /* The library copies on the thread that registers: a new registration of the same rank by the
     * same process shows that the copy is over. A mere connection does not. */
    connect_end(&engine, SW_ROLE_ENGINE, 0);
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert(!last.done);
    send_manifest(&engine, make_memory(), BYTES);
    UNTIL(last.done);
    ck_assert_int_ne(last.error.code, 0);
    UNTIL(!server->sessions->next);
    expect_registered(&engine, 0, "");
    expect_announced();
    close_path(t, path);
    free_source();
}
END_TEST

static void child_main(void)
{
    memset(&loop, 0, sizeof(loop)); /* the parent's */
    uv_loop_init(&loop);
    uv_timer_init(&loop, &watchdog);
    connect_end(&engine, SW_ROLE_ENGINE, 0);
    send_manifest(&engine, make_memory(), BYTES);
    for (;;)
        uv_run(&loop, UV_RUN_ONCE);
}

/* Killed: gone, whatever the state of its connection (a child of it could hold that open). */
START_TEST(process_killed)
{
    pid_t child = fork();
    struct sw_msg *msg;
    int status;

    if (child == 0)
        child_main();
    expect_announced();
    kill(child, SIGSTOP); /* stopped is not gone */
    kill(child, SIGKILL);
    msg = next(&coordinator, SW_MSG_RANK_STATE);
    ck_assert_int_eq(msg->u.rank_state.state, SW_RANK_GONE);
    sw_msg_free(msg);
    UNTIL(!server->sessions);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
}
END_TEST

/* The coordinator goes and comes back: everything is said again. */
START_TEST(coordinator_comes_back)
{
    struct sw_token tokens[2];
    struct sw_msg *msg;

    register_engine();
    arm(tokens);
    through_engine(SW_PHASE_PAUSE);
    sw_conn_close(coordinator.conn, "test");
    UNTIL(!coordinator.conn);
    coordinator.ready = false;
    UNTIL(coordinator.ready);
    sw_msg_free(next(&coordinator, SW_MSG_MEMBER));
    expect_announced();
    /* What the lost connection had armed is over. */
    msg = next(&engine, SW_MSG_PHASE);
    ck_assert_int_eq(msg->u.phase.phase, SW_PHASE_RESUME);
    sw_msg_free(msg);
}
END_TEST

static json_t *status_over(uint32_t port)
{
    struct end client;
    char *text = calloc(1, 1 << 20);
    size_t length = 0;
    json_t *document;
    bool end = false;

    connect_end(&client, SW_ROLE_CLIENT, port);
    {
        struct sw_msg *msg = sw_msg_new(SW_MSG_STATUS);

        msg->u.status.request = 5;
        sw_conn_send(client.conn, msg);
    }
    while (!end) {
        struct sw_msg *msg = next(&client, SW_MSG_STATUS_TEXT);

        ck_assert_uint_eq(msg->u.status_text.request, 5);
        length +=
            (size_t)snprintf(text + length, (1 << 20) - length, "%s", msg->u.status_text.text);
        end = msg->u.status_text.last;
        sw_msg_free(msg);
    }
    end_end(&client);
    document = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(document);
    free(text);
    return document;
}

/* Over the UNIX socket and the control port, as often as it is asked. */
START_TEST(engines)
{
    register_engine();
    for (int i = 0; i < 2; i++) {
        struct end client;

        connect_end(&client, SW_ROLE_CLIENT, i ? sw_server_port(server) : 0);
        for (uint64_t request = 1; request < 3; request++) {
            struct sw_msg *msg = sw_msg_new(SW_MSG_ENGINES);

            msg->u.engines.request = request;
            sw_conn_send(client.conn, msg);
            msg = next(&client, SW_MSG_ENGINE_RANK);
            ck_assert_str_eq(msg->u.engine_rank.engine, "A");
            ck_assert(sw_id_is_none(&msg->u.engine_rank.instance));
            ck_assert_uint_eq(msg->n_fds, 0);
            sw_msg_free(msg);
            msg = next(&client, SW_MSG_PARAMETERS);
            ck_assert_uint_eq(msg->u.parameters.n, msg->u.parameters.total);
            ck_assert(sw_id_is_none(&msg->u.parameters.instance));
            sw_msg_free(msg);
            msg = next(&client, SW_MSG_ENGINES_DONE);
            ck_assert(msg->u.engines_done.request == request && msg->u.engines_done.n == 1);
            sw_msg_free(msg);
        }
        end_end(&client);
    }
}
END_TEST

START_TEST(status)
{
    json_t *document, *rank, *traffic;
    json_int_t received = 0;

    register_engine();
    for (int i = 0; i < 2; i++) {
        document = status_over(i ? sw_server_port(server) : 0);
        ck_assert_str_eq(json_string_value(json_object_get(document, "daemon")), "inferd");
        ck_assert_str_eq(json_string_value(json_object_get(document, "group")), "default");
        ck_assert(
            json_is_true(json_object_get(json_object_get(document, "coordinator"), "connected")));
        traffic = json_object_get(document, "control_messages");
        ck_assert_int_gt(json_integer_value(json_object_get(traffic, "received")), received);
        received = json_integer_value(json_object_get(traffic, "received"));
        ck_assert_int_gt(json_integer_value(json_object_get(traffic, "sent")), 0);
        rank = json_array_get(json_object_get(document, "ranks"), 0);
        ck_assert_str_eq(json_string_value(json_object_get(rank, "engine")), "A");
        ck_assert_str_eq(json_string_value(json_object_get(rank, "state")), "serving");
        ck_assert_int_eq(json_integer_value(json_object_get(rank, "pid")), getpid());
        ck_assert(json_is_true(json_object_get(rank, "process_alive")));
        json_decref(document);
    }
}
END_TEST

START_TEST(can_not_start)
{
    static const uint8_t secret[] = "0123456789abcdef";
    struct sw_server_config c = config;
    struct sw_server *other = NULL;
    char long_path[200];
    struct sw_error e;

    c.listen = "0.0.0.0";
    ck_assert_int_eq(sw_server_start(&loop, &c, &other, &e), SW_ERR_AUTH);
    ck_assert_ptr_nonnull(strstr(e.text, "secret-file"));
    c.listen = "127.0.0.1";
    c.port = sw_server_port(server);
    ck_assert_int_ne(sw_server_start(&loop, &c, &other, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "control port"));
    c.port = 0;
    ck_assert_int_ne(sw_server_start(&loop, &c, &other, &e), 0); /* the socket is in use */
    memset(long_path, 'x', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    c.socket = long_path;
    ck_assert_int_ne(sw_server_start(&loop, &c, &other, &e), 0);
    snprintf(long_path, sizeof(long_path), "%s/nowhere/s.sock", dir);
    c.listen = "0.0.0.0";
    c.secret = secret;
    c.secret_bytes = sizeof(secret) - 1;
    ck_assert_int_ne(sw_server_start(&loop, &c, &other, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "nowhere"));
    ck_assert_ptr_null(other);
}
END_TEST

/* A message that no engine process sends ends its connection, with an ERROR before. */
START_TEST(protocol_error)
{
    connect_end(&engine, SW_ROLE_ENGINE, 0);
    sw_conn_send(engine.conn, sw_msg_new(SW_MSG_WRITTEN));
    UNTIL(engine.closed);
    ck_assert_ptr_nonnull(strstr(engine.why, "WRITTEN")); /* it came as ERROR */
    UNTIL(!server->sessions);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server");
    TCase *tc = tcase_create("server");
    SRunner *runner = srunner_create(suite);
    int failed;

    signal(SIGPIPE, SIG_IGN);
    sw_log_open("test", SW_LOG_ERROR);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, whole_update, 0, 2);
    tcase_add_test(tc, paths_refused);
    tcase_add_test(tc, idle_connections);
    tcase_add_test(tc, bad_memory);
    tcase_add_test(tc, two_processes_claim_one_rank);
    tcase_add_test(tc, connection_lost_in_the_window);
    tcase_add_test(tc, local_copy_until_death);
    tcase_add_test(tc, process_killed);
    tcase_add_test(tc, coordinator_comes_back);
    tcase_add_test(tc, engines);
    tcase_add_test(tc, status);
    tcase_add_test(tc, can_not_start);
    tcase_add_test(tc, protocol_error);
    suite_add_tcase(suite, tc);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
