#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What engines, trainers and layout folders may say wrong, and unusual things that they may say
right: each wrong thing is refused by name, in one line of the coordinator's log, while all others
get their weights, right to the last byte by the NumPy oracle.

    test_layout_input.py [CLASS]

Needs NumPy, like test_layouts.py.
"""
import json
import os
import shutil
import unittest

from harness import Process, arguments_of, binary
from layout_case import ERROR, LAYOUTS, Engine, LayoutCase, make_small

Q = "model.layers.0.self_attn.q_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"
NORM = "model.norm.weight"
EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"
FP8 = (64, 64)


# ---- what an engine declares ----

def put(name, dtype, *shape):
    def change(parameters):
        parameters[name] = dtype, shape
    return change


def retype(name, dtype):
    return lambda parameters: parameters.update({name: (dtype, parameters[name][1])})


def quantised(parameters):
    for name, (_, shape) in list(parameters.items()):
        if name.endswith("_proj.weight"):
            parameters[name] = "F8_E4M3", shape
            parameters[name + "_scale_inv"] = "F32", tuple(-(-n // 64) for n in shape)


def slots(number):
    def change(parameters):
        for name, (dtype, shape) in list(parameters.items()):
            if ".mlp.experts." in name:
                parameters[name] = dtype, (number, *shape[1:])
    return change


class Engines(LayoutCase):
    """One of two engines is wrong: it is told so with each version, and the other one is updated."""

    family = "qwen3"
    good = Engine(tp=2)

    def setUp(self):
        super().setUp()
        self.start()
        self.start_engine(self.family, self.good, "good")
        self.train(family=self.family)

    def odd(self, **how):
        return self.scripted("odd", self.family, **how)

    def end(self, engine):
        engine.end()
        self.cluster.wait_status(
            lambda s: all(r["engine"] != "odd" for r in s["ranks"]), "end of the engine",
            self.cluster.inferd_socket)

    def version_with(self, engine, kind):
        """A version goes to the good engine; what was said about the other."""
        self.wait_known("odd")
        version, folder = self.next(self.family)
        (t,) = self.ranks(folder, 1)
        self.ask(t, "declare", f"begin {version}", "put-rest", "end 0", f"publish {version}")
        said = self.ask(t, f"wait {version} 0", kind=kind)
        self.close([t])
        self.check(version)
        if kind == "ok":
            engine.wait_line(f"^live {version}$")
        return said

    def misfits(self, *texts, **how):
        """Registered, but in no plan."""
        with self.subTest(texts=texts):
            marks = self.cluster.trainerd.mark(), self.cluster.inferd.mark()
            engine = self.odd(**how)
            self.assertEqual(engine.register(), "registered")
            said = self.version_with(engine, "error")
            for text in ("engine odd", "1 of 2 engines", *texts):
                self.assertIn(text, said)
            self.one_error(self.cluster.trainerd, marks[0], "odd")
            self.no_error(self.cluster.inferd, marks[1])
            self.assertEqual(engine.count("^live"), 0)
            self.end(engine)

    def refused(self, *texts, **how):
        """Not even registered."""
        with self.subTest(texts=texts):
            mark = self.cluster.trainerd.mark()
            engine = self.odd(**how)
            said = engine.register()
            for text in ("refused: ", *texts):
                self.assertIn(text, said)
            self.no_error(self.cluster.trainerd, mark)
            engine.end()

    def fits(self, **how):
        with self.subTest(**{k: str(v) for k, v in how.items()}):
            engine = self.odd(**how)
            self.assertEqual(engine.register(), "registered")
            self.version_with(engine, "ok")
            self.end(engine)


class Parameters(Engines):
    def test_shapes(self):
        self.misfits(f"'{NORM}' (rule base.inc:", "expected shape [256]", "found [255]",
                     wanted=put(NORM, "BF16", 255))
        self.misfits(f"'{NORM}'", "expected shape [256]", "found [16, 16]",
                     wanted=put(NORM, "BF16", 16, 16))
        self.misfits("expected shape [384, 256] at tp 0 of 3", "found [1024, 256]",
                     lines=["tp 0 3"])
        self.misfits(f"'{EMBED}'", "expected shape [1024, 512]", "found [1024, 256]",
                     hidden_size=512)

    def test_names(self):
        self.misfits("'model.layers.0.mlp.extra.weight'", "no rule", "[derived]",
                     wanted=put("model.layers.0.mlp.extra.weight", "BF16", 4))
        self.misfits("'model.layers.7.mlp.down_proj.weight'", "mlp.inc:",
                     wanted=put("model.layers.7.mlp.down_proj.weight", "BF16", 256, 768))

    def test_types(self):
        self.misfits(f"'{NORM}'", "expected BF16, F16 or F32, found I32", wanted=retype(NORM, "I32"))
        self.misfits(f"'{NORM}'", "found F8_E4M3", wanted=retype(NORM, "F8_E4M3"),
                     lines=["block 64 64"])
        self.misfits("qkv_proj.weight'", "block size and scale format, found none", wanted=quantised)
        self.misfits(f"'{DOWN}'", "found U8", wanted=retype(DOWN, "U8"))
        self.refused("scale format 'int8'", "fp32 and ue8m0", lines=["block 64 64", "scale int8"])
        self.refused("FP8 blocks of 64 x 0", lines=["block 64 0"])

    def test_formats_that_are_not_done(self):
        gate = "model.layers.0.mlp.gate_up_proj."
        self.misfits(f"'{gate}qweight'", "INT4", wanted=put(gate + "qweight", "I32", 32, 1536))
        self.misfits(f"'{gate}weight_packed'", "NVFP4",
                     wanted=put(gate + "weight_packed", "U8", 1536, 128))
        self.misfits(f"'{DOWN}'", "MXFP4", wanted=retype(DOWN, "F4"))
        for method in ("awq", "gptq", "mxfp4", "compressed-tensors"):
            self.misfits(f"quant_method is '{method}'", quantization_config={"quant_method": method})

    def test_left_out(self):
        """The engine makes it itself: in no plan, and no fault."""
        mark = self.cluster.trainerd.mark()
        self.fits(wanted=put("model.layers.0.self_attn.attn.k_scale", "F32"))
        self.cluster.trainerd.wait_line("info: 1 parameter is left out of the plan", since=mark)

    def test_casts(self):
        """Every float type, in one engine."""
        def mixed(parameters):
            for i, (name, (_, shape)) in enumerate(list(parameters.items())):
                if "qkv" not in name and name not in (EMBED, HEAD):
                    parameters[name] = ("F32", "F16", "BF16")[i % 3], shape
        self.fits(wanted=mixed)


class Configs(Engines):
    def test_layouts(self):
        self.misfits("there is no layout nope; there are: deepseek, ", layout="nope")
        self.misfits("architecture FooForCausalLM", "qwen3",
                     text='{"architectures": ["FooForCausalLM"]}')
        self.misfits("its config.json names none", text="{}")
        self.misfits(r"architecture A\nB\x1b[31m; there are", text=json.dumps(
            {"architectures": ["A\nB\x1b[31m"]}))
        self.misfits("AAA...; there are: deepseek", text=json.dumps({"architectures": ["A" * 10_000]}))
        self.refused("without its folder", layout="../qwen3")
        self.refused("kind trt", "sglang and vllm", lines=["kind trt"])

    def test_texts(self):
        self.misfits("config.json:2:", "JSON", text='{"a": 1,\n "b": }')
        self.misfits("config.json:1:1: expected an object", text="[1]")
        self.misfits("config.json", text='{"a": 1, "a": 2}')
        self.misfits("config.json", text="[" * 100_000)
        self.misfits("'vocab_size'", "base.inc:",
                     text='{"architectures": ["Qwen3ForCausalLM"], "hidden_size": 256}')
        self.misfits("'hidden_size' = -5", hidden_size=-5)
        self.misfits("a whole number", "'hidden_size'", hidden_size="256")
        self.misfits("num_hidden_layers", "999999999", num_hidden_layers=10 ** 9)
        self.misfits("gqa.inc:", "division by zero", num_attention_heads=0, head_dim=None)
        self.refused("config.json", "262144", text=json.dumps({"x": "y" * 300_000}))

    def test_sizes(self):
        self.refused("tp 2/2", "less than its size", lines=["tp 2 2"])
        self.refused("tp 4 is no multiple of ep 3", lines=["tp 0 4", "ep 0 3"])
        self.refused("attn_tp 5/4", lines=["tp 0 8", "attn_tp 5 4"])


class Experts(Engines):
    family = "qwen3-moe"
    good = Engine(tp=2, ep=2)

    def test_maps(self):
        self.fits(lines=["map 1 1 8 7 6 5 4 3 2 1 0"])
        self.fits(lines=["map 9 1 10 7 6 5 4 3 2 1 0 0 7"], wanted=slots(10))
        self.fits(lines=["map 3 3 8 " + "0 1 2 3 4 5 6 7 " * 3])
        self.refused("layer 0 slot 3 holds expert 4294967295", lines=[
            "map 1 1 8 7 6 5 4294967295 3 2 1 0"])
        self.misfits("w13_weight'", "8 in layer 0, slot 7: expected an expert from 0 to 7",
                     lines=["map 1 1 8 7 6 5 4 3 2 1 8"])
        self.misfits("w13_weight'", "expected shape [6, 512, 256]", "found [8, 512, 256]",
                     lines=["map 1 1 6 5 4 3 2 1 0"])
        self.misfits("2 layers: expected one for layer 2",
                     lines=["map 1 2 8 " + "0 1 2 3 4 5 6 7 " * 2])
        self.refused("at least 1", lines=["map 0 1 8 0 1 2 3 4 5 6 7"])
        self.refused("version 3", "no map came", lines=["map 3 0 0"])
        self.refused("160000 numbers", "131072", lines=["map 1 20000 8"])

    def test_expert_that_nobody_has(self):
        self.misfits("expert 0 is in no slot", "(version 1)", "experts.0.", "moe.inc:",
                     lines=["map 1 1 8 7 6 5 4 3 2 1 1"])


# ---- what trainers hold ----

class Trainers(LayoutCase):
    def setUp(self):
        super().setUp()
        self.start()
        self.start_engine("qwen3", Engine(tp=2), "plain")
        self.start_engine("qwen3", Engine(tp=4, fp8=FP8), "fp8")
        self.train(2)

    def refused(self, command, *texts, declare=None):
        """Rank 1 of two says something that can't be; both are told."""
        with self.subTest(command=command):
            version, folder = self.next()
            trainers = self.ranks(folder, 2)
            self.ask(trainers[1], command)
            mark = self.cluster.trainerd.mark()
            said = self.all(trainers, "declare", kind=None)
            if not declare:
                said = self.all(trainers, f"begin {version}", kind="error")
            for text in texts:
                self.assertIn(text, said[1])
            lines = [line for line in self.cluster.trainerd.lines[mark:]
                     if ERROR in line or " warning: version" in line]
            self.assertLessEqual(len(lines), 1, lines)
            self.close(trainers)
            self.check(version - 1, wait=False)
            self.version -= 1 # it was not begun
            self.train(2)

    def test_boxes(self):
        self.refused(f"box {Q} 300 212", "no trainer rank holds", Q, "256")
        self.refused(f"skip {Q}", "no trainer rank holds", Q, "256")
        self.refused(f"box {Q} 256 257", Q, "512", declare=True)
        self.refused(f"as {Q} F32", Q, "rank 0", "rank 1", "F32", "BF16")

    def test_tensor_that_nobody_has(self):
        version, folder = self.next()
        trainers = self.ranks(folder, 2, ("rows", f"skip {Q}"))
        self.all(trainers, "declare")
        for said in self.all(trainers, f"begin {version}", kind="error"):
            self.assertIn(Q, said)
            self.assertIn("no trainer rank holds it", said)
            self.assertRegex(said, r"rule \w+\.\w+:\d+")
        self.close(trainers)
        self.train(2)

    def test_other_shape(self):
        """The checkpoint contradicts config.json: parameter, both shapes and the rule are named."""
        config = self.config("qwen3")
        tensors = make_small.random_tensors(config, seed=5)
        tensors[DOWN] = "BF16", (256, 700), tensors[DOWN][2][:256 * 700 * 2]
        version, folder = self.next(tensors=tensors)
        (t,) = self.ranks(folder, 1, ())
        self.ask(t, "declare")
        said = self.ask(t, f"begin {version}", kind="error")
        for text in (DOWN, "256, 700", "256, 768", "mlp.inc:"):
            self.assertIn(text, said)
        self.close([t])
        self.train(2)

    def test_overlapping_boxes(self):
        for command in (f"box {Q} 0 512", f"box {Q} 100 412", f"box {DOWN} 1 255"):
            with self.subTest(command=command):
                version, folder = self.next()
                trainers = self.ranks(folder, 2)
                self.ask(trainers[1], command)
                self.all(trainers, "declare", f"begin {version}", "put-rest", "end 0")
                self.ask(trainers[1], f"publish {version}", f"wait {version} 0")
                self.close(trainers)
                self.check(version)

    def test_tensor_that_no_rule_knows(self):
        config = self.config("qwen3")
        tensors = make_small.random_tensors(config, seed=6)
        tensors["model.layers.0.mystery.weight"] = "BF16", (4, 4), bytes(32)
        mark = self.cluster.trainerd.mark()
        self.train(2, tensors=tensors)
        self.cluster.trainerd.wait_line(
            r"warning: 1 source tensor is wanted by no engine.*mystery", since=mark)
        self.no_error(self.cluster.trainerd, mark)


class Draft(LayoutCase):
    def test_checkpoint_without_draft(self):
        """The engine that holds draft layers is left out by name; the other one goes."""
        self.start()
        self.start_engine("deepseek-v3", Engine(tp=2, ep=2), "plain")
        config = self.config("deepseek-v3")
        folder = self.checkpoint(config, {}, "model-draft")
        engine = Engine(tp=2, ep=2, draft=True)
        self.cluster.start_world(folder, 2, "draft", **engine.options(self.cluster.folder))
        self.wait_known("draft")
        tensors = {name: value for name, value in
                   make_small.random_tensors(config, seed=1).items()
                   if not name.startswith("model.layers.3.")}
        version, folder = self.next("deepseek-v3", tensors=tensors)
        trainers = self.ranks(folder, 2)
        mark = self.cluster.trainerd.mark()
        self.all(trainers, "declare", f"begin {version}", "put-rest", "end 0")
        self.ask(trainers[0], f"publish {version}")
        said = self.ask(trainers[0], f"wait {version} 0", kind="error")
        self.assertRegex(said, r"engine draft rank \d: parameter draft/\S+ is made of "
                               r"model\.layers\.3\.\S+ by rule \S+:\d+, but no trainer rank holds it")
        self.one_error(self.cluster.trainerd, mark, "draft")
        self.close(trainers)
        self.check(version)
        # The next checkpoint has them: both engines.
        self.engines.append((engine, [p for p in self.cluster.processes if p.name[:5] == "draft"]))
        self.train(2, family="deepseek-v3")


class Tied(LayoutCase):
    """Embedding and head are one storage; checkpoints have both, or one."""

    def tensors(self, family, seed, head):
        config = self.config(family)
        tensors = make_small.random_tensors(config, seed=seed)
        if head is None:
            tensors.pop(HEAD, None)
            return tensors
        dtype, shape, data = tensors[EMBED]
        data = bytearray(data)
        if head == "other":
            data[-1] ^= 1
        tensors[HEAD] = dtype, shape, bytes(data)
        return tensors

    def good(self, family, world, head, how=("rows",)):
        self.train(world, how, family=family, tensors=self.tensors(family, self.version, head))

    def differ(self, family, world, how=()):
        version, folder = self.next(family, tensors=self.tensors(family, self.version, "other"))
        trainers = self.ranks(folder, world)
        for t, commands in zip(trainers, how):
            self.ask(t, *commands)
        mark = self.cluster.trainerd.mark()
        self.all(trainers, "declare", f"begin {version}", "put-rest")
        for said in self.all(trainers, "end 0", kind="error"):
            self.assertIn(EMBED, said)
            self.assertIn(HEAD, said)
            self.assertIn("differ", said)
        self.one_error(self.cluster.trainerd, mark, EMBED)
        self.close(trainers)
        self.check(version - 1, wait=False)

    def family(self, family, *engines, compared=True):
        self.start()
        for i, engine in enumerate(engines):
            self.start_engine(family, engine, f"e{i}")
        for world in (1, 3):
            for head in ("same", None):
                with self.subTest(world=world, head=head):
                    self.good(family, world, head)
            with self.subTest(world=world, head="other"):
                if not compared:
                    continue
                self.good(family, world, "same")
                self.differ(family, world)
                self.good(family, world, "same")

    def test_qwen3(self):
        self.family("qwen3", Engine(tp=2), Engine(kind="vllm", tp=4))

    def test_llama(self):
        self.family("llama-tied", Engine(tp=1))

    def test_stages(self):
        """The last stage has a head of its own: no storage has two names."""
        self.family("qwen2", Engine(tp=2, pp=2), compared=False)

    def test_other_boxes(self):
        """What can't be compared is refused; one of the two is enough."""
        self.start()
        self.start_engine("qwen3", Engine(tp=2))
        whole = ((f"box {HEAD} 0 999",), (f"skip {HEAD}",), (f"skip {HEAD}",))
        shifted = ((f"box {HEAD} 0 400",), (f"box {HEAD} 400 100",), (f"box {HEAD} 500 499",))
        equal = ((f"box {HEAD} 0 999", f"box {EMBED} 0 999"), (f"skip {HEAD}", f"skip {EMBED}"),
                 (f"skip {HEAD}", f"box {EMBED} 0 999"))
        alone, other = ((f"skip {HEAD}",),) * 3, ((f"skip {EMBED}",),) * 3
        for how, good in ((whole, False), (shifted, False), (equal, True), (alone, True),
                          (other, True)):
            with self.subTest(how=how):
                version, folder = self.next(tensors=self.tensors("qwen3", self.version, "same"))
                trainers = self.ranks(folder, 3)
                for t, commands in zip(trainers, how):
                    self.ask(t, *commands)
                self.all(trainers, "declare")
                if good:
                    self.all(trainers, f"begin {version}", "put-rest", "end 0")
                    self.ask(trainers[0], f"publish {version}", f"wait {version} 0")
                    self.close(trainers)
                    self.check(version)
                    continue
                for said in self.all(trainers, f"begin {version}", kind="error"):
                    self.assertIn(f"{HEAD} and {EMBED} share one storage", said)
                    self.assertIn("different boxes", said)
                self.close(trainers)
        self.differ("qwen3", 3, equal)
        self.good("qwen3", 3, "same")


# ---- several engines ----

class Mixed(LayoutCase):
    def staged(self, **model):
        """A version that is not published yet: publishing ends with the checks."""
        version, folder = self.next(**model)
        trainers = self.ranks(folder, 3)
        self.all(trainers, "declare", f"begin {version}", "put-rest", "end 0")

        def publish():
            self.ask(trainers[0], f"publish {version}", f"wait {version} 0")
            self.close(trainers)
            self.check(version)
        return publish

    def test_dense(self):
        """Kinds, sizes and formats of all sorts at the same time; one that comes after staging is in
        the publish when the others' bytes are all that it needs."""
        self.start()
        self.start_engine("qwen3", Engine(tp=2, fp8=FP8), "a")
        self.start_engine("qwen3", Engine(kind="vllm", tp=4), "b")
        self.start_engine("qwen3", Engine(tp=1, fp8=(128, 128), scale="ue8m0"), "c")
        self.train(3)
        publish = self.staged()
        self.start_engine("qwen3", Engine(tp=2, fp8=FP8), "late")
        publish()
        self.start_engine("qwen3", Engine(kind="vllm", tp=2, pp=2, fp8=FP8), "new")
        self.train(2)
        self.train(2)

    def test_experts(self):
        """Another expert map joins, then a third one replaces it."""
        family = {"family": "qwen3-moe"}
        self.start()
        self.start_engine("qwen3-moe", Engine(tp=2, ep=2), "a")
        self.start_engine("qwen3-moe", Engine(kind="vllm", tp=2, dp=2, ep=4), "b")
        self.train(3, **family)
        publish = self.staged(**family)
        self.start_engine("qwen3-moe", Engine(
            tp=2, ep=2, experts=[3, 0, 1, 2, 7, 4, 5, 6, 0, 7, 3, 1]), "c")
        publish()
        self.train(2, style="packed", **family)
        for p in self.engines.pop()[1]:
            p.end()
        publish = self.staged(**family)
        self.start_engine("qwen3-moe", Engine(
            tp=2, ep=2, experts=[7, 6, 5, 4, 3, 2, 1, 0]), "d")
        publish()

    def test_two_models(self):
        """Names of both are known to nobody else: one engine at most can be served."""
        self.start()
        self.start_engine("qwen3", Engine(tp=2), "a")
        other = self.start_engine("llama", Engine(tp=1), "b")
        self.engines.pop()
        version, folder = self.next()
        (t,) = self.ranks(folder, 1)
        mark = self.cluster.trainerd.mark()
        self.ask(t, "declare", f"begin {version}", "put-rest", "end 0", f"publish {version}")
        said = self.ask(t, f"wait {version} 0", kind="error")
        self.assertIn("engine b rank 0: parameter ", said)
        self.one_error(self.cluster.trainerd, mark, "engine b")
        self.close([t])
        self.check(version)
        self.assertEqual(other[0].count("^live version=[1-9]"), 0)


# ---- folders ----

class Folder(LayoutCase):
    def copy(self):
        folder = os.path.join(self.cluster.folder, "layouts")
        shutil.copytree(LAYOUTS, folder)
        return folder

    def refused(self, folder, *texts):
        c = self.cluster
        options = {"group": c.group, "socket": os.path.join(c.folder, "x.sock"), "port": 0,
                   "state_dir": c.folder, "layouts": folder}
        process = Process(c._name("trainerd-x"), [binary("trainerd"), *arguments_of(options)],
                          c.folder)
        c.processes.append(process)
        c.may_fail.add(process)
        self.assertNotEqual(process.wait(), 0)
        errors = [line for line in process.lines if ERROR in line]
        self.assertEqual(len(errors), 1, process.output())
        for text in texts:
            self.assertIn(text, errors[0])

    def spoil(self, name, text, *texts, how="w"):
        with self.subTest(name=name, text=text[:40]):
            folder = self.copy()
            with open(os.path.join(folder, name), how, encoding="utf-8") as f:
                f.write(text)
            self.refused(folder, *texts)
            shutil.rmtree(folder)

    def test_broken_at_start(self):
        self.spoil("qwen3.layout", "\n[parameter x]\npart = nothing\n", "qwen3.layout:", "'nothing'",
                   how="a")
        self.spoil("broken.layout", "[layout\n", "broken.layout:1")
        self.spoil("broken.layout", "[layout]\narchitectures = A\ninclude = ../base.inc\n",
                   "../base.inc", "broken.layout:3")
        self.spoil("broken.layout", "[layout]\narchitectures = A\ninclude = not-there.inc\n",
                   "not-there.inc", "broken.layout:3")
        self.spoil("broken.layout", "[layout]\narchitectures = Qwen3ForCausalLM\n"
                   "[tensor a]\nstored = a\nshape = 1\n[parameter a]\npart = a\n",
                   "broken.layout", "qwen3.layout", "Qwen3ForCausalLM")
        self.spoil("base.inc", "[tensor x]\nshape = (\n", "base.inc:2")
        self.spoil("broken.layout", "x\0y", "broken.layout")
        self.spoil("broken.layout", "; " + "x" * 100 + "\n" * 3_000_000, "broken.layout", "bytes")

    def test_unreadable(self):
        folder = os.path.join(self.cluster.folder, "nothing")
        self.refused(folder, folder, "No such file")
        with open(folder, "w", encoding="utf-8"):
            pass
        self.refused(folder, folder, "Not a directory")
        folder = self.copy()
        os.unlink(os.path.join(folder, "qwen3.layout"))
        os.mkfifo(os.path.join(folder, "qwen3.layout"))
        self.refused(folder, "qwen3.layout", "regular file")
        os.unlink(os.path.join(folder, "qwen3.layout"))
        os.symlink("qwen3.layout", os.path.join(folder, "qwen3.layout"))
        self.refused(folder, "qwen3.layout")

    def test_replaced_while_running(self):
        """What was read at the start counts until the end."""
        folder = self.copy()
        self.start(layouts=folder)
        self.start_engine("qwen3", Engine(tp=2))
        self.train()
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write("nonsense\n")
        self.start_engine("qwen3", Engine(tp=4, fp8=FP8), "late")
        self.train()
        shutil.rmtree(folder)
        self.start_engine("qwen3", Engine(kind="vllm", tp=2), "later")
        self.train(2)
        self.cluster.trainerd.end()
        self.refused(folder, folder)

    def test_empty(self):
        """Only the identity layout: an engine with a layout is told which option is missing."""
        folder = os.path.join(self.cluster.folder, "empty")
        os.mkdir(folder)
        self.start(layouts=folder)
        self.start_engine("qwen3", Engine(tp=1))
        version, path = self.next()
        (t,) = self.ranks(path, 1)
        self.ask(t, "declare")
        said = self.ask(t, f"begin {version}", kind="error")
        self.assertIn("engine engine rank 0: layout auto", said)
        self.assertIn("option layouts", said)
        self.close([t])


if __name__ == "__main__":
    unittest.main(verbosity=2)
