/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator does when others fail: in each step of an update, and in each state of a
 * version. Engine A has ranks on i1 and i2, engine B is on i1; whatever happens to A, B gets live.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainerd/coordinator/talk.h"

static struct talk *t;

static void setup(void)
{
    t = talk_new(0);
}

static void teardown(void)
{
    talk_free(t);
}

static const struct step registered[] = {{"up t1", ""}, {"up i1", ""}, {"up i2", ""},
    {"sources t1 0 1 a:8,b:4", "t1 SOURCES_DONE 0 v0"}, {"engine i1 A 0 2 50 a:8", ""},
    {"engine i2 A 1 2 51 a:8", ""}, {"engine i1 B 0 1 60 a:8,b:4", ""}, {NULL, NULL}};

static const struct step to_staging[] = {{"begin t1 0 1", "persist 1"},
    {"persisted 1", "t1 LOAD_PROGRAM *"}, {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"}, {NULL, NULL}};

static const struct step to_publishing[] = {{"end t1 0 1 12", "t1 END_DONE 0 v1"},
    {"publish t1 1 1", "t1 TARGETS *\nt1 WRITE_PROGRAM *\nt1 WRITE_PROGRAM *\nt1 WRITE_PROGRAM *\n"
                       "i1 PHASE arm A/0 *\ni2 PHASE arm A/1 *\ni1 PHASE arm B/0 *"},
    {NULL, NULL}};

/* ---- the steps of an update ---- */

enum at { ARM, CONNECT, PAUSE, PREPARE, OPEN, WRITE, CLOSE, POST, ACTIVATE, RESUME, DONE };

static const struct {
    const char *name, *phase;
    const char *ms;      /* its deadline */
    const char *answer0; /* of the rank on i1, or of the writer to it */
    const char *answer1;
    const char *asked; /* pattern of what comes out when it starts */
} steps[DONE + 1] = {
    {"arm", "arm", "10000", "phase i1 arm A 0 50 1", "phase i2 arm A 1 51 1", ""},
    {"connect", NULL, "10000", "connected t1 1 0", "connected t1 1 1",
        "t1 CONNECT u1 t0 *\nt1 CONNECT u1 t1 *"},
    {"pause", "pause", "61000", "phase i1 pause A 0 50 1", "phase i2 pause A 1 51 1",
        "i1 PHASE pause A/0 u1\ni2 PHASE pause A/1 u1"},
    {"prepare", "prepare", "61000", "phase i1 prepare A 0 50 1", "phase i2 prepare A 1 51 1",
        "i1 PHASE prepare A/0 u1\ni2 PHASE prepare A/1 u1"},
    {"open the window", "open", "5000", "phase i1 open A 0 50 1", "phase i2 open A 1 51 1",
        "i1 PHASE open A/0 u1 8\ni2 PHASE open A/1 u1 8"},
    {"write", NULL, "62000", "written t1 1 0 8", "written t1 1 1 8",
        "t1 WRITE u1 t0 w1\nt1 WRITE u1 t1 w2"},
    {"close the window", "close", "5000", "phase i1 close A 0 50 1 8", "phase i2 close A 1 51 1 8",
        "i1 PHASE close A/0 u1\ni2 PHASE close A/1 u1"},
    {"post-process", "post", "120000", "phase i1 post A 0 50 1", "phase i2 post A 1 51 1",
        "i1 PHASE post A/0 u1\ni2 PHASE post A/1 u1"},
    {"activate", "activate", "6000", "phase i1 activate A 0 50 1", "phase i2 activate A 1 51 1",
        "i1 PHASE activate A/0 u1\ni2 PHASE activate A/1 u1"},
    {"resume", "resume", "6000", "phase i1 resume A 0 50 1", "phase i2 resume A 1 51 1",
        "i1 PHASE resume A/0 u1\ni2 PHASE resume A/1 u1"},
    {"live", NULL, NULL, NULL, NULL, "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1"},
};

static void expect(const char *in, const char *out)
{
    talk_steps(t, (const struct step[]){{in, out}, {NULL, NULL}});
}

static void expectf(const char *in, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void expectf(const char *in, const char *format, ...)
{
    char out[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(out, sizeof(out), format, args);
    va_end(args);
    expect(in, out);
}

/* A is asked for this step; both answers are out. */
static void go_to(int at)
{
    talk_steps(t, registered);
    talk_steps(t, to_staging);
    talk_steps(t, to_publishing);
    for (int s = ARM; s < at; s++) {
        expect(steps[s].answer0, "");
        expect(steps[s].answer1, steps[s + 1].asked);
    }
}

/* B's whole way; the last answer brings `last`. */
static void finish_b(const char *last)
{
    static const char *const answers[] = {"phase i1 arm B 0 60 1", "connected t1 1 2",
        "phase i1 pause B 0 60 1", "phase i1 prepare B 0 60 1", "phase i1 open B 0 60 1",
        "written t1 1 2 12", "phase i1 close B 0 60 1 12", "phase i1 post B 0 60 1",
        "phase i1 activate B 0 60 1"};

    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        ck_assert_str_ne(talk_say(t, answers[i]), "");
    expect("phase i1 resume B 0 60 1", last);
}

/* ---- deadlines ---- */

START_TEST(a_rank_or_writer_that_does_not_answer)
{
    const char *who = steps[_i].phase ? "rank 1 on i2 (process 51)" : "trainerd t1 to rank 1 on i2";

    go_to(_i);
    /* B first, so that its own deadlines don't come */
    finish_b("t1 UPDATE_END u1 t2");
    expect(steps[_i].answer0, "");
    ck_assert_uint_eq(talk_deadline(t), strtoul(steps[_i].ms, NULL, 10));
    {
        char in[64];

        snprintf(in, sizeof(in), "time %lu", strtoul(steps[_i].ms, NULL, 10) - 1);
        expect(in, "");
    }
    expectf("time 1",
        "log 3 engine A, update to version 1: %s: no answer in %.1f s from %s; *\n"
        "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\n"
        "i1 PHASE abort A/0 u1 %s: no answer *\ni2 PHASE abort A/1 u1 %s: no answer *",
        steps[_i].name, strtod(steps[_i].ms, NULL) / 1e3, who, steps[_i].name, steps[_i].name);
    expect(steps[_i].answer1, ""); /* too late */
    expect("phase i1 abort A 0 50 1", "");
    expectf(_i >= OPEN ? "phase i2 abort A 1 51 1 torn" : "phase i2 abort A 1 51 1",
        "log 3 version 1 is live on 1 of 2 engines; not on engine A (%s): %s: no answer *\n"
        "t1 RESULT 1 v1 [A not %s v0 %s: no answer in * from %s; *] [B live *] partial: *",
        _i >= OPEN ? "torn" : "serving", steps[_i].name, _i >= OPEN ? "torn" : "serving",
        steps[_i].name, who);
    expect(steps[_i].answer0, "");
    expect("publish t1 2 1", "t1 RESULT 2 v1 [A not *] [B live *] partial: *");
    ck_assert_uint_eq(talk_deadline(t), UINT64_MAX);
}
END_TEST

START_TEST(a_resume_without_an_answer_is_live_all_the_same)
{
    go_to(RESUME);
    finish_b("t1 UPDATE_END u1 t2");
    expect(steps[RESUME].answer1, "");
    expect("time 6000",
        "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\n"
        "log 4 engine A is live at version 1: *, but resume: no answer in 6.0 s from rank "
        "0 on i1 (process 50); *\n"
        "t1 RESULT 1 v1 [A live * resume: no answer *] [B live *]");
}
END_TEST

START_TEST(a_resume_that_fails_is_live_all_the_same)
{
    go_to(RESUME);
    finish_b("t1 UPDATE_END u1 t2");
    expect("phase i1 resume A 0 50 1 err-scheduler", "");
    expect(steps[RESUME].answer1, "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\n"
                                  "log 4 engine A is live at version 1: *, but resume: rank 0 on "
                                  "i1 (process 50): err-scheduler\n"
                                  "t1 RESULT 1 v1 [A live * resume: rank 0 *] [B live *]");
}
END_TEST

START_TEST(nobody_answers_the_abort)
{
    go_to(WRITE);
    finish_b("t1 UPDATE_END u1 t2");
    talk_say(t, "written t1 1 0 8 broken");
    expect("phase i1 abort A 0 50 1 torn", "");
    expect("time 4999", "");
    expect("time 1",
        "log 3 version 1 is live on 1 of 2 engines*\n"
        "t1 RESULT 1 v1 [A not unknown v0 write: trainerd t1 to rank 0 on i1 (process 50): "
        "broken; end the update: no answer in 5.0 s from rank 1 on i2 *] [B live *] "
        "partial: *");
}
END_TEST

/* inferd takes what it answered as told: it does not say it again. */
START_TEST(a_late_answer_tells_the_state)
{
    char *status;

    go_to(PREPARE);
    finish_b("t1 UPDATE_END u1 t2");
    talk_say(t, "time 61000");
    talk_say(t, "time 5000");
    expect("phase i1 abort A 0 50 1 torn", "");
    expect("phase i2 abort A 1 51 1", "");
    status = talk_status(t);
    ck_assert_ptr_nonnull(strstr(status, "\"torn\""));
    ck_assert_ptr_null(strstr(status, "\"paused\""));
    free(status);
}
END_TEST

/* ---- answers with errors ---- */

START_TEST(a_rank_or_writer_that_says_no)
{
    char in[128];

    go_to(_i);
    expect(steps[_i].answer1, "");
    if (_i == WRITE)
        snprintf(in, sizeof(in), "written t1 1 0 0 err-x");
    else if (_i == CLOSE)
        snprintf(in, sizeof(in), "phase i1 close A 0 50 1 err-x");
    else
        snprintf(in, sizeof(in), "%s err-x", steps[_i].answer0);
    expectf(in,
        "log 3 engine A, update to version 1: %s: *rank 0 on i1 (process 50): err-x\n"
        "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\n"
        "i1 PHASE abort A/0 u1 %s: *err-x\ni2 PHASE abort A/1 u1 %s: *err-x",
        steps[_i].name, steps[_i].name, steps[_i].name);
    expect("phase i1 abort A 0 50 1", "");
    expect("phase i2 abort A 1 51 1", "");
    finish_b("t1 UPDATE_END u1 t2\nlog 3 version 1 is live on 1 of 2 engines*\n"
             "t1 RESULT 1 v1 [A not serving v0 *err-x] [B live serving v1 *] partial: *");
}
END_TEST

START_TEST(bytes_that_are_not_the_planned_ones)
{
    go_to(_i);
    expectf(_i == WRITE ? "written t1 1 0 7" : "phase i1 close A 0 50 1 9",
        "log 3 engine A, update to version 1: %s: *: %s bytes * 8 planned\n"
        "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\ni1 PHASE abort *\ni2 PHASE abort *",
        steps[_i].name, _i == WRITE ? "7" : "9");
}
END_TEST

START_TEST(a_rank_that_is_not_active_after_activate)
{
    go_to(ACTIVATE);
    expect("phase i1 activate A 0 50 1 torn",
        "log 3 *: it answered activate, but is torn\n*UPDATE_END*\n*UPDATE_END*\n*abort*\n*abort*");
}
END_TEST

/* ---- those that disappear ---- */

START_TEST(an_engine_process_that_ends)
{
    go_to(_i);
    if (_i == RESUME) {
        expect("state i2 A 1 51 gone 0 died",
            "log 4 engine A rank 1 on i2 (process 51) is gone: died\n"
            "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1");
    } else {
        expectf("state i2 A 1 51 gone 0 died",
            "log 4 engine A rank 1 on i2 (process 51) is gone: died\n"
            "log 3 engine A, update to version 1: %s: rank 1 on i2 (process 51): died\n"
            "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\ni1 PHASE abort A/0 u1 *",
            steps[_i].name);
        expect("phase i1 abort A 0 50 1", "");
    }
    finish_b(
        "t1 UPDATE_END u1 t2\nlog 3 *\n"
        "t1 RESULT 1 v1 [A not gone v0 *: rank 1 on i2 (process 51): died] [B live *] partial: *");
}
END_TEST

START_TEST(an_engine_process_that_is_replaced)
{
    go_to(_i);
    expectf("engine i2 A 1 2 77 a:8",
        "log 3 engine A, update to version 1: %s: rank 1 on i2 (process 51): its process was "
        "replaced *\n"
        "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\ni1 PHASE abort A/0 u1 *",
        steps[_i].name);
    if (steps[_i].phase)
        expect(steps[_i].answer1, ""); /* of the process that was */
    expect("phase i1 abort A 0 50 1", "");
    finish_b(
        "t1 UPDATE_END u1 t2\nlog 3 *\nt1 RESULT 1 v1 [A not gone v0 *] [B live *] partial: *");
    /* the new process takes part in the next one */
    talk_steps(
        t, (const struct step[]){{"begin t1 0 2", "persist 2"}, {"persisted 2", "*BEGIN_DONE*"},
               {"end t1 0 2 12", "*END_DONE*"},
               {"publish t1 1 2", "*TARGETS e1.2*\n*\n*\n*\n*arm A/0*\n*arm A/1*\n*arm B/0*"},
               {NULL, NULL}});
}
END_TEST

START_TEST(an_inferd_that_disappears)
{
    go_to(_i);
    if (_i == RESUME) {
        expect("down i2 reset",
            "log 4 inferd i2 is gone: reset\nt1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1");
    } else {
        expectf("down i2 reset",
            "log 4 inferd i2 is gone: reset\n"
            "log 3 engine A, update to version 1: %s: rank 1 on i2 (process 51): the connection of "
            "inferd i2 is lost (reset)\n"
            "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\ni1 PHASE abort A/0 u1 *",
            steps[_i].name);
        expect("phase i1 abort A 0 50 1 torn", "");
    }
    finish_b("t1 UPDATE_END u1 t2\nlog 3 *\n"
             "t1 RESULT 1 v1 [A not unknown v0 *: rank 1 *(reset)] [B live *] partial: *");
    /* it comes back and tells what it is */
    talk_steps(
        t, (const struct step[]){{"up i2", ""}, {"engine i2 A 1 2 51 a:8 0 torn", ""},
               {"begin t1 0 2", "persist 2"}, {"persisted 2", "*BEGIN_DONE*"},
               {"end t1 0 2 12", "*END_DONE*"},
               {"publish t1 1 2", "*TARGETS e1.2*\n*\n*\n*\n*arm A/0*\n*arm A/1*\n*arm B/0*"},
               {"phase i1 arm A 0 50 2", ""}, {"phase i2 arm A 1 51 2", "*CONNECT*\n*CONNECT*"},
               {"connected t1 2 0", ""}, {"connected t1 2 1", "*pause*\n*pause*"},
               {"state i2 A 1 51 torn 0", ""}, /* it was torn before: that is no news */
               {"phase i1 pause A 0 50 2", ""}, {"phase i2 pause A 1 51 2", "*prepare*\n*prepare*"},
               {NULL, NULL}});
}
END_TEST

START_TEST(both_inferds_disappear)
{
    go_to(WRITE);
    talk_say(t, "down i2");
    expect("down i1",
        "log 4 inferd i1 is gone*\nlog 3 engine B, update to version 1: arm: rank 0 on i1 *\n"
        "t1 UPDATE_END u1 t2\n"
        "log 3 version 1 is live on 0 of 2 engines*\nt1 RESULT 1 v1 [A not unknown *] [B not "
        "unknown *] "
        "partial: *");
    ck_assert_uint_eq(talk_deadline(t), UINT64_MAX);
}
END_TEST

START_TEST(a_trainerd_that_disappears)
{
    const bool needed = _i <= WRITE;

    go_to(_i);
    if (needed)
        expectf("down t1 reset",
            "log 4 trainerd t1 is gone: reset\n"
            "log 3 engine A, update to version 1: %s: trainerd t1 to rank 0 on i1 (process 50): "
            "this "
            "trainerd is gone (reset)\n"
            "i1 PHASE abort A/0 *\ni2 PHASE abort A/1 *\n"
            "log 3 engine B, update to version 1: arm: trainerd t1 to rank 0 *\ni1 PHASE abort B/0 "
            "*",
            steps[_i].name);
    else
        expect("down t1 reset", "log 4 trainerd t1 is gone: reset\nlog 3 engine B, *\n*abort B/0*");
    expect("phase i1 abort B 0 60 1", "");
    if (needed) {
        expect("phase i1 abort A 0 50 1", "");
        expect("phase i2 abort A 1 51 1", "log 3 version 1 is live on 0 of 2 engines*");
        return;
    }
    for (int s = _i; s < RESUME; s++) { /* all is written: the update goes on */
        expect(steps[s].answer0, "");
        expect(steps[s].answer1, steps[s + 1].asked);
    }
    expect(steps[RESUME].answer0, "");
    expect(steps[RESUME].answer1, "log 3 version 1 is live on 1 of 2 engines; not on engine B *");
}
END_TEST

START_TEST(a_trainerd_that_has_written_may_go_while_others_write)
{
    go_to(WRITE);
    finish_b("t1 UPDATE_END u1 t2");
    expect("written t1 1 0 8", "");
    expect(
        "down t1", "log 4 *\nlog 3 engine A, *: write: trainerd t1 to rank 1 *\n*abort*\n*abort*");
}
END_TEST

START_TEST(a_lease_that_ends)
{
    go_to(_i);
    expectf(_i <= OPEN ? "state i2 A 1 51 serving 0 lease" : "state i2 A 1 51 torn 0 lease",
        "log 3 engine A, update to version 1: %s: rank 1 on i2 (process 51): its inferd ended the "
        "update "
        "by itself (it is %s now): lease\n"
        "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\ni1 PHASE abort *\ni2 PHASE abort *",
        steps[_i].name, _i <= OPEN ? "serving" : "torn");
}
END_TEST

/* ---- messages of an update that is over ---- */

START_TEST(answers_of_an_older_update_are_ignored)
{
    go_to(PAUSE);
    finish_b("t1 UPDATE_END u1 t2");
    talk_say(t, "time 61000");
    talk_say(t, "phase i1 abort A 0 50 1");
    talk_say(t, "phase i2 abort A 1 51 1");
    talk_steps(
        t, (const struct step[]){{"begin t1 0 2", "persist 2"}, {"persisted 2", "t1 BEGIN_DONE *"},
               {"end t1 0 2 12", "t1 END_DONE *"},
               {"publish t1 2 2", "*arm A/0*\n*arm A/1*\n*arm B/0*"}, {"phase i1 arm A 0 50 1", ""},
               {"phase i1 pause A 0 50 1", ""}, {"phase i2 pause A 1 51 1", ""},
               {"connected t1 1 0", ""}, {"phase i1 arm A 0 50 2", ""},
               {"phase i2 arm A 1 51 2", "*CONNECT u2 t0*\n*CONNECT u2 t1*"},
               {"connected t1 1 0", ""}, {"connected t1 2 0", ""},
               {"connected t1 2 1", "*pause*\n*pause*"}, {"phase i1 pause A 0 50 1", ""},
               {"phase i1 prepare A 0 50 2", ""}, {"phase i1 pause A 0 51 2", ""},
               {"phase i2 pause A 0 50 2", ""}, {"phase i1 pause A 9 50 2", ""},
               {"phase i1 pause Z 0 50 2", ""}, {"phase i1 pause A 0 50 2", ""},
               {"phase i1 pause A 0 50 2", ""}, {"phase i2 pause A 1 51 2", "*prepare*\n*prepare*"},
               {"written t1 1 0 8", ""}, {"written t1 2 0 8", ""}, /* before it was asked to */
               {NULL, NULL}});
}
END_TEST

/* A path that breaks before a window was open ends the engine's update: nothing was written. */
START_TEST(a_path_breaks_while_the_engine_is_being_paused)
{
    go_to(PAUSE);
    expect("connected t1 1 1 broken",
        "log 3 engine A, update to version 1: pause: trainerd t1 to rank 1 on i2 *broken\n"
        "*UPDATE_END u1 t0\n*UPDATE_END u1 t1\n*abort A/0*\n*abort A/1*");
}
END_TEST

/* ---- a version's life ---- */

START_TEST(begin_that_waits_in_vain)
{
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"sources t1 0 4 a:8", "*"}, {"open t1 1 4", ""},
            {"sources t1 2 4 a:8", "*"}, {"gone t1 2", ""}, {"begin t1 0 1", ""},
            {"time 59999", ""},
            {"time 1",
                "log 4 version 1 is given up while beginning: begin of version 1 waited 60.0 s for "
                "trainer rank 1 on t1 (has declared nothing), trainer rank 2 (its process on t1 is "
                "gone), trainer rank 3 of 4 (never opened)\n"
                "t1 BEGIN_DONE 0 v1 timeout: begin of version 1 waited *"},
            {NULL, NULL}});
}
END_TEST

START_TEST(begin_without_an_engine)
{
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"sources t1 0 1 a:8", "*"}, {"begin t1 0 1", ""},
            {"publish t1 1 1", ""},
            {"time 60000", "log 4 *\nt1 BEGIN_DONE 0 v1 timeout: *for a complete engine (none is "
                           "registered; is inferd running*\n"
                           "t1 RESULT 1 v1 timeout: *"},
            {"up i1", ""}, {"engine i1 A 0 2 50 a:8", ""}, {"begin t1 0 1", ""},
            {"time 60000",
                "log 4 *\nt1 BEGIN_DONE 0 v1 timeout: *a complete engine: engine A: rank 1 of 2 "
                "is not registered"},
            {"begin t1 0 1", ""}, {"engine i1 A 1 2 51 a:8", "persist 1"}, {NULL, NULL}});
}
END_TEST

START_TEST(a_disk_that_does_not_store)
{
    talk_steps(t, registered);
    talk_steps(t,
        (const struct step[]){{"begin t1 0 3", "persist 3"},
            {"persisted 3 disk-full",
                "log 3 version 3 is given up *\n"
                "t1 BEGIN_DONE 0 v3 i/o: version 3 could not be stored *disk-full"},
            {"begin t1 0 3", "persist 3"}, {"persisted 2", ""},
            {"time 60000", "log 3 *\nt1 BEGIN_DONE 0 v3 timeout: *disk*"}, {"persisted 3", ""},
            {"begin t1 0 3", "persist 3"}, {"persisted 3", "t1 LOAD_PROGRAM e3 *"}, {NULL, NULL}});
}
END_TEST

START_TEST(a_trainerd_that_cannot_allocate)
{
    talk_steps(t, registered);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 1", "persist 1"},
               {"persisted 1", "t1 LOAD_PROGRAM e1 *"},
               {"plan t1 1 no-memory",
                   "log 3 version 1 is given up *\n"
                   "t1 BEGIN_DONE 0 v1 i/o: trainerd t1 can't hold the replicas of "
                   "version 1: no-memory"},
               {"begin t1 0 1", "t1 BEGIN_DONE 0 v1 version: *"}, {"begin t1 0 2", "persist 2"},
               {"persisted 2", "t1 LOAD_PROGRAM e2 *"}, {"plan t1 1", ""},
               {"time 60000",
                   "log 3 *\nt1 BEGIN_DONE 0 v2 timeout: *: trainerd t1 did not say that its "
                   "replicas are allocated; *"},
               {"plan t1 2", ""}, {NULL, NULL}});
}
END_TEST

START_TEST(staging_that_takes_too_long)
{
    talk_steps(t, registered);
    talk_steps(t, to_staging);
    talk_steps(
        t, (const struct step[]){{"publish t1 1 0", ""}, {"time 599999", ""},
               {"time 1",
                   "log 3 *\nt1 ABORT -1 v1 version 1 was not staged in 600.0 s: no end came from "
                   "trainer rank 0 on t1 (process 0); *\n"
                   "t1 RESULT 1 v1 aborted: *"},
               {"end t1 0 1 12", "t1 END_DONE 0 v1 aborted: version 1 was given up: *"},
               {"publish t1 2 1", "t1 RESULT 2 v1 aborted: *"}, {NULL, NULL}});
}
END_TEST

START_TEST(a_trainer_that_dies_before_end)
{
    talk_steps(t, registered);
    talk_steps(t, to_staging);
    talk_steps(t, (const struct step[]){{"gone t1 0 98", ""}, /* another process, long ago */
                      {"gone t1 0", "log 3 *\nt1 ABORT 0 v1 trainer rank 0 on t1 is lost: killed"},
                      {"end t1 0 1 12", "t1 END_DONE 0 v1 aborted: *"}, {NULL, NULL}});
}
END_TEST

START_TEST(a_trainer_that_dies_while_others_stage)
{
    talk_steps(
        t, (const struct step[]){{"up t1", ""}, {"up t2", ""}, {"up i1", ""},
               {"engine i1 A 0 1 50 a:8", ""}, {"sources t1 0 2 a:8", "*"},
               {"sources t2 1 2 a:8", "*"}, {"begin t1 0 1", ""}, {"begin t2 1 1", "persist 1"},
               {"persisted 1", "*LOAD*\n*LOAD*"}, {"plan t1 1", ""},
               {"plan t2 1", "*BEGIN_DONE*\n*BEGIN_DONE*"}, {"end t1 0 1 8", ""}, {"gone t1 0", ""},
               {"end t2 1 1 0", "t1 END_DONE 0 v1\nt2 END_DONE 1 v1"},
               {"gone t2 1", ""}, /* all had ended */
               {"sources t1 0 2 a:8", "*"}, {"sources t2 1 2 a:8", "*"}, {"begin t1 0 2", ""},
               {"gone t1 0", "log 4 version 2 is given up while beginning: *"},
               {"begin t2 1 2", ""}, {"sources t1 0 2 a:8", "*"}, {"begin t1 0 2", "persist 2"},
               {"gone t1 0",
                   "log 3 *\nt1 BEGIN_DONE 0 v2 aborted: trainer rank 0 on t1 is lost: killed\n"
                   "t2 BEGIN_DONE 1 v2 aborted: *"},
               {"persisted 2", ""},
               {"publish t2 1 1", "t1 TARGETS*\nt1 WRITE_PROGRAM*\nt2 TARGETS*\n*arm*"},
               {NULL, NULL}});
}
END_TEST

START_TEST(a_trainerd_that_is_lost_takes_its_replica_along)
{
    talk_steps(t, registered);
    talk_steps(t,
        (const struct step[]){{"up t2", ""}, {"begin t1 0 1", "persist 1"},
            {"persisted 1", "*LOAD*"},
            {"down t1", "log 4 *\nlog 3 version 1 is given up while beginning (allocating)*"},
            {"up t1", ""}, {"sources t1 0 1 a:8,b:4", "*"}, {"begin t1 0 2", "persist 2"},
            {"persisted 2", "*LOAD_PROGRAM e2*"}, {"plan t1 2", "*BEGIN_DONE*"},
            {"end t1 0 2 12", "*"}, {"wait t2 1 2", ""},
            {"down t1",
                "log 4 *\nlog 3 version 2 is given up while staged: trainer rank 0 on t1 is lost: "
                "trainerd t1 is gone *\n"
                "t2 RESULT 1 v2 aborted: *trainer rank 0 on t1 is lost*"},
            /* another host takes the rank */
            {"sources t2 0 1 a:8,b:4 20", "*"}, {"begin t2 0 3", "persist 3"},
            {"persisted 3", "t2 LOAD_PROGRAM e3*"}, {NULL, NULL}});
}
END_TEST

START_TEST(a_trainerd_that_connects_again)
{
    talk_steps(t, registered);
    talk_steps(t, to_staging);
    talk_steps(t, (const struct step[]){
                      {"up t1", "log 3 trainerd t1 is disconnected: it has connected again\n"
                                "log 3 version 1 is given up *\n"
                                "close ?: it has connected again"},
                      {"sources t1 0 1 a:8,b:4", "*"}, {"begin t1 0 2", "persist 2"},
                      {"persisted 2", "*LOAD_PROGRAM e2*"}, {NULL, NULL}});
}
END_TEST

START_TEST(waiters)
{
    talk_steps(t, registered);
    talk_steps(t, to_staging);
    talk_steps(t,
        (const struct step[]){{"up t2", ""}, {"wait t1 1 1", ""}, {"wait t2 2 1", ""},
            {"down t2", "log 4 *"}, {"end t1 0 1 12", "t1 END_DONE *"}, {"time 599999", ""},
            {"time 1", "t1 RESULT 1 v1 timeout: waited 600.0 s for version 1, which is staged, *"},
            {"wait t1 3 1", ""},
            {"abort t1 0 1", "log 3 *\nt1 ABORT 0 v1 *had*\nt1 RESULT 3 v1 aborted: *had*"},
            {"abort t1 0 1", ""}, {NULL, NULL}});
}
END_TEST

START_TEST(trainers_that_give_up_while_beginning)
{
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"up i1", ""}, {"engine i1 A 0 1 50 a:8", ""},
            {"sources t1 0 2 a:8", "*"}, {"sources t1 1 2 a:8", "*"}, {"begin t1 0 1", ""},
            {"publish t1 1 1", ""}, {"abort t1 1 9", ""},
            {"abort t1 0 1",
                "log 4 *\nt1 BEGIN_DONE 0 v1 aborted: trainer rank 0 on t1 aborted it: had enough\n"
                "t1 RESULT 1 v1 aborted: *"},
            {"begin t1 0 1", ""}, {"begin t1 1 1", "persist 1"},
            {"abort t1 1 1", "log 3 *\n*DONE*\n*DONE*"}, {"persisted 1", ""}, {"begin t1 0 1", ""},
            {NULL, NULL}});
}
END_TEST

int main(void)
{
    const TTest *const once[] = {a_resume_without_an_answer_is_live_all_the_same,
        a_resume_that_fails_is_live_all_the_same, nobody_answers_the_abort,
        a_late_answer_tells_the_state, a_rank_that_is_not_active_after_activate,
        both_inferds_disappear, a_trainerd_that_has_written_may_go_while_others_write,
        answers_of_an_older_update_are_ignored, a_path_breaks_while_the_engine_is_being_paused,
        begin_that_waits_in_vain, begin_without_an_engine, a_disk_that_does_not_store,
        a_trainerd_that_cannot_allocate, staging_that_takes_too_long,
        a_trainer_that_dies_before_end, a_trainer_that_dies_while_others_stage,
        a_trainerd_that_is_lost_takes_its_replica_along, a_trainerd_that_connects_again, waiters,
        trainers_that_give_up_while_beginning};
    Suite *suite = suite_create("coordinator failures");
    TCase *tcase = tcase_create("failures");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_rank_or_writer_that_does_not_answer, ARM, RESUME);
    tcase_add_loop_test(tcase, a_rank_or_writer_that_says_no, ARM, RESUME);
    tcase_add_loop_test(tcase, bytes_that_are_not_the_planned_ones, WRITE, WRITE + 2);
    tcase_add_loop_test(tcase, an_engine_process_that_ends, ARM, DONE);
    tcase_add_loop_test(tcase, an_engine_process_that_is_replaced, ARM, RESUME);
    tcase_add_loop_test(tcase, an_inferd_that_disappears, ARM, DONE);
    tcase_add_loop_test(tcase, a_trainerd_that_disappears, ARM, DONE);
    tcase_add_loop_test(tcase, a_lease_that_ends, PREPARE, RESUME);
    for (size_t i = 0; i < sizeof(once) / sizeof(once[0]); i++)
        tcase_add_test(tcase, once[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
