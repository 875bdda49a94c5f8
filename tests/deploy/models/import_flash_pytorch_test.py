# SPDX-License-Identifier: Apache-2.0
"""Tests of deploy/models/import_flash_pytorch.py against the real package's answers.

  python3 tests/deploy/models/import_flash_pytorch_test.py

Needs numpy. The one test that opens a .pt file is skipped where PyTorch is not installed.
"""

import contextlib
import copy
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import types
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import flash_numpy  # noqa: E402 (it lies beside this file)

ROOT = os.path.join(HERE, "..", "..", "..")
IMPORTER = os.path.join(ROOT, "deploy", "models", "import_flash_pytorch.py")
GOLDENS = os.path.join(ROOT, "tests", "goldens", "flash_pytorch")
CASES = os.path.join(ROOT, "tests", "cases")
SOURCE = "state_dict.safetensors"

# float32 in the package against float64 here. The largest difference seen is 1.5e-5.
TOLERANCE = 2e-4
# How much a wrong setting changes at least one logprob. The smallest change seen is 0.012.
VISIBLE = 5e-3


def goldens():
    return sorted(name for name in os.listdir(GOLDENS)
                  if os.path.isdir(os.path.join(GOLDENS, name, "imported")))


def golden(name, *parts):
    return os.path.join(GOLDENS, name, *parts)


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return json.load(file)


def read_bytes(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def load_importer():
    spec = importlib.util.spec_from_file_location("import_flash_pytorch", IMPORTER)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


importer = load_importer()


def run_importer(*arguments):
    """In this process, which saves the many tests most of their time."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = importer.main(list(arguments))
        except SystemExit as end:  # argparse after --help
            code = end.code
    return types.SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def error_from(directory):
    """The largest difference between the answers that a model directory holds and its model's."""
    config, tensors = flash_numpy.load(directory)
    expected = read_json(directory, "expected.json")
    ours = flash_numpy.logprobs(config, tensors, expected["ids"])
    return np.abs(ours - expected["logprobs"]).max()


def read_raw_safetensors(path):
    content = read_bytes(path)
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    data = content[8 + size:]
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


def write_raw_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, blob) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def narrow_to_bfloat16(entry):
    """Truncates, which is one of the roundings that a source may have used."""
    _, shape, blob = entry
    bits = np.frombuffer(blob, "<u4") >> 16
    return "BF16", shape, bits.astype("<u2").tobytes()


def narrow_to_float16(entry):
    _, shape, blob = entry
    return "F16", shape, np.frombuffer(blob, "<f4").astype("<f2").tobytes()


class OracleTest(unittest.TestCase):
    """flash_numpy itself, against answers that were made without it."""

    def test_cases(self):
        for name in ("paper", "flash_pytorch"):
            with self.subTest(name):
                directory = os.path.join(CASES, name)
                self.assertLess(error_from(directory), 1e-6)
                config, tensors = flash_numpy.load(directory)
                greedy = read_json(directory, "expected.json")["greedy"]
                self.assertEqual(greedy["generated_ids"],
                                 flash_numpy.greedy(config, tensors, greedy["prompt_ids"],
                                                    len(greedy["generated_ids"])))


class GoldenTest(unittest.TestCase):
    def test_logprobs_are_those_of_the_package(self):
        errors = {name: error_from(golden(name, "imported")) for name in goldens()}
        self.assertGreaterEqual(len(errors), 7)
        for name, error in errors.items():
            self.assertLess(error, TOLERANCE, name)

    def test_greedy_continuation_is_that_of_the_package(self):
        for name in goldens():
            with self.subTest(name):
                config, tensors = flash_numpy.load(golden(name, "imported"))
                greedy = read_json(golden(name, "imported", "expected.json"))["greedy"]
                self.assertEqual(greedy["generated_ids"],
                                 flash_numpy.greedy(config, tensors, greedy["prompt_ids"],
                                                    len(greedy["generated_ids"])))

    def test_importing_again_gives_the_same_bytes(self):
        for name in goldens():
            with self.subTest(name), tempfile.TemporaryDirectory() as work:
                self.import_and_compare(name, SOURCE, work)

    def test_pt_gives_the_same_bytes(self):
        if importlib.util.find_spec("torch") is None:
            self.skipTest("PyTorch is not installed")
        with tempfile.TemporaryDirectory() as work:
            self.import_and_compare("odd_sizes_laplace", "state_dict.pt", work)

    def import_and_compare(self, name, source, work):
        flags = read_json(golden(name, "imported", "expected.json"))["importer_flags"]
        output = os.path.join(work, "model")
        done = run_importer(golden(name, source), output, *flags)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual(["config.json", "model.safetensors"], sorted(os.listdir(output)))
        self.assertEqual(["model"], os.listdir(work), "something was left behind")
        for file in ("config.json", "model.safetensors"):
            self.assertEqual(read_bytes(golden(name, "imported", file)), read_bytes(output, file))


class SensitivityTest(unittest.TestCase):
    """The goldens can tell: each wrong setting is visible in at least one of them."""

    CHANGES = {
        "package_defaults": [
            ("chunk_size",), ("token_shift",), ("quadratic", "score_scale"), ("linear", "scale"),
            ("linear", "mean_past"), ("quadratic", "row_mean"), ("bias", "scale"),
            ("rope", "base"), ("rope", "size"), ("rope", "layout"), ("rope", "position"),
            ("embedding", "position_base"), ("embedding", "scale"), ("quadratic", "activation")],
        "layer_norm_laplace": [("token_shift",), ("quadratic", "laplace_std")],
        "release_0_1_6_laplace": [("quadratic", "laplace_std"), ("quadratic", "laplace_mean")],
        "long_group": [("norm", "eps"), ("norm", "eps_mode"), ("final_norm", "eps"),
                       ("bias", "max_distance"), ("rope", "size")],
    }
    OTHER = {"halves": "interleaved", "interleaved": "halves", "sequence": "chunk",
             "relu_squared": "laplace", "clamp": "add"}

    def wrong(self, value):
        if isinstance(value, bool):
            return not value
        if isinstance(value, str):
            return self.OTHER[value]
        return value - 2 if isinstance(value, int) else value * 1.05

    def test_a_wrong_setting_is_visible(self):
        for name, changes in self.CHANGES.items():
            config, tensors = flash_numpy.load(golden(name, "imported"))
            expected = read_json(golden(name, "imported", "expected.json"))
            for path in changes:
                with self.subTest(golden=name, setting=".".join(path)):
                    wrong = copy.deepcopy(config)
                    section = wrong[path[0]] if len(path) == 2 else wrong
                    section[path[-1]] = self.wrong(section[path[-1]])
                    ours = flash_numpy.logprobs(wrong, tensors, expected["ids"])
                    self.assertGreater(np.abs(ours - expected["logprobs"]).max(), VISIBLE)


class ImporterTestCase(unittest.TestCase):
    """Imports variations of one golden into a directory that is removed afterwards."""

    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = work.name
        self.output = os.path.join(self.work, "model")
        self.source = os.path.join(self.work, "changed.safetensors")
        self.use("narrow_heads")

    def use(self, name):
        self.name = name
        self.tensors = read_raw_safetensors(golden(name, SOURCE))
        self.flags = read_json(golden(name, "imported", "expected.json"))["importer_flags"]

    def without(self, flag):
        at = self.flags.index(flag)
        return self.flags[:at] + self.flags[at + 2:]

    def replaced(self, flag, value):
        return self.without(flag) + [flag, value]

    def run_changed(self, flags=None):
        write_raw_safetensors(self.source, self.tensors)
        return run_importer(self.source, self.output, *(self.flags if flags is None else flags))

    def assert_refused(self, done, code, *words):
        self.assertEqual(code, done.returncode, done.stderr)
        self.assertRegex(done.stderr, r"\A[^\n]+[^\s]\n\Z", "it must be one line")
        self.assertNotIn("Traceback", done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(os.path.lexists(self.output), "nothing may be written")
        self.assertLessEqual(set(os.listdir(self.work)), {"changed.safetensors"})

    def assert_same_as_golden(self, done):
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        for file in ("config.json", "model.safetensors"):
            self.assertEqual(read_bytes(golden(self.name, "imported", file)),
                             read_bytes(self.output, file))


class SourceTest(ImporterTestCase):
    def test_prefixes_may_be_nested_or_absent(self):
        prefix = "module.net."
        self.assertTrue(all(name.startswith(prefix) for name in self.tensors))
        bare = {name[len(prefix):]: entry for name, entry in self.tensors.items()}
        for wrapping in ("", "net.", "model.", "module.model.net.module."):
            with self.subTest(wrapping):
                self.tensors = {wrapping + name: entry for name, entry in bare.items()}
                self.assert_same_as_golden(self.run_changed(self.flags + ["--force"]))

    def test_two_models_in_one_file(self):
        entry = self.tensors["module.net.token_emb.weight"]
        self.tensors["ema.token_emb.weight"] = entry
        self.assert_refused(self.run_changed(), 1, "ema.token_emb.weight")
        del self.tensors["ema.token_emb.weight"]
        self.tensors["net.token_emb.weight"] = entry
        self.assert_refused(self.run_changed(), 1, "token_emb.weight", "more than one model")

    def test_frequencies_may_be_stored_once_always_or_never(self):
        name = next(name for name in self.tensors if name.endswith("freqs"))
        entry = self.tensors.pop(name)
        rotary = ["--rotary-max", "32", "--rotary-base", "10000"]
        self.assert_same_as_golden(self.run_changed(self.flags + rotary))
        for layer in (1, 0):
            self.tensors[f"module.net.layers.{layer}.rotary_pos_emb.freqs"] = entry
            self.assert_same_as_golden(self.run_changed(self.flags + ["--force"]))

    def test_frequencies_that_differ_or_belong_to_no_base(self):
        name = next(name for name in self.tensors if name.endswith("freqs"))
        dtype, shape, blob = self.tensors[name]
        bent = np.frombuffer(blob, "<f4").copy()
        bent[2] *= 1.01
        self.tensors[name] = (dtype, shape, bent.tobytes())
        self.assert_refused(self.run_changed(), 1, "rotary_pos_emb.freqs", "base")
        self.tensors["module.net.layers.1.rotary_pos_emb.freqs"] = (dtype, shape, blob)
        self.assert_refused(self.run_changed(), 1, "layers.0.", "layers.1.", "differ")

    def test_frequency_flags_are_checked_against_the_file(self):
        self.assert_refused(self.run_changed(self.flags + ["--rotary-base", "5000"]), 1,
                            "rotary_pos_emb.freqs", "5000")
        self.assert_refused(self.run_changed(self.flags + ["--rotary-max", "8"]), 1,
                            "--rotary-max 8")
        self.assert_refused(self.run_changed(self.flags + ["--position-base", "500"]), 1,
                            "inv_freq")

    def test_narrow_sources(self):
        original = dict(self.tensors)
        for narrow, limit in ((narrow_to_float16, 2e-3), (narrow_to_bfloat16, 2e-2)):
            with self.subTest(narrow.__name__):
                self.tensors = {name: narrow(entry) for name, entry in original.items()}
                self.assertEqual(0, self.run_changed(self.flags + ["--force"]).returncode)
                config, tensors = flash_numpy.load(self.output)
                exact_config, exact = flash_numpy.load(golden(self.name, "imported"))
                self.assertEqual(exact_config, config)
                for name, values in exact.items():
                    np.testing.assert_allclose(tensors[name], values, rtol=limit, atol=1e-4)

    def test_odd_query_key_dim_rotates_all_but_one_feature(self):
        config = read_json(golden("odd_sizes", "imported", "config.json"))
        self.assertEqual((21, 20), (config["query_key_size"], config["rope"]["size"]))
        self.assertAlmostEqual(10000 ** (20 / 21), config["rope"]["base"], places=6)


class RefusalTest(ImporterTestCase):
    def test_not_causal(self):
        self.assert_refused(self.run_changed(self.replaced("--causal", "no")), 1, "causal")

    def test_each_setting_that_the_weights_do_not_show(self):
        for flag in ("--group-size", "--causal", "--shift-tokens", "--laplace", "--norm-eps",
                     "--final-norm-eps", "--bias-max-distance"):
            with self.subTest(flag):
                self.assert_refused(self.run_changed(self.without(flag)), 2, flag,
                                    "cannot be read off the weights")

    def test_laplace_std_belongs_to_laplace(self):
        laplace = self.replaced("--laplace", "yes")
        self.assert_refused(self.run_changed(laplace), 2, "--laplace-std", "0.1.6", "0.1.7")
        self.assert_refused(self.run_changed(self.flags + ["--laplace-std", "0.28"]), 2,
                            "--laplace-std")

    def test_frequencies_that_the_file_does_not_have(self):
        self.use("odd_sizes_laplace")
        for flag in ("--rotary-max", "--rotary-base"):
            with self.subTest(flag):
                self.assert_refused(self.run_changed(self.without(flag)), 2, flag, "freqs")
        del self.tensors["abs_pos_emb.inv_freq"]
        self.assert_refused(self.run_changed(), 2, "--position-base", "inv_freq")

    def test_bad_values(self):
        for flag, value in (("--group-size", "0"), ("--group-size", "1.5"), ("--causal", "maybe"),
                            ("--norm-eps", "nan"), ("--norm-eps", "-1"),
                            ("--bias-max-distance", "16")):
            with self.subTest(flag=flag, value=value):
                self.assert_refused(self.run_changed(self.replaced(flag, value)), 2, flag)
        self.assert_refused(self.run_changed(self.flags + ["--depth", "3"]), 2, "--depth")

    def test_ids_outside_of_the_vocabulary(self):
        self.assert_refused(self.run_changed(self.flags + ["--bos", "61"]), 2, "61")
        self.assert_refused(self.run_changed(self.flags + ["--eos", "2,99"]), 2, "99")

    def test_unknown_tensors_are_named(self):
        self.tensors["module.net.layers.0.surprise.weight"] = ("F32", [1], b"\0\0\0\0")
        self.tensors["module.net.steps"] = ("I64", [1], b"\0" * 8)
        self.assert_refused(self.run_changed(), 1, "layers.0.surprise.weight", "steps")

    def test_each_tensor_is_needed(self):
        whole = self.tensors
        for name in whole:
            if name.endswith("freqs"):
                continue
            with self.subTest(name):
                self.tensors = {other: entry for other, entry in whole.items() if other != name}
                code = 2 if name.endswith("inv_freq") else 1  # a flag can stand for that one
                self.assert_refused(self.run_changed(), code, name.replace("module.net.", ""))

    def test_each_shape_is_checked(self):
        whole = self.tensors
        for name, (dtype, shape, blob) in whole.items():
            with self.subTest(name):
                self.tensors = {**whole, name: (dtype, [*shape, 1], blob)}
                self.assert_refused(self.run_changed(), 1, name.replace("module.net.", ""), "shape")

    def test_a_shape_that_disagrees_with_the_others(self):
        name = "module.net.layers.1.to_out.weight"
        dtype, (rows, columns), blob = self.tensors[name]
        self.tensors[name] = (dtype, [rows, columns - 1], blob[:rows * (columns - 1) * 4])
        self.assert_refused(self.run_changed(), 1, "layers.1.to_out.weight", str(columns))

    def test_a_layer_is_missing(self):
        self.tensors = {name: entry for name, entry in self.tensors.items() if ".0." not in name
                        or "to_logits" in name}
        self.assert_refused(self.run_changed(), 1, "layer 0")

    def test_values_that_are_not_finite(self):
        name = "module.net.to_logits.1.bias"
        dtype, shape, blob = self.tensors[name]
        for bad in (np.nan, np.inf):
            self.tensors[name] = (dtype, shape, np.float32(bad).tobytes() + blob[4:])
            self.assert_refused(self.run_changed(), 1, "to_logits.1.bias")

    def test_integers_are_not_weights(self):
        name = "module.net.abs_pos_emb.scale"
        self.tensors[name] = ("I32", [1], b"\0\0\0\0")
        self.assert_refused(self.run_changed(), 1, "abs_pos_emb.scale", "I32")

    def test_files_that_are_no_state_dict(self):
        whole = read_bytes(golden(self.name, SOURCE))
        for content in (b"", b"abc", whole[:100], whole[:-4], b"\xff" * 64,
                        struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 8) + b'{"a": 1}'):
            with self.subTest(content[:12]):
                with open(self.source, "wb") as file:
                    file.write(content)
                self.assert_refused(run_importer(self.source, self.output, *self.flags), 1,
                                    self.source)
        os.remove(self.source)
        self.assert_refused(run_importer(self.source, self.output, *self.flags), 1, self.source)


class OutputTest(ImporterTestCase):
    def test_runs_as_a_program(self):
        for flags, code in ((self.flags, 0), (self.flags, 1), ([], 2)):
            done = subprocess.run([sys.executable, IMPORTER, golden(self.name, SOURCE), self.output,
                                   *flags], capture_output=True, text=True, check=False)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertEqual(code == 0, done.stderr == "")

    def test_types_round_to_nearest_even(self):
        _, exact = flash_numpy.load(golden(self.name, "imported"))
        for dtype, bits in (("float16", 11), ("bfloat16", 8)):
            with self.subTest(dtype):
                flags = self.flags + ["--dtype", dtype, "--force"]
                self.assertEqual(0, self.run_changed(flags).returncode)
                stored = read_raw_safetensors(os.path.join(self.output, "model.safetensors"))
                kinds = {entry[0] for entry in stored.values()}
                self.assertEqual({"F16" if dtype == "float16" else "BF16"}, kinds)
                for name, values in flash_numpy.load(self.output)[1].items():
                    mantissa, exponent = np.frexp(exact[name])
                    rounded = np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)
                    np.testing.assert_allclose(values, rounded, rtol=0, atol=1e-7)

    def test_a_type_that_is_too_narrow(self):
        name = "module.net.to_logits.1.bias"
        dtype, shape, blob = self.tensors[name]
        self.tensors[name] = (dtype, shape, np.float32(1e5).tobytes() + blob[4:])
        self.assert_refused(self.run_changed(self.flags + ["--dtype", "float16"]), 1,
                            "lm_head.bias", "float16")

    def test_overwrites_a_model_only_with_force(self):
        self.assert_same_as_golden(self.run_changed())
        before = os.stat(self.output).st_ino
        done = self.run_changed()
        self.assertEqual(1, done.returncode)
        self.assertIn("--force", done.stderr)
        self.assertEqual(before, os.stat(self.output).st_ino)
        self.assert_same_as_golden(self.run_changed(self.flags + ["--force"]))
        self.assertEqual(["changed.safetensors", "model"], sorted(os.listdir(self.work)))

    def test_force_keeps_what_is_not_a_model(self):
        os.mkdir(self.output)
        precious = os.path.join(self.output, "thesis.txt")
        open(precious, "w", encoding="utf-8").close()
        self.assertEqual(1, self.run_changed(self.flags + ["--force"]).returncode)
        self.assertTrue(os.path.exists(precious))

    def test_a_failed_import_leaves_the_old_model(self):
        self.assert_same_as_golden(self.run_changed())
        self.tensors.pop("module.net.to_logits.1.bias")
        self.assertEqual(1, self.run_changed(self.flags + ["--force"]).returncode)
        self.assertEqual(read_bytes(golden(self.name, "imported", "model.safetensors")),
                         read_bytes(self.output, "model.safetensors"))

    def test_tokenizer_and_lengths(self):
        tokenizer = os.path.join(self.work, "some.model")
        with open(tokenizer, "wb") as file:
            file.write(b"pieces")
        extra = ["--tokenizer-type", "sentencepiece", "--tokenizer", tokenizer, "--bos", "1",
                 "--eos", "2,3", "--trained-length", "512", "--max-length", "1024"]
        self.assertEqual(0, self.run_changed(self.flags + extra).returncode)
        config = read_json(self.output, "config.json")
        self.assertEqual({"type": "sentencepiece", "file": "tokenizer.model"}, config["tokenizer"])
        self.assertEqual((1, [2, 3]), (config["bos_token_id"], config["eos_token_ids"]))
        self.assertEqual((512, 1024), (config["trained_length"], config["max_length"]))
        self.assertEqual(b"pieces", read_bytes(self.output, "tokenizer.model"))

    def test_tokenizer_flags_that_do_not_fit(self):
        self.assert_refused(self.run_changed(self.flags + ["--tokenizer-type", "bytes"]), 2, "256")
        self.assert_refused(self.run_changed(self.flags + ["--tokenizer-type", "sentencepiece"]), 2,
                            "--tokenizer")
        self.assert_refused(self.run_changed(self.flags + ["--tokenizer", self.source]), 2,
                            "--tokenizer-type")

    def test_help_explains_every_flag(self):
        done = run_importer("--help")
        self.assertEqual(0, done.returncode)
        for flag in ("--group-size", "--causal", "--shift-tokens", "--laplace-std", "--norm-eps",
                     "--rotary-max", "--position-base", "--tokenizer", "--dtype", "--force"):
            self.assertIn(flag, done.stdout)


if __name__ == "__main__":
    unittest.main()
