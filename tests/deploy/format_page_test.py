# SPDX-License-Identifier: Apache-2.0
"""Holds deploy/models/FORMAT.md to its own example and to what the server's parser asks for.

  python3 tests/deploy/format_page_test.py
"""

import json
import os
import re
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGE = os.path.join(ROOT, "deploy", "models", "FORMAT.md")
PARSER = os.path.join(ROOT, "server", "model", "config.cc")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def without_repetition(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise ValueError(f"a key is there twice: {keys}")
    return dict(pairs)


def example(page):
    """The one JSON block of the page."""
    (block,) = re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return json.loads(block, object_pairs_hook=without_repetition)


def key_tables(page):
    """For each table whose first column is headed "key": the keys in that column, in order."""
    tables = re.findall(r"^\| key \|.*\n\| --- \|.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [[key for row in table.splitlines() for key in re.findall(r"`([^`]+)`", row.split("|")[1])]
            for table in tables]


def dotted(value, path=""):
    if not isinstance(value, dict):
        return [path]
    return [key for name, inner in value.items() for key in dotted(inner, f"{path}.{name}" if path else name)]


def parts(keys):
    return {part for key in keys for part in key.split(".")}


class FormatPageTest(unittest.TestCase):
    def setUp(self):
        self.page = read(PAGE)
        self.example = example(self.page)
        self.required, self.conditional = key_tables(self.page)

    def test_the_example_has_the_keys_of_the_first_table(self):
        self.assertEqual(sorted(dotted(self.example)), sorted(self.required))

    def test_no_key_is_in_both_tables(self):
        keys = self.required + self.conditional
        self.assertEqual(sorted(set(keys)), sorted(keys))

    def test_the_tables_have_the_keys_that_the_parser_reads(self):
        reads = r"\b(?:file|reader)\.\w+(?:<[\w:]+>)?\(\s*\"(\w+)\""
        self.assertEqual(set(re.findall(reads, read(PARSER))), parts(self.required + self.conditional))

    def test_every_value_that_the_parser_knows_is_explained(self):
        values = re.findall(r"\{\"([^\"]+)\", ", read(PARSER))
        self.assertIn("rope_toeplitz", values)
        for value in values:
            self.assertIn(f"`{value}`", self.page)

    def test_the_example_is_what_the_page_says_of_its_scales(self):
        config = self.example
        self.assertEqual(1 / config["chunk_size"], config["quadratic"]["score_scale"])
        self.assertEqual(1 / config["chunk_size"], config["linear"]["scale"])
        self.assertEqual(config["query_key_size"], config["rope"]["size"])
        self.assertLessEqual(config["chunk_size"], config["bias"]["length"])

    def test_links_lead_somewhere(self):
        headings = {heading.lower().replace(" ", "-")
                    for heading in re.findall(r"^#+ (.*)$", self.page, re.MULTILINE)}
        for target in re.findall(r"\]\(([^)]+)\)", self.page):
            if target.startswith("#"):
                self.assertIn(target[1:], headings)
            else:
                self.assertTrue(os.path.exists(os.path.join(os.path.dirname(PAGE), target)), target)


if __name__ == "__main__":
    unittest.main()
