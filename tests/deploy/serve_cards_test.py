# SPDX-License-Identifier: Apache-2.0
"""Holds deploy/local/serve_cards.sh to what it says, by its dry run: no card is needed.

  python3 tests/deploy/serve_cards_test.py
"""

import os
import re
import subprocess
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SCRIPT = os.path.join(ROOT, "deploy", "local", "serve_cards.sh")
TWO_CARDS = "0, NVIDIA H200, 143771, 143000\n3, NVIDIA H200, 143771, 90000"


def run(*arguments, cards=TWO_CARDS):
    environment = dict(os.environ, FLASH_CARDS=cards)
    return subprocess.run(["/bin/bash", SCRIPT, *arguments], capture_output=True, text=True,
                          check=False, env=environment)


def commands(output):
    """What each server that would be started has in its environment, and its flags."""
    return [dict(word.lstrip("-").split("=", 1) for word in line.split() if "=" in word)
            for line in output.splitlines() if " build/bin/flash-server " in line]


class ServeCardsTest(unittest.TestCase):

    def test_each_card_has_a_server_with_ports_of_its_own(self):
        done = run("--dry-run")
        self.assertEqual(0, done.returncode, done.stderr)
        servers = commands(done.stdout)
        self.assertEqual(["0", "3"], [server["CUDA_VISIBLE_DEVICES"] for server in servers])
        self.assertEqual(["127.0.0.1:8500", "127.0.0.1:8503"],
                         [server["listen"] for server in servers])
        self.assertEqual(["127.0.0.1:9400", "127.0.0.1:9403"],
                         [server["metrics_listen"] for server in servers])
        self.assertIn("--server=127.0.0.1:8500,127.0.0.1:8503", done.stdout)

    def test_all_together_take_no_more_of_the_host_than_half_of_what_is_free(self):
        done = run("--dry-run")
        free_mib = int(re.search(r"(\d+) MiB of host memory free", done.stdout).group(1))
        taken = sum(int(server[name]) for server in commands(done.stdout)
                    for name in ("session_store_bytes", "session_cache_bytes",
                                 "prefix_cache_bytes"))
        self.assertGreater(taken, 0)
        self.assertLessEqual(taken, free_mib * 2**20 / 2)

    def test_says_what_each_card_has(self):
        self.assertIn("card 3, NVIDIA H200: 90000 of 143771 MiB free", run("--dry-run").stdout)

    def test_flags_go_to_every_server_and_are_the_last(self):
        lines = [line for line in run("--dry-run", "--slots=8").stdout.splitlines()
                 if line.startswith("env ")]
        self.assertEqual(2, len(lines))
        for line in lines:
            self.assertTrue(line.endswith(" --slots=8"), line)

    def test_ports_begin_where_they_are_told_to(self):
        servers = commands(run("--dry-run", "--first_port=8600").stdout)
        self.assertEqual("127.0.0.1:8600", servers[0]["listen"])
        self.assertEqual("127.0.0.1:9500", servers[0]["metrics_listen"])

    def test_passes_only_flags_that_the_server_has(self):
        with open(os.path.join(ROOT, "server", "server_config.cc"), encoding="utf-8") as file:
            known = set(re.findall(r"ABSL_FLAG\(\s*[\w:]+,\s*(\w+),", file.read()))
        for server in commands(run("--dry-run").stdout):
            flags = {name for name in server if name.islower()}
            self.assertLessEqual(flags, known)
            self.assertEqual("cuda", server["device"])

    def test_one_sentence_says_that_there_is_no_card(self):
        done = run("--dry-run", cards="")
        if done.returncode == 0:
            self.skipTest("this machine has a card")
        self.assertEqual(1, done.returncode)
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)
        self.assertIn("no card", done.stderr)

    def test_wrong_usage_exits_with_two(self):
        for argument in ("serve", "--dry", "--first_port=x"):
            self.assertEqual(2, run(argument).returncode, argument)


if __name__ == "__main__":
    unittest.main()
