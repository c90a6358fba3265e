/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each allocation of the coordinator and the planner fails once: nothing breaks, and once there is
 * memory again, everything works. Linked with --wrap for the allocating functions.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/talk.h"
#include "trainerd/plan/plan.h"

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names */
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

static long left = -1; /* allocations until one fails; < 0 = none does */
static bool failed;

static bool fails(void)
{
    if (!talk_inside || left < 0 || left-- > 0)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

static const char *const up[] = {"up t1", "up i1", "open t1 0 1", "sources t1 0 1 a:8,lm:8,b:4",
    "engine i1 A 0 1 50 a:8,b:4,lm=a", "engine i1 B 0 1 60 b:4", "engine i1 C 0 1 70 zz:4"};

static const char *const update[] = {"begin t1 0 %d", "persisted %d", "plan t1 %d",
    "end t1 0 %d 12 0:0:1,0:1:1", "publish t1 1 %d", "wait t1 2 %d", "phase i1 arm A 0 50 %d",
    "phase i1 arm B 0 60 %d", "connected t1 %d 0", "connected t1 %d 1", "phase i1 pause A 0 50 %d",
    "phase i1 pause B 0 60 %d", "phase i1 prepare A 0 50 %d", "phase i1 prepare B 0 60 %d",
    "phase i1 open A 0 50 %d", "phase i1 open B 0 60 %d", "written t1 %d 0 12", "written t1 %d 1 4",
    "phase i1 close A 0 50 %d 12", "phase i1 close B 0 60 %d 4", "phase i1 post A 0 50 %d",
    "phase i1 post B 0 60 %d", "phase i1 activate A 0 50 %d", "phase i1 activate B 0 60 %d",
    "phase i1 resume A 0 50 %d", "phase i1 resume B 0 60 %d", "state i1 C 0 70 gone 0"};

#define N(a) (sizeof(a) / sizeof((a)[0]))

/* A whole update to a version; what the last answers brought. */
static bool run(struct talk *t, int version)
{
    char line[128];
    bool live = false;

    for (size_t i = 0; i < N(up); i++)
        talk_say(t, up[i]);
    for (size_t i = 0; i < N(update); i++) {
        const char *space = strstr(update[i], "%d");

        if (space)
            snprintf(line, sizeof(line), "%.*s%d%s", (int)(space - update[i]), update[i], version,
                space + 2);
        else
            snprintf(line, sizeof(line), "%s", update[i]);
        live = strstr(talk_say(t, line), "[A live ") || live;
    }
    return live;
}

START_TEST(any_allocation_of_the_coordinator_may_fail)
{
    long n = 0;

    do {
        struct talk *t = talk_new(0);

        failed = false;
        left = n++;
        run(t, 1);
        left = -1;
        talk_say(t, "down t1");
        talk_say(t, "down i1");
        talk_say(t, "time 1000000"); /* whatever waits has its deadline */
        ck_assert_uint_eq(talk_deadline(t), UINT64_MAX);
        ck_assert_msg(run(t, 2), "after allocation %ld failed, version 2 does not get live", n - 1);
        talk_free(t);
    } while (failed);
    ck_assert_int_gt(n, 200);
}
END_TEST

/* ---- the planner ---- */

static struct sw_source source(const char *name)
{
    return (struct sw_source){
        .name = name, .dtype = SW_U8, .ndim = 1, .shape = {8}, .box = {.ndim = 1, .len = {8}}};
}

static int fold(struct sw_fold *f, const struct sw_plan_rank **ranks, struct sw_error *e)
{
    const struct sw_source sources[] = {source("a"), source("b"), source("c")};
    uint32_t n;
    int err = f ? sw_fold_add(f, 0, 0, 3, sources, e) : SW_ERR_NOMEM;

    if (!err)
        err = sw_fold_add(f, 1, 0, 3, sources, e);
    return err ? err : sw_fold_ranks(f, ranks, &n, e);
}

static int plan(struct sw_error *e)
{
    struct sw_parameter p[] = {{.name = "a", .dtype = SW_U8, .ndim = 1, .shape = {8}},
        {.name = "b", .dtype = SW_U8, .ndim = 1, .shape = {8}, .alias_of = "a"},
        {.name = "c", .dtype = SW_U8, .ndim = 1, .shape = {8}, .offset = 10}};
    const uint64_t region = 100;
    const struct sw_plan_target target = {
        .engine = "A", .n_regions = 1, .region_bytes = &region, .n_parameters = 3, .parameters = p};
    const struct sw_plan_options options = {.assignment = SW_ASSIGN_BALANCED};
    const struct sw_plan_rank *ranks = NULL;
    struct sw_plan_notes notes;
    struct sw_layout *layout = NULL;
    struct sw_writes *writes = NULL;
    struct sw_fold *f;
    int err;

    talk_inside = true;
    f = sw_fold_new();
    err = fold(f, &ranks, e);
    if (!err)
        err = sw_layout_make(ranks, 2, &target, 1, &options, &layout, &notes, e);
    if (!err)
        err = sw_writes_make(layout, &target, 1, &writes, e);
    talk_inside = false;
    sw_writes_free(writes);
    sw_layout_free(layout);
    sw_fold_free(f);
    return err;
}

START_TEST(any_allocation_of_the_planner_may_fail)
{
    struct sw_error e = {0};
    long n = 0;

    do {
        int err;

        failed = false;
        left = n++;
        err = plan(&e);
        left = -1;
        ck_assert_msg(err == 0 || (failed && err == SW_ERR_NOMEM), "%ld: %d %s", n, err, e.text);
    } while (failed);
    ck_assert_int_gt(n, 30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("no memory");
    TCase *tcase = tcase_create("no memory");
    SRunner *runner;
    int bad;

    tcase_add_test(tcase, any_allocation_of_the_planner_may_fail);
    tcase_add_test(tcase, any_allocation_of_the_coordinator_may_fail);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    bad = srunner_ntests_failed(runner);
    srunner_free(runner);
    return bad != 0;
}
