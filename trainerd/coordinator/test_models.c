/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that need a model: made once, refused by name, and what their FP8 blocks ask of hosts. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "trainerd/coordinator/models.h"
#include "trainerd/coordinator/talk.h"

#define CONFIG                                                                                     \
    "{\"architectures\": [\"Tiny\"], \"rows\": 8, \"experts\": 4, \"torch_dtype\": \"float32\"}"

static const char tiny[] = "[layout]\n"
                           "architectures = Tiny\n"
                           "[tensor w]\n"
                           "stored = w\n"
                           "shape = rows, 8\n"
                           "[tensor x]\n"
                           "for = expert from 0 to experts - 1\n"
                           "stored = x.{expert}\n"
                           "shape = 4\n"
                           "[parameter w]\n"
                           "part = w, rows over mlp_tp\n"
                           "quantise = yes\n"
                           "[parameter xs]\n"
                           "stack = expert from 0 to experts - 1 over ep\n"
                           "part = x\n";

static struct sw_layouts *layouts;
static struct talk *t;
static struct sw_error e;

static void setup(void)
{
    char folder[] = "/tmp/shardwire-test-XXXXXX", path[64];
    FILE *file;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/tiny.layout", folder);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(tiny, file);
    fclose(file);
    ck_assert_msg(sw_layouts_read(folder, &layouts, &e) == 0, "%s", e.text);
    unlink(path);
    rmdir(folder);
    t = talk_new_layouts(layouts);
}

static void teardown(void)
{
    talk_free(t);
    sw_layouts_free(layouts);
}

static void said(const char *text)
{
    ck_assert_msg(strstr(e.text, text) != NULL, "\"%s\" lacks \"%s\"", e.text, text);
}

/* ---- the cache ---- */

START_TEST(models_are_shared)
{
    struct sw_models *m = sw_models_new(layouts);
    struct sw_engine_rank r = {
        .engine = "A", .layout = "auto", .kind = SW_ENGINE_SGLANG, .config = CONFIG};
    struct sw_model_entry *a, *b, *c;

    ck_assert_msg(sw_models_get(m, &r, &a, &e) == 0, "%s", e.text);
    ck_assert_int_eq(sw_models_get(m, &r, &b, &e), 0);
    ck_assert_ptr_eq(a, b);
    ck_assert_uint_eq(sw_model_entry_block(a)[0], 0);
    r.layout = "tiny";
    ck_assert_int_eq(sw_models_get(m, &r, &c, &e), 0);
    ck_assert_ptr_ne(a, c);
    sw_model_entry_release(c);
    r.layout = "auto";
    r.kind = SW_ENGINE_VLLM;
    ck_assert_int_eq(sw_models_get(m, &r, &c, &e), 0);
    ck_assert_ptr_ne(a, c);
    sw_model_entry_release(c);
    sw_model_entry_release(b);
    sw_model_entry_release(a);
    sw_model_entry_release(NULL);
    sw_models_free(m);
}
END_TEST

START_TEST(models_are_refused)
{
    static const struct {
        const char *layout, *config;
        int code;
        const char *says;
    } cases[] = {
        {"large", CONFIG, SW_ERR_UNSUPPORTED, "no layout large; there are: tiny"},
        {"auto", "{\"architectures\": [\"Other\"]}", SW_ERR_UNSUPPORTED, "architecture Other"},
        {"auto", "{}", SW_ERR_UNSUPPORTED, "names none"},
        {"auto", "{\"rows\": ", SW_ERR_INVALID, "config.json:1:"},
        {"tiny", "{\"rows\": 8}", SW_ERR_INVALID, "experts"},
        {"auto",
            "{\"architectures\": [\"Tiny\"], \"quantization_config\": {\"quant_method\": \"awq\"}}",
            SW_ERR_UNSUPPORTED, "awq"},
    };
    struct sw_models *m = sw_models_new(layouts), *none = sw_models_new(NULL);
    struct sw_engine_rank r = {.engine = "A", .kind = SW_ENGINE_SGLANG};
    struct sw_model_entry *entry = NULL;
    int rc;

    r.layout = cases[_i].layout;
    r.config = cases[_i].config;
    rc = sw_models_get(m, &r, &entry, &e);
    ck_assert_msg(rc == cases[_i].code, "%d %s", rc, e.text);
    said(cases[_i].says);
    ck_assert_int_ne(sw_models_get(none, &r, &entry, &e), 0);
    ck_assert_ptr_null(entry);
    sw_models_free(m);
    sw_models_free(none);
}
END_TEST

START_TEST(no_layouts)
{
    struct sw_models *m = sw_models_new(NULL);
    struct sw_engine_rank r = {
        .engine = "A", .layout = "auto", .kind = SW_ENGINE_SGLANG, .config = CONFIG};
    struct sw_model_entry *entry = NULL;

    ck_assert_int_eq(sw_models_get(m, &r, &entry, &e), SW_ERR_UNSUPPORTED);
    said("option layouts");
    sw_models_free(m);
}
END_TEST

/* ---- conversations ---- */

/* A rank's rows of w, and all of x, on a trainerd. */
static void declare(const char *who, uint32_t rank, uint32_t world, uint64_t rows)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_SOURCES);
    struct sw_sources *s = &m->u.sources;
    static const char *const names[] = {"w", "x.0", "x.1", "x.2", "x.3"};
    char line[64];

    snprintf(line, sizeof(line), "open %s %u %u", who, rank, world);
    ck_assert_str_eq(talk_say(t, line), "");
    s->rank = rank;
    s->world = world;
    s->trainer = talk_process(10 + rank);
    s->n = s->total = 5;
    s->items = sw_arena_array(&m->arena, 5, sizeof(*s->items));
    for (int i = 0; i < 5; i++)
        s->items[i] = (struct sw_source){.name = names[i],
            .dtype = SW_F32,
            .ndim = 1,
            .shape = {4},
            .box = {.ndim = 1, .len = {4}}};
    s->items[0] = (struct sw_source){.name = "w",
        .dtype = SW_F32,
        .ndim = 2,
        .shape = {8, 8},
        .box = {.ndim = 2, .lo = {rank * rows, 0}, .len = {rows, 8}}};
    snprintf(line, sizeof(line), "%s SOURCES_DONE %u v0\n", who, rank);
    ck_assert_str_eq(talk_message(t, who, m), line);
}

struct engine {
    const char *name, *layout, *config;
    uint32_t rank, world;
    unsigned process;
    bool fp8;
    uint32_t map[4]; /* version 0: none */
    uint64_t map_version;
};

static struct sw_parameter parameter(
    const char *name, enum sw_dtype dtype, uint64_t rows, uint64_t columns, uint64_t offset)
{
    return (struct sw_parameter){
        .name = name, .dtype = dtype, .ndim = 2, .shape = {rows, columns}, .offset = offset};
}

static const char *engine(struct engine en)
{
    struct sw_msg *m = sw_msg_new(SW_MSG_ENGINE_RANK), *p = sw_msg_new(SW_MSG_PARAMETERS);
    struct sw_engine_rank *r = &m->u.engine_rank;
    struct sw_parameters *list = &p->u.parameters;
    const uint64_t rows = 8 / en.world;
    uint64_t region = 4096;

    *r = (struct sw_engine_rank){.engine = en.name,
        .rank = en.rank,
        .world = en.world,
        .instance = talk_process(en.process),
        .layout = en.layout,
        .kind = SW_ENGINE_SGLANG,
        .config = en.config,
        .scale_format = "fp32",
        .expert_map_version = en.map_version,
        .n_parameters = en.fp8 ? 3 : 2,
        .n_regions = 1,
        .region_bytes = &region};
    r->at.of[SW_GROUP_TP] = (struct sw_group){en.rank, en.world};
    if (en.fp8)
        r->block_rows = r->block_columns = 8;
    if (en.map_version) {
        r->expert_map_layers = 1;
        r->expert_map_slots = r->n_expert_map = 4;
        r->expert_map = en.map;
    }
    ck_assert_str_eq(talk_message(t, "i1", m), "");
    *list = (struct sw_parameters){.engine = en.name,
        .rank = en.rank,
        .instance = talk_process(en.process),
        .n = en.fp8 ? 3 : 2,
        .total = en.fp8 ? 3 : 2};
    list->items = sw_arena_array(&p->arena, 3, sizeof(*list->items));
    list->items[0] = parameter("xs", SW_F32, 4, 4, 0);
    list->items[1] = parameter("w", en.fp8 ? SW_F8_E4M3 : SW_F32, rows, 8, 64);
    list->items[2] = parameter("w_scale_inv", SW_F32, 1, 1, 1024);
    return talk_message(t, "i1", p);
}

static const struct engine a = {
    .name = "A", .layout = "auto", .config = CONFIG, .world = 1, .process = 50};

START_TEST(a_sharded_engine)
{
    struct engine en = a;

    talk_say(t, "up t1");
    talk_say(t, "up i1");
    declare("t1", 0, 1, 8);
    en.world = 2;
    engine(en);
    en.rank = 1;
    en.process = 51;
    engine(en);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 1", "persist 1"},
               {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles *"},
               {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"}, {"end t1 0 1 320", "t1 END_DONE 0 v1"},
               {"publish t1 7 1", "t1 TARGETS e1.1 0+2/2 *\n"
                                  "t1 WRITE_PROGRAM e1.1 r0 t0 *\n"
                                  "t1 WRITE_PROGRAM e1.1 r0 t1 *\n"
                                  "i1 PHASE arm A/0 u1 t1x4\ni1 PHASE arm A/1 u1 t1x4"},
               {NULL, NULL}});
}
END_TEST

static const struct {
    const char *layout, *config, *why;
} unfit[] = {
    {"auto", "{\"architectures\": [\"Other\"]}",
        "engine B rank 0: no layout file is for the model's architecture Other; there are: tiny"},
    {"auto", "{", "engine B rank 0: config.json:1:*"},
    {"large", CONFIG, "engine B rank 0: there is no layout large; there are: tiny"},
    {"auto",
        "{\"architectures\": [\"Tiny\"], \"rows\": 9, \"experts\": 4, \"torch_dtype\": "
        "\"float32\"}",
        "*w*"},
};

/* It is refused by name, and the others go on. */
START_TEST(an_unfit_engine_harms_no_other)
{
    struct engine b = {.name = "B", .world = 1, .process = 60};
    char log[400], *status;

    b.layout = unfit[_i].layout;
    b.config = unfit[_i].config;
    talk_say(t, "up t1");
    talk_say(t, "up i1");
    declare("t1", 0, 1, 8);
    engine(b);
    engine(a);
    snprintf(log, sizeof(log), "log 4 1 of 2 engines do not fit and are left out: %s\npersist 1",
        unfit[_i].why);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 1", log},
               {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles *"},
               {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"}, {"end t1 0 1 320", "t1 END_DONE 0 v1"},
               {"publish t1 7 1", "t1 TARGETS e1.1 0+1/1 0=A/0*\n"
                                  "t1 WRITE_PROGRAM e1.1 r0 t0 *\n"
                                  "i1 PHASE arm A/0 u1 t1x4"},
               {NULL, NULL}});
    status = talk_status(t);
    ck_assert_ptr_nonnull(strstr(status, "\"misfit\":\""));
    free(status);
}
END_TEST

START_TEST(an_unfit_engine_alone)
{
    struct engine b = {.name = "B", .world = 1, .process = 60};
    char answer[400];

    b.layout = unfit[_i].layout;
    b.config = unfit[_i].config;
    talk_say(t, "up t1");
    talk_say(t, "up i1");
    declare("t1", 0, 1, 8);
    engine(b);
    snprintf(answer, sizeof(answer), "log 4 version 1 is given up*\nt1 BEGIN_DONE 0 v1 *: %s",
        unfit[_i].why);
    for (int i = 0; i < 2; i++) /* the same again, and later it may register anew */
        talk_steps(t, (const struct step[]){{"begin t1 0 1", answer}, {NULL, NULL}});
    engine(a);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 2", "log 4 1 of 2 *\npersist 2"}, {NULL, NULL}});
}
END_TEST

/* One block of 8 rows, of which each of two ranks has 4. */
START_TEST(blocks_are_shared_on_one_host)
{
    struct engine en = a;

    en.fp8 = true;
    talk_say(t, "up t1");
    talk_say(t, "up i1");
    declare("t1", 0, 2, 4);
    declare("t1", 1, 2, 4);
    engine(en);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 1", ""}, {"begin t1 1 1", "persist 1"},
               {"persisted 1", "t1 MAXIMA_PROGRAM e1 shares 0+1/1 members 0+2/2\n"
                               "t1 LOAD_PROGRAM e1 r0 tiles *\nt1 LOAD_PROGRAM e1 r1 tiles *"},
               {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1\nt1 BEGIN_DONE 1 v1 e1"}, {NULL, NULL}});
}
END_TEST

START_TEST(blocks_on_two_hosts_are_refused)
{
    struct engine en = a;

    en.fp8 = true;
    talk_say(t, "up t1");
    talk_say(t, "up t2");
    talk_say(t, "up i1");
    declare("t1", 0, 2, 4);
    declare("t2", 1, 2, 4);
    engine(en);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 1", ""},
               {"begin t2 1 1",
                   "log 4 *\n"
                   "t1 BEGIN_DONE 0 v1 unsupported: 1 FP8 blocks lie in trainer ranks of several "
                   "hosts*one host*without FP8\n"
                   "t2 BEGIN_DONE 1 v1 unsupported: 1 FP8 *"},
               {NULL, NULL}});
    /* an engine without FP8 goes on */
    en = a;
    en.name = "B";
    en.process = 60;
    engine(en);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 2", ""},
               {"begin t2 1 2", "log 4 1 of 2 engines do not fit*FP8*\npersist 2"},
               {"persisted 2", "t1 LOAD_PROGRAM e2 r0 tiles *\nt2 LOAD_PROGRAM e2 r1 tiles *"},
               {NULL, NULL}});
}
END_TEST

/* Another expert map wants the same bytes elsewhere: a matter of membership, not of the layout. */
START_TEST(a_new_expert_map)
{
    struct engine en = a;

    talk_say(t, "up t1");
    talk_say(t, "up i1");
    declare("t1", 0, 1, 8);
    engine(en);
    talk_steps(t, (const struct step[]){{"begin t1 0 1", "persist 1"},
                      {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles *"},
                      {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"},
                      {"end t1 0 1 320", "t1 END_DONE 0 v1"}, {NULL, NULL}});
    en.map_version = 1;
    memcpy(en.map, (const uint32_t[]){3, 1, 0, 2}, sizeof(en.map));
    en.process = 51;
    engine(en);
    talk_steps(t, (const struct step[]){{"begin t1 0 2", "persist 2"},
                      {"persisted 2", "log 3 *replaced*\nt1 ABORT *\nt1 BEGIN_DONE 0 v2 e1"},
                      {"end t1 0 2 320", "t1 END_DONE 0 v2"},
                      {"publish t1 7 2", "t1 TARGETS e1.1 0+1/1 0=A/0*\n"
                                         "t1 WRITE_PROGRAM e1.1 r0 t0 *\n"
                                         "i1 PHASE arm A/0 u2 t1x4"},
                      {NULL, NULL}});
}
END_TEST

int main(void)
{
    Suite *s = suite_create("coordinator models");
    TCase *c = tcase_create("models");
    SRunner *r;
    int failed;

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_test(c, models_are_shared);
    tcase_add_loop_test(c, models_are_refused, 0, 6);
    tcase_add_test(c, no_layouts);
    tcase_add_test(c, a_sharded_engine);
    tcase_add_loop_test(c, an_unfit_engine_harms_no_other, 0, 4);
    tcase_add_loop_test(c, an_unfit_engine_alone, 0, 4);
    tcase_add_test(c, blocks_are_shared_on_one_host);
    tcase_add_test(c, blocks_on_two_hosts_are_refused);
    tcase_add_test(c, a_new_expert_map);
    suite_add_tcase(s, c);
    r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
