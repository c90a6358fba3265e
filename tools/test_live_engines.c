/* SPDX-License-Identifier: Apache-2.0 */
/* What an inferd tells of its engines, and what it must not tell. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include "client/test_fake.h"
#include "tools/live_engines.h"

static struct fake f;
static struct sw_error e;

/* ---- inferd's side ---- */

static struct sw_msg *engine_rank(const char *engine, uint32_t rank, uint32_t n_parameters)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ENGINE_RANK);
    struct sw_engine_rank *r = &msg->u.engine_rank;

    r->engine = sw_arena_strdup(&msg->arena, engine);
    r->rank = rank;
    r->world = 2;
    r->layout = "auto";
    r->kind = SW_ENGINE_SGLANG;
    r->config = "{}";
    r->n_parameters = n_parameters;
    r->n_regions = 1;
    r->region_bytes = sw_arena_array(&msg->arena, 1, sizeof(*r->region_bytes));
    r->region_bytes[0] = 100;
    return msg;
}

static struct sw_msg *parameters(
    const char *engine, uint32_t rank, uint32_t first, uint32_t n, uint32_t total)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_PARAMETERS);
    struct sw_parameters *p = &msg->u.parameters;

    p->engine = sw_arena_strdup(&msg->arena, engine);
    p->rank = rank;
    p->first = first;
    p->n = n;
    p->total = total;
    p->items = sw_arena_array(&msg->arena, n, sizeof(*p->items));
    for (uint32_t i = 0; i < n; i++)
        p->items[i] = (struct sw_parameter){.name = i ? "b" : "a",
            .dtype = SW_U8,
            .ndim = 1,
            .shape = {50},
            .offset = i ? 50 : 0,
            .alias_of = i == 2 ? "a" : NULL};
    return msg;
}

static void done(uint64_t request, uint32_t n)
{
    struct sw_msg *msg = sw_msg_new(SW_MSG_ENGINES_DONE);

    msg->u.engines_done.request = request;
    msg->u.engines_done.n = n;
    fake_send(&f, msg);
}

static uint64_t asked(void)
{
    struct sw_msg *msg;
    uint64_t request;

    fake_greet(&f);
    msg = fake_expect(&f, SW_MSG_ENGINES);
    request = msg->u.engines.request;
    sw_msg_free(msg);
    return request;
}

/* ---- the client's side ---- */

static int ask(struct sw_live_engines **engines)
{
    const struct sw_control_where where = {
        .path = f.path, .daemon = "inferd", .timeout_ms = FAKE_MS};

    memset(&e, 0, sizeof(e));
    *engines = NULL;
    return sw_live_engines_ask(&where, engines, &e);
}

static void tell_three(struct fake *fake)
{
    const uint64_t request = asked();

    fake_send(fake, engine_rank("B", 0, 3));
    fake_send(fake, parameters("B", 0, 0, 1, 3));
    fake_send(fake, parameters("B", 0, 1, 2, 3));
    fake_send(fake, engine_rank("A", 1, 2));
    fake_send(fake, parameters("A", 1, 0, 2, 2));
    fake_send(fake, engine_rank("A", 0, 1));
    fake_send(fake, parameters("A", 0, 0, 1, 1));
    done(request, 3);
    fake_expect_end(fake);
}

START_TEST(tells)
{
    struct sw_live_engines *engines;

    fake_start(&f, SW_ROLE_INFERD, tell_three, 0);
    ck_assert_msg(ask(&engines) == 0, "%s", e.text);
    ck_assert_uint_eq(engines->n, 3);
    ck_assert_str_eq(engines->items[0].rank->engine, "A");
    ck_assert_uint_eq(engines->items[0].rank->rank, 0);
    ck_assert_uint_eq(engines->items[0].n_parameters, 1);
    ck_assert_uint_eq(engines->items[1].rank->rank, 1);
    ck_assert_str_eq(engines->items[1].parameters[1].name, "b");
    ck_assert_uint_eq(engines->items[1].parameters[1].offset, 50);
    ck_assert_str_eq(engines->items[2].rank->engine, "B");
    ck_assert_str_eq(engines->items[2].rank->config, "{}");
    ck_assert_uint_eq(engines->items[2].rank->region_bytes[0], 100);
    ck_assert_uint_eq(engines->items[2].n_parameters, 3);
    sw_live_engines_free(engines);
    fake_stop(&f);
}
END_TEST

static void tell_none(struct fake *fake)
{
    done(asked(), 0);
    fake_expect_end(fake);
}

START_TEST(nobody)
{
    struct sw_live_engines *engines;

    fake_start(&f, SW_ROLE_INFERD, tell_none, 0);
    ck_assert_msg(ask(&engines) == 0, "%s", e.text);
    ck_assert_uint_eq(engines->n, 0);
    sw_live_engines_free(engines);
    sw_live_engines_free(NULL);
    fake_stop(&f);
}
END_TEST

static const struct {
    const char *says;
    int code;
} wrong[] = {
    {"too many", SW_ERR_LIMIT}, /* its own refusal */
    {"instead of its engines", SW_ERR_PROTOCOL},
    {"before all parameters", SW_ERR_PROTOCOL},
    {"do not join", SW_ERR_PROTOCOL}, /* of nobody */
    {"do not join", SW_ERR_PROTOCOL}, /* of another rank */
    {"do not join", SW_ERR_PROTOCOL}, /* a hole */
    {"do not join", SW_ERR_PROTOCOL}, /* too many */
    {"in none of its 1 regions", SW_ERR_PROTOCOL},
    {"in none of its 1 regions", SW_ERR_PROTOCOL},
    {"can't be", SW_ERR_INVALID},
    {"told of 2 engine ranks; 1 came", SW_ERR_PROTOCOL},
    {"not all of the last one", SW_ERR_PROTOCOL},
};
#define WRONG (sizeof(wrong) / sizeof(wrong[0]))

/* Who hears nonsense hangs up at once: what is said after that need not arrive. */
static void tell(struct sw_msg *msg)
{
    sw_channel_send(f.c, msg, NULL, 0, sw_deadline_in(FAKE_MS), NULL);
    sw_msg_free(msg);
}

static void tell_wrong(struct fake *fake)
{
    const uint64_t request = asked();
    struct sw_msg *rank = engine_rank("A", 0, 2), *p = parameters("A", 0, 0, 2, 2);
    struct sw_msg *more = NULL;
    uint32_t n = 1;

    switch (fake->arg) {
    case 1:
        rank->kind = SW_MSG_STATUS;
        memset(&rank->u, 0, sizeof(rank->u));
        break;
    case 2:
        more = p;
        p = engine_rank("A", 1, 2);
        break;
    case 3:
        more = rank;
        rank = p;
        p = parameters("A", 0, 0, 2, 2);
        break;
    case 4:
        p->u.parameters.rank = 1;
        break;
    case 5:
        p->u.parameters.first = p->u.parameters.n = 1;
        break;
    case 6:
        rank->u.engine_rank.n_parameters = p->u.parameters.total = 2;
        more = parameters("A", 0, 0, 2, 2);
        break;
    case 7:
        p->u.parameters.items[1].offset = 51;
        break;
    case 8:
        p->u.parameters.items[1].region = 1;
        break;
    case 9:
        rank->u.engine_rank.config = "";
        break;
    case 10:
        n = 2;
        break;
    case 11:
        p->u.parameters.n = 1;
        break;
    default:
        break;
    }
    if (fake->arg == 0) {
        sw_msg_free(rank);
        sw_msg_free(p);
        fake_error(fake, SW_ERR_LIMIT, "too many");
        return;
    }
    tell(rank);
    tell(p);
    if (more)
        tell(more);
    more = sw_msg_new(SW_MSG_ENGINES_DONE);
    more->u.engines_done = (struct sw_engines_done){request, n};
    tell(more);
    fake_expect_end(fake);
}

START_TEST(tells_nonsense)
{
    struct sw_live_engines *engines;
    int rc;

    fake_start(&f, SW_ROLE_INFERD, tell_wrong, _i);
    rc = ask(&engines);
    ck_assert_msg(rc == wrong[_i].code, "%d: %d %s", _i, rc, e.text);
    ck_assert_msg(strstr(e.text, wrong[_i].says) != NULL, "%d: \"%s\"", _i, e.text);
    ck_assert_ptr_null(engines);
    fake_stop(&f);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("live engines");
    TCase *c = tcase_create("live engines");
    SRunner *r;
    int failed;

    tcase_add_test(c, tells);
    tcase_add_test(c, nobody);
    tcase_add_loop_test(c, tells_nonsense, 0, (int)WRONG);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
