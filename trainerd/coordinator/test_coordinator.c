/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations in which nothing fails, or only what someone asked for wrongly. */
#include <check.h>
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

/* ---- beginnings that many tests share ---- */

static const struct step one_rank[] = {{"up t1", ""}, {"open t1 0 1", ""},
    {"sources t1 0 1 a:8,b:4", "t1 SOURCES_DONE 0 v0"}, {NULL, NULL}};

static const struct step engine_a[] = {
    {"up i1", ""}, {"engine i1 A 0 1 50 a:8,b:4", ""}, {NULL, NULL}};

static const struct step staged_1[] = {{"begin t1 0 1", "persist 1"},
    {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles 0+2/2"}, {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"},
    {"end t1 0 1 12", "t1 END_DONE 0 v1"}, {NULL, NULL}};

static void go_staged(void)
{
    talk_steps(t, one_rank);
    talk_steps(t, engine_a);
    talk_steps(t, staged_1);
}

START_TEST(a_version_reaches_one_engine)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){{"publish t1 7 1", "t1 TARGETS e1.1 0+1/1 0=A/0@10.0.0.9:7472\n"
                                                    "t1 WRITE_PROGRAM e1.1 r0 t0 0>0+12\n"
                                                    "i1 PHASE arm A/0 u1 t1x4"},
               {"phase i1 arm A 0 50 1", "t1 CONNECT u1 t0 tokens 3"},
               {"connected t1 1 0", "i1 PHASE pause A/0 u1"}, {"time 200", ""},
               {"phase i1 pause A 0 50 1", "i1 PHASE prepare A/0 u1"}, {"time 10", ""},
               {"phase i1 prepare A 0 50 1", "i1 PHASE open A/0 u1 12"}, {"time 1", ""},
               {"phase i1 open A 0 50 1", "t1 WRITE u1 t0 w1"}, {"time 30", ""},
               {"written t1 1 0 12", "i1 PHASE close A/0 u1"}, {"time 2", ""},
               {"phase i1 close A 0 50 1 12", "i1 PHASE post A/0 u1"}, {"time 5", ""},
               {"phase i1 post A 0 50 1", "i1 PHASE activate A/0 u1"}, {"time 1", ""},
               {"phase i1 activate A 0 50 1", "i1 PHASE resume A/0 u1"}, {"time 100", ""},
               {"phase i1 resume A 0 50 1", "t1 UPDATE_END u1 t0\n"
                                            "t1 RESULT 7 v1 [A live serving v1 drain 200 pause 49 "
                                            "write 30 post 5 bytes 12 tcp]"},
               {"publish t1 8 1", "t1 RESULT 8 v1 [A live serving v1 drain 200 pause 49 write 30 "
                                  "post 5 bytes 12 tcp]"},
               {"wait t1 9 1", "t1 RESULT 9 v1 [A live *]"}, {NULL, NULL}});
    ck_assert_uint_eq(talk_deadline(t), UINT64_MAX);
}
END_TEST

/* What was staged gives way, but not the layout that was made for what comes. */
START_TEST(a_new_layout_replaces_a_staged_version)
{
    go_staged();
    talk_steps(t, (const struct step[]){{"sources t1 0 1 b:4,a:8", "t1 SOURCES_DONE 0 v0"},
                      {"begin t1 0 2", "persist 2"},
                      {"persisted 2", "log 3 version 1 is given up while staged*\n"
                                      "t1 ABORT -1 v1 *\n"
                                      "t1 LOAD_PROGRAM e2 r0 tiles 0+2/2"},
                      {"plan t1 2", "t1 BEGIN_DONE 0 v2 e2"}, {NULL, NULL}});
}
END_TEST

/* From publish to the result, on one engine of one rank. */
static void publish_to_a(const char *version, const char *epochs, bool new_epoch)
{
    char in[128], out[256];
    static const char *const phases[] = {
        "pause", "prepare", "open", "close", "post", "activate", "resume"};

    snprintf(in, sizeof(in), "publish t1 1 %s", version);
    snprintf(out, sizeof(out), "%s%s%s%s%si1 PHASE arm A/0 u%s t1x4",
        new_epoch ? "t1 TARGETS e" : "", new_epoch ? epochs : "",
        new_epoch ? " 0+1/1 0=A/0@10.0.0.9:7472\nt1 WRITE_PROGRAM e" : "", new_epoch ? epochs : "",
        new_epoch ? " r0 t0 *\n" : "", version);
    talk_steps(t, (const struct step[]){{in, out}, {NULL, NULL}});
    snprintf(in, sizeof(in), "phase i1 arm A 0 50 %s", version);
    talk_say(t, in);
    snprintf(in, sizeof(in), "connected t1 %s 0", version);
    talk_say(t, in);
    for (int i = 0; i < 7; i++) {
        snprintf(
            in, sizeof(in), "phase i1 %s A 0 50 %s%s", phases[i], version, i == 3 ? " 12" : "");
        if (i == 3) {
            snprintf(out, sizeof(out), "written t1 %s 0 12", version);
            talk_say(t, out);
        }
        if (i < 6)
            talk_say(t, in);
    }
    snprintf(out, sizeof(out), "t1 UPDATE_END u%s t0\nt1 RESULT 1 v%s [A live serving v%s *]",
        version, version, version);
    talk_steps(t, (const struct step[]){{in, out}, {NULL, NULL}});
}

START_TEST(later_versions_keep_their_epochs_until_something_changes)
{
    go_staged();
    publish_to_a("1", "1.1", true);
    talk_steps(t, (const struct step[]){{"begin t1 0 5", "persist 5"},
                      {"persisted 5", "t1 BEGIN_DONE 0 v5 e1"},
                      {"end t1 0 5 12", "t1 END_DONE 0 v5"}, {NULL, NULL}});
    publish_to_a("5", "1.1", false);
    /* declared again, alike: nothing changes; another process of the rank, too */
    talk_steps(t,
        (const struct step[]){{"sources t1 0 1 a:8,b:4", "t1 SOURCES_DONE 0 v0"}, {"gone t1 0", ""},
            {"open t1 0 1 77", ""}, {"sources t1 0 1 a:8,b:4 77", "t1 SOURCES_DONE 0 v0"},
            {"begin t1 0 6", "persist 6"}, {"persisted 6", "t1 BEGIN_DONE 0 v6 e1"},
            {"end t1 0 6 12", "t1 END_DONE 0 v6"}, {NULL, NULL}});
    publish_to_a("6", "1.1", false);
    /* another manifest: a new layout epoch, its number is the version's */
    talk_steps(
        t, (const struct step[]){{"sources t1 0 1 a:8,b:4,c:2 77", "t1 SOURCES_DONE 0 v0"},
               {"begin t1 0 9", "persist 9"},
               {"persisted 9", "log 4 1 source tensor is wanted by no engine and not staged: c\n"
                               "t1 LOAD_PROGRAM e9 r0 tiles 0+2/2"},
               {"plan t1 6", ""}, /* of an epoch that was */
               {"plan t1 9", "t1 BEGIN_DONE 0 v9 e9"}, {"end t1 0 9 12", "t1 END_DONE 0 v9"},
               {NULL, NULL}});
    publish_to_a("9", "9.2", true);
    /* an engine that wants what is there: a new membership epoch only */
    talk_steps(
        t, (const struct step[]){{"begin t1 0 10", "persist 10"},
               {"persisted 10", "t1 BEGIN_DONE 0 v10 e9"}, {"engine i1 B 0 1 60 b:4", ""},
               {"end t1 0 10 12", "t1 END_DONE 0 v10"},
               {"publish t1 1 10", "t1 TARGETS e9.3 0+2/2 0=A/0@10.0.0.9:7472 1=B/0@10.0.0.9:7472\n"
                                   "t1 WRITE_PROGRAM e9.3 r0 t0 0>0+12\n"
                                   "t1 WRITE_PROGRAM e9.3 r0 t1 8>0+4\n"
                                   "i1 PHASE arm A/0 u10 t1x4\ni1 PHASE arm B/0 u10 t1x4"},
               {NULL, NULL}});
}
END_TEST

START_TEST(two_trainer_ranks_and_two_engines)
{
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"up t2", ""}, {"up i1", ""}, {"up i2", ""},
            {"open t1 0 2", ""}, {"sources t1 0 2 a:8", "t1 SOURCES_DONE 0 v0"},
            {"open t2 1 2", ""}, {"sources t2 1 2 b:4", "t2 SOURCES_DONE 1 v0"},
            {"begin t1 0 1", ""}, {"engine i1 A 0 2 50 a:8,b:4", ""},
            {"engine i2 A 1 2 51 b:4,a:8", ""}, {"engine i2 B 0 1 52 a:8", ""},
            {"begin t2 1 1", "persist 1"},
            {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles 0+1/1\nt2 LOAD_PROGRAM e1 r1 tiles 0+1/1"},
            {"plan t2 1", ""}, {"plan t2 1", ""},
            {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1\nt2 BEGIN_DONE 1 v1 e1"},
            {"publish t1 3 0", ""}, /* when it is staged */
            {"end t2 1 1 4", ""}, {"end t2 1 1 4", ""},
            {"end t1 0 1 8",
                "t1 END_DONE 0 v1\nt2 END_DONE 1 v1\n"
                "t1 TARGETS e1.1 0+3/3 0=A/0@10.0.0.9:7472 1=A/1@10.9.9.2:7472 "
                "2=B/0@10.9.9.2:7472\n"
                "t1 WRITE_PROGRAM e1.1 r0 t0 0>0+8\nt1 WRITE_PROGRAM e1.1 r0 t1 0>4+8\n"
                "t1 WRITE_PROGRAM e1.1 r0 t2 0>0+8\n"
                "t2 TARGETS *\n"
                "t2 WRITE_PROGRAM e1.1 r1 t0 0>8+4\nt2 WRITE_PROGRAM e1.1 r1 t1 0>0+4\n"
                "i1 PHASE arm A/0 u1 t1x4 t2x4\ni2 PHASE arm A/1 u1 t1x4 t2x4\n"
                "i2 PHASE arm B/0 u1 t1x4"},
            /* B goes its way while A is still arming */
            {"phase i2 arm B 0 52 1", "t1 CONNECT u1 t2 tokens 3"},
            {"connected t1 1 2", "i2 PHASE pause B/0 u1"},
            {"phase i2 pause B 0 52 1", "i2 PHASE prepare B/0 u1"},
            {"phase i2 prepare B 0 52 1", "i2 PHASE open B/0 u1 8"},
            {"phase i2 open B 0 52 1", "t1 WRITE u1 t2 w1"}, {"phase i1 arm A 0 50 1", ""},
            {"phase i2 arm A 1 51 1", "t1 CONNECT u1 t0 tokens 3\nt2 CONNECT u1 t0 tokens 0\n"
                                      "t1 CONNECT u1 t1 tokens 3\nt2 CONNECT u1 t1 tokens 0"},
            {"written t1 1 2 8", "i2 PHASE close B/0 u1"},
            {"phase i2 close B 0 52 1 8", "i2 PHASE post B/0 u1"},
            {"phase i2 post B 0 52 1", "i2 PHASE activate B/0 u1"},
            {"phase i2 activate B 0 52 1", "i2 PHASE resume B/0 u1"},
            {"phase i2 resume B 0 52 1", "t1 UPDATE_END u1 t2"}, {"connected t1 1 0", ""},
            {"connected t2 1 0", ""}, {"connected t1 1 1", ""}, {"connected t1 1 1", ""},
            {"connected t2 1 1", "i1 PHASE pause A/0 u1\ni2 PHASE pause A/1 u1"},
            {"phase i2 pause A 1 51 1", ""},
            {"phase i1 pause A 0 50 1", "i1 PHASE prepare A/0 u1\ni2 PHASE prepare A/1 u1"},
            {"phase i1 prepare A 0 50 1", ""},
            {"phase i2 prepare A 1 51 1", "i1 PHASE open A/0 u1 12\ni2 PHASE open A/1 u1 12"},
            {"phase i1 open A 0 50 1", ""},
            {"phase i2 open A 1 51 1",
                "t1 WRITE u1 t0 w1\nt2 WRITE u1 t0 w1\nt1 WRITE u1 t1 w2\nt2 WRITE u1 t1 w2"},
            {"written t1 1 0 8", ""}, {"written t1 1 1 8", ""}, {"written t2 1 1 4", ""},
            {"gone t1 0", ""}, /* trainers are not needed any more */
            {"written t2 1 0 4", "i1 PHASE close A/0 u1\ni2 PHASE close A/1 u1"},
            {"phase i1 close A 0 50 1 12", ""},
            {"down t2", "log 4 trainerd t2 is gone: its connection ended"}, /* nor trainerds */
            {"phase i2 close A 1 51 1 12", "i1 PHASE post A/0 u1\ni2 PHASE post A/1 u1"},
            {"phase i1 post A 0 50 1", ""},
            {"phase i2 post A 1 51 1", "i1 PHASE activate A/0 u1\ni2 PHASE activate A/1 u1"},
            {"phase i2 activate A 1 51 1", ""},
            {"phase i1 activate A 0 50 1", "i1 PHASE resume A/0 u1\ni2 PHASE resume A/1 u1"},
            {"phase i1 resume A 0 50 1", ""},
            {"phase i2 resume A 1 51 1",
                "t1 UPDATE_END u1 t0\nt1 UPDATE_END u1 t1\n"
                "t1 RESULT 3 v1 [A live serving v1 *] [B live serving v1 *]"},
            {NULL, NULL}});
}
END_TEST

START_TEST(version_numbers)
{
    go_staged();
    talk_steps(t,
        (const struct step[]){
            {"begin t1 0 1", "t1 BEGIN_DONE 0 v1 version: version 1 can't begin: it must be larger "
                             "than 1, *"},
            {"begin t1 0 4 1", "t1 BEGIN_DONE 0 v4 unsupported: *"},
            {"publish t1 1 9", "t1 RESULT 1 v9 not found: version 9 was never begun *"},
            {"wait t1 2 9", "t1 RESULT 2 v9 not found: *"}, {"wait t1 3 1", ""},
            /* an engine has seen more than this coordinator knows of */
            {"engine i1 B 0 1 60 a:8 30", "persist 30"}, {"persisted 30", ""},
            {"begin t1 0 30", "t1 BEGIN_DONE 0 v30 version: *larger than 30*"},
            {"publish t1 4 1", "t1 TARGETS *\nt1 WRITE_PROGRAM *\ni1 PHASE arm A/0 u1 t1x4"},
            {"state i1 B 0 60 serving 31", "persist 31"}, {NULL, NULL}});
    talk_say(t, "down i1");
    talk_steps(t,
        (const struct step[]){{"publish t1 5 1", "t1 RESULT 5 v1 [A not *] [B not *] partial: *"},
            {"publish t1 6 7", "t1 RESULT 6 v7 not found: version 7 is not staged*"},
            {NULL, NULL}});
}
END_TEST

START_TEST(version_0_asks_for_the_next)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){{"begin t1 0 0", "persist 2"},
               {"persisted 2", "log 3 version 1 is given up *\nt1 ABORT *\nt1 BEGIN_DONE 0 v2 e1"},
               {"abort t1 0 2", "log 3 version 2 is given up while staging: *\nt1 ABORT 0 v2 *"},
               {"begin t1 0 0", "persist 3"},
               {"abort t1 0 0", "log 3 version 3 is given up *\nt1 BEGIN_DONE 0 v3 aborted: *"},
               {NULL, NULL}});
}
END_TEST

START_TEST(an_engine_with_a_newer_version_never_goes_back)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){{"engine i1 B 0 1 60 a:8 30", "persist 30"},
               {"publish t1 4 1",
                   "t1 TARGETS e1.1 0+1/1 0=A/0@*\nt1 WRITE_PROGRAM *\ni1 PHASE arm A/0 *"},
               {"gone t1 0", ""},
               {"state i1 A 0 50 gone 0", "log 4 engine A rank 0 on i1 (process 50) is gone\n"
                                          "log 3 engine A, update to version 1: arm: rank 0 on i1 "
                                          "(process 50): its process has "
                                          "ended\n"
                                          "t1 UPDATE_END u1 t0\n"
                                          "log 3 version 1 is live on 0 of 2 engines; not on "
                                          "engine A (gone): arm: *, engine B "
                                          "(serving): rank 0 holds version 30 already*\n"
                                          "t1 RESULT 4 v1 [A not gone v0 arm: *] [B not serving "
                                          "v30 rank 0 holds version 30 *] "
                                          "partial: *"},
               {NULL, NULL}});
}
END_TEST

START_TEST(ranks_that_disagree_on_the_version)
{
    talk_steps(t, engine_a);
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"sources t1 0 2 a:8,b:4", "t1 SOURCES_DONE 0 v0"},
            {"sources t1 1 2 a:8,b:4", "t1 SOURCES_DONE 1 v0"}, {"begin t1 0 5", ""},
            {"begin t1 0 5", ""},
            {"begin t1 1 7",
                "log 4 version 5 is given up while beginning: *\n"
                "t1 BEGIN_DONE 0 v5 version: version 5 can't begin: trainer rank 1 asks "
                "for version 7, and the larger counts"},
            {"begin t1 0 6",
                "t1 BEGIN_DONE 0 v6 version: trainer rank 0 asks to begin version 6, but "
                "other ranks ask for version 7*"},
            {"begin t1 0 7", "persist 7"}, {"begin t1 0 7", ""},
            {"begin t1 0 8", "t1 BEGIN_DONE 0 v8 state: version 7 is beginning*"},
            {"persisted 7", "t1 LOAD_PROGRAM *\nt1 LOAD_PROGRAM *"},
            {"plan t1 7", "t1 BEGIN_DONE 0 v7 e7\nt1 BEGIN_DONE 1 v7 e7"},
            {"begin t1 0 8", "t1 BEGIN_DONE 0 v8 state: version 7 is staging; end or abort it *"},
            {"end t1 0 6 1", "t1 END_DONE 0 v6 state: trainer rank 0 ends version 6, which *"},
            {NULL, NULL}});
}
END_TEST

START_TEST(what_is_staged_and_not_published_is_replaced)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){{"begin t1 0 2", "persist 2"}, {"wait t1 4 1", ""},
               {"publish t1 5 1", ""}, /* too late: the new one is being stored */
               {"persisted 2",
                   "log 3 version 1 is given up while staged: version 1 was replaced by version "
                   "2*\n"
                   "t1 ABORT -1 v1 version 1 was replaced*\n"
                   "t1 RESULT 4 v1 aborted: *replaced by version 2*\n"
                   "t1 RESULT 5 v1 aborted: *replaced by version 2*\n"
                   "t1 BEGIN_DONE 0 v2 e1"},
               {"publish t1 6 1",
                   "t1 RESULT 6 v1 aborted: version 1 was given up: *replaced by version 2*"},
               {NULL, NULL}});
}
END_TEST

START_TEST(publishing_and_staging_overlap)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){
               {"publish t1 1 1", "t1 TARGETS *\nt1 WRITE_PROGRAM *\ni1 PHASE arm *"},
               {"begin t1 0 2", ""}, /* not before trainerds know that version 1 is to be read */
               {"phase i1 arm A 0 50 1", "t1 CONNECT u1 t0 tokens 3\npersist 2"},
               {"persisted 2", "t1 BEGIN_DONE 0 v2 e1"}, {"end t1 0 2 12", "t1 END_DONE 0 v2"},
               {"publish t1 2 2", ""}, /* after version 1 */
               {"begin t1 0 3", ""},
               {"connected t1 1 0 broken", "log 3 engine A, update to version 1: connect: trainerd "
                                           "t1 to rank 0 on i1 (process "
                                           "50): broken\n"
                                           "t1 UPDATE_END u1 t0\ni1 PHASE abort A/0 u1 connect: *"},
               {"phase i1 abort A 0 50 1",
                   "log 3 version 1 is live on 0 of 1 engines*\n"
                   "t1 RESULT 1 v1 [A not serving v0 connect: *broken] partial: *\n"
                   "i1 PHASE arm A/0 u2 t1x4"},
               {"phase i1 arm A 0 50 2", "t1 CONNECT u2 t0 tokens 3\npersist 3"}, {NULL, NULL}});
}
END_TEST

START_TEST(a_new_layout_waits_for_the_publish)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){
               {"publish t1 1 1", "t1 TARGETS *\nt1 WRITE_PROGRAM *\ni1 PHASE arm *"},
               {"phase i1 arm A 0 50 1", "t1 CONNECT u1 t0 tokens 3"},
               {"sources t1 0 1 a:8,b:4,c:4", "t1 SOURCES_DONE 0 v0"}, {"begin t1 0 2", ""},
               {"connected t1 1 0", "i1 PHASE pause A/0 u1"},
               {"time 60000",
                   "log 4 version 2 is given up while beginning: begin of version 2 waited 60.0 s "
                   "for the update to version 1, *\n"
                   "t1 BEGIN_DONE 0 v2 timeout: *"},
               {"begin t1 0 2", ""},
               {"state i1 A 0 50 gone 0",
                   "log 4 *\nlog 3 *\nt1 UPDATE_END u1 t0\nlog 3 *\nt1 RESULT *"},
               {"engine i1 A 0 1 51 a:8,b:4", "persist 2"},
               {"persisted 2", "log 4 1 source tensor *\nt1 LOAD_PROGRAM e2 *"}, {NULL, NULL}});
}
END_TEST

START_TEST(engines_that_do_not_fit)
{
    talk_steps(t, one_rank);
    talk_steps(t,
        (const struct step[]){{"up i1", ""}, {"engine i1 X 0 1 60 a:8,zz:4", ""},
            /* the only engine does not fit: no plan, the number stays free */
            {"begin t1 0 1", "log 4 version 1 is given up while beginning: *\n"
                             "t1 BEGIN_DONE 0 v1 plan: engine X rank 0: parameter zz *"},
            {"engine i1 A 0 1 50 a:8,b:4", ""},
            {"begin t1 0 1", "log 4 1 of 2 engines do not fit and are left out: engine X rank 0: "
                             "parameter zz *\npersist 1"},
            {"persisted 1", "t1 LOAD_PROGRAM *"}, {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"},
            {"engine i1 J 0 1 70 b:5", ""}, {"half i1 H 0 1 80", ""},
            {"end t1 0 1 12", "t1 END_DONE 0 v1"},
            {"publish t1 1 1", "t1 TARGETS e1.1 0+1/1 *\nt1 WRITE_PROGRAM *\ni1 PHASE arm A/0 *"},
            {"state i1 A 0 50 gone 0",
                "log 4 *\nlog 3 *\nt1 UPDATE_END u1 t0\nlog 3 *\n"
                "t1 RESULT 1 v1 [A not gone v0 *] [X not serving v0 engine X rank 0: parameter zz "
                "*] "
                "[J not serving v0 engine J rank 0: parameter b is U8 [5]*] "
                "[H not incomplete v0 rank 0 on i1 has sent 0 of 2 parameters] partial: *"},
            /* X is known not to fit: no new plan for it; but J was not looked at yet */
            {"engine i1 A 0 1 51 a:8,b:4", ""},
            {"begin t1 0 2", "log 4 2 of 3 engines do not fit *\npersist 2"},
            {"persisted 2", "t1 LOAD_PROGRAM e2 *"}, {"plan t1 2", "t1 BEGIN_DONE 0 v2 e2"},
            {"end t1 0 2 12", "t1 END_DONE 0 v2"}, {"begin t1 0 3", "persist 3"}, {NULL, NULL}});
}
END_TEST

START_TEST(two_engines_of_one_name)
{
    char *status;

    talk_steps(t, one_rank);
    talk_steps(
        t, (const struct step[]){{"up i1", ""}, {"up i2", ""}, {"engine i1 A 0 1 50 a:8,b:4", ""},
               {"engine i2 A 0 1 51 a:8,b:4",
                   "log 4 engine A rank 0 on i2 (process 51) is ignored: engine A "
                   "rank 0 is registered by process 50 on i1 already; *"},
               {"engine i2 A 0 2 52 a:8,b:4",
                   "log 4 engine A rank 0 on i2 (process 52) is ignored: it says "
                   "that its engine has 2 ranks, but rank 0 on i1, *"},
               {"begin t1 0 1", "persist 1"}, {"persisted 1", "t1 LOAD_PROGRAM *"},
               {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"}, {"end t1 0 1 12", "t1 END_DONE 0 v1"},
               {NULL, NULL}});
    status = talk_status(t);
    ck_assert_ptr_nonnull(strstr(status, "\"ignored\":[{\"host\":\"i2\""));
    free(status);
    talk_steps(
        t, (const struct step[]){{"engine i2 A 0 1 53 a:8,b:4", "log 4 *is ignored*"},
               {"state i1 A 0 50 gone 0", "log 4 engine A rank 0 on i1 (process 50) is gone"},
               /* the one that waited has the name now */
               {"publish t1 1 1", "t1 TARGETS e1.1 0+1/1 0=A/0@10.9.9.2:7472\nt1 WRITE_PROGRAM *\n"
                                  "i2 PHASE arm A/0 *"},
               {NULL, NULL}});
}
END_TEST

START_TEST(trainer_worlds_and_ranks_in_conflict)
{
    talk_steps(t, engine_a);
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"up t2", ""}, {"open t1 0 2", ""},
            {"sources t1 0 2 a:8,b:4", "t1 SOURCES_DONE 0 v0"},
            {"open t2 0 2 99", "log 4 trainer rank 0 is held by process 10 on t1; *"},
            {"sources t2 0 2 a:8 99",
                "t2 SOURCES_DONE 0 v0 exists: trainer rank 0 is held by process 10 "
                "on t1; *"},
            {"open t2 1 3",
                "log 4 trainer rank 1 says that the world has 3 ranks, but rank 0 (process 10 "
                "on t1) has opened a world of 2; *"},
            {"sources t2 1 3 a:8", "t2 SOURCES_DONE 1 v0 state: *world*"},
            {"sources t2 5 2 a:8", "t2 SOURCES_DONE 5 v0 invalid: *"},
            {"begin t2 0 1", "t2 BEGIN_DONE 0 v1 state: trainer rank 0 is not opened here*"},
            {"open t2 1 2", ""}, {"begin t2 1 1", "t2 BEGIN_DONE 1 v1 state: *has not declared*"},
            {"gone t1 0", ""}, {"gone t2 1", ""},
            /* nobody of the old world is left: another size may come */
            {"sources t2 0 1 a:8,b:4 99", "t2 SOURCES_DONE 0 v0"}, {"gone t1 0", ""},
            {"begin t2 0 1", "persist 1"}, {"persisted 1", "t2 LOAD_PROGRAM *"}, {NULL, NULL}});
}
END_TEST

START_TEST(manifests_in_parts)
{
    talk_steps(
        t, (const struct step[]){{"up t1", ""}, {"part t1 0 1 0 3 a:8", ""},
               {"part t1 0 1 1 3 b:4", ""},
               {"begin t1 0 1", "t1 BEGIN_DONE 0 v1 state: *has not declared*"},
               {"part t1 0 1 2 3 c:4", "t1 SOURCES_DONE 0 v0"}, {"part t1 0 1 0 3 a:8", ""},
               {"part t1 0 1 2 3 b:4",
                   "log 3 trainerd t1 is disconnected: trainer rank 0: a part of a "
                   "manifest *\nclose t1: *"},
               {"begin t1 0 1", ""}, /* deaf from now on */
               {"down t1", ""}, {"up t1", ""},
               {"part t1 0 1 1 3 b:4", "log 3 *without the first one\nclose t1: *"},
               {"down t1", ""}, {"up t1", ""}, {"part t1 0 1 0 3 a:8", ""}, {"time 29000", ""},
               {"time 1000",
                   "log 3 trainerd t1 is disconnected: of the sources of trainer rank 0 only 1 *\n"
                   "close t1: *"},
               {"up i1", ""}, {"half i1 A 0 1 50", ""},
               {"time 30000",
                   "log 3 inferd i1 is disconnected: of the 2 parameters of engine A rank 0 only "
                   "0 *\nclose i1: *"},
               {NULL, NULL}});
    ck_assert_uint_eq(talk_deadline(t), UINT64_MAX);
}
END_TEST

START_TEST(aliases_are_compared)
{
    talk_steps(t,
        (const struct step[]){{"up t1", ""}, {"up i1", ""},
            {"sources t1 0 1 a:8,lm:8", "t1 SOURCES_DONE 0 v0"},
            {"engine i1 A 0 1 50 a:8,lm=a", ""}, {"begin t1 0 1", "persist 1"},
            {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles 0+1/1"},
            {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"},
            {"end t1 0 1 8 0:0:5",
                "t1 END_DONE 0 v1 state: trainer rank 0 has not put all of a and lm*"},
            {"end t1 0 1 8 0:0:5,0:1:5,3:3:9", "t1 END_DONE 0 v1"}, {"begin t1 0 2", "persist 2"},
            {"persisted 2", "log 3 *replaced*\nt1 ABORT -1 v1 *\nt1 BEGIN_DONE 0 v2 e1"},
            {"end t1 0 2 8 0:0:5,0:1:6",
                "log 3 version 2 is given up while staging: source tensors a and lm differ*\n"
                "t1 END_DONE 0 v2 invalid: source tensors a and lm differ*\nt1 ABORT -1 v2 *"},
            {"publish t1 1 2", "t1 RESULT 1 v2 aborted: *a and lm differ*"},
            {"begin t1 0 3", "persist 3"}, {NULL, NULL}});
}
END_TEST

START_TEST(publish_without_an_engine_keeps_the_version)
{
    go_staged();
    talk_steps(
        t, (const struct step[]){{"state i1 A 0 50 gone 0", "log 4 *"}, {"wait t1 1 0", ""},
               {"publish t1 2 0",
                   "log 3 version 1 can't be published: no engine is registered; it stays *\n"
                   "t1 RESULT 1 v1 state: *\nt1 RESULT 2 v1 state: *"},
               {"half i1 B 0 2 50", ""},
               {"publish t1 3 1",
                   "log 3 *\nt1 RESULT 3 v1 state: version 1 can't be published: no engine is "
                   "complete and fits; it stays staged (engine B: rank 0 on i1 has sent 0 *"},
               {"engine i1 A 0 1 51 a:8,b:4", ""},
               {"publish t1 4 1", "t1 TARGETS *\nt1 WRITE_PROGRAM *\ni1 PHASE arm A/0 *"},
               {NULL, NULL}});
}
END_TEST

START_TEST(nothing_to_publish)
{
    talk_steps(t, one_rank);
    talk_steps(
        t, (const struct step[]){{"publish t1 1 0", "t1 RESULT 1 v0 state: nothing is staged*"},
               {"wait t1 2 0", "t1 RESULT 2 v0 state: *"}, {NULL, NULL}});
}
END_TEST

START_TEST(an_engine_without_bytes_goes_through)
{
    talk_steps(
        t, (const struct step[]){{"up t1", ""}, {"up i1", ""},
               {"sources t1 0 1 a:0", "t1 SOURCES_DONE 0 v0"}, {"engine i1 A 0 1 50 a:0", ""},
               {"begin t1 0 1", "persist 1"}, {"persisted 1", "t1 LOAD_PROGRAM e1 r0 tiles 0+0/0"},
               {"plan t1 1", "t1 BEGIN_DONE 0 v1 e1"}, {"end t1 0 1 0", "t1 END_DONE 0 v1"},
               {"publish t1 1 1", "t1 TARGETS *\ni1 PHASE arm A/0 u1"},
               {"phase i1 arm A 0 50 1", "i1 PHASE pause A/0 u1"},
               {"phase i1 pause A 0 50 1", "i1 PHASE prepare A/0 u1"},
               {"phase i1 prepare A 0 50 1", "i1 PHASE open A/0 u1 0"},
               {"phase i1 open A 0 50 1", "i1 PHASE close A/0 u1"},
               {"phase i1 close A 0 50 1 0", "i1 PHASE post A/0 u1"},
               {"phase i1 post A 0 50 1", "i1 PHASE activate A/0 u1"},
               {"phase i1 activate A 0 50 1", "i1 PHASE resume A/0 u1"},
               {"phase i1 resume A 0 50 1", "t1 RESULT 1 v1 [A live serving v1]"}, {NULL, NULL}});
}
END_TEST

START_TEST(after_a_restart_others_get_time_to_return)
{
    talk_free(t);
    t = talk_new(40);
    talk_steps(t, one_rank);
    talk_steps(
        t, (const struct step[]){{"begin t1 0 40", "t1 BEGIN_DONE 0 v40 version: *larger than 40*"},
               {"up i1", ""}, {"engine i1 A 0 1 50 a:8,b:4 40", ""},
               {"publish t1 1 40", "t1 RESULT 1 v40 [A live serving v40]"},
               {"publish t1 2 39",
                   "t1 RESULT 2 v39 version: version 39 can't be published: version 40 *"},
               {"begin t1 0 41", ""}, {"time 4999", ""}, {"time 1", "persist 41"}, {NULL, NULL}});
    talk_free(t);
    t = talk_new(40);
    talk_steps(t, one_rank);
    talk_steps(t, engine_a);
    talk_say(t, "begin t1 0 41");
    ck_assert_uint_eq(talk_deadline(t), 5000);
}
END_TEST

START_TEST(status_tells_everything)
{
    static const char *const wanted[] = {"\"group\":\"g\"", "\"last_version\":1",
        "\"live_version\":1", "\"layout_epoch\":1", "\"state\":\"live\"", "\"name\":\"A\"",
        "\"live\":true", "\"transport\":\"tcp\"", "\"role\":\"inferd\"", "\"sources\":2",
        "\"publishing\":null", "\"version\":1"};
    char *status;

    go_staged();
    publish_to_a("1", "1.1", true);
    status = talk_status(t);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        ck_assert_msg(strstr(status, wanted[i]), "%s is not in %s", wanted[i], status);
    free(status);
}
END_TEST

START_TEST(history_keeps_ten)
{
    char in[64];

    go_staged();
    publish_to_a("1", "1.1", true);
    for (int v = 2; v <= 12; v++) {
        snprintf(in, sizeof(in), "begin t1 0 %d", v);
        talk_say(t, in);
        snprintf(in, sizeof(in), "persisted %d", v);
        talk_say(t, in);
        snprintf(in, sizeof(in), "abort t1 0 %d", v);
        talk_say(t, in);
    }
    talk_steps(t, (const struct step[]){{"publish t1 1 3", "t1 RESULT 1 v3 aborted: *had*"},
                      {"publish t1 2 2", "t1 RESULT 2 v2 not found: *"},
                      {"publish t1 3 1", "t1 RESULT 3 v1 [A live serving v1]"}, {NULL, NULL}});
}
END_TEST

START_TEST(strange_messages_end_the_connection)
{
    talk_steps(t,
        (const struct step[]){{"up i1 unnamed", ""},
            {"engine i1 A 0 1 50 a:8",
                "log 3 inferd i1 is disconnected: it sent ENGINE_RANK before it *\n"
                "close i1: *"},
            {"down i1", ""}, {"up i1", ""}, {"raw i1 BEGIN", "log 3 *it sent BEGIN*\nclose i1: *"},
            {"up t1", ""}, {"raw t1 PHASE_DONE", "log 3 *it sent PHASE_DONE*\nclose t1: *"},
            {"up t2", ""}, {"engine i1 A 0 1 50 a:8", ""}, {"down i1", ""}, {"up i1", ""},
            {"engine i1 A 3 2 50 a:8", "log 3 *registered engine 'A' rank 3 of 2 *\nclose i1: *"},
            {"up t2", "log 3 trainerd t2 is disconnected: it has connected again\nclose ?: *"},
            {NULL, NULL}});
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_version_reaches_one_engine,
        a_new_layout_replaces_a_staged_version,
        later_versions_keep_their_epochs_until_something_changes, two_trainer_ranks_and_two_engines,
        version_numbers, version_0_asks_for_the_next,
        an_engine_with_a_newer_version_never_goes_back, ranks_that_disagree_on_the_version,
        what_is_staged_and_not_published_is_replaced, publishing_and_staging_overlap,
        a_new_layout_waits_for_the_publish, engines_that_do_not_fit, two_engines_of_one_name,
        trainer_worlds_and_ranks_in_conflict, manifests_in_parts, aliases_are_compared,
        publish_without_an_engine_keeps_the_version, nothing_to_publish,
        an_engine_without_bytes_goes_through, after_a_restart_others_get_time_to_return,
        status_tells_everything, history_keeps_ten, strange_messages_end_the_connection};
    Suite *suite = suite_create("coordinator");
    TCase *tcase = tcase_create("conversations");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tcase, setup, teardown);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
