#!/usr/bin/env python3
"""Who may include whom.

The folders are layers, in the order in which a request passes them; a lower
layer knows nothing of an upper one. This reads every #include of ours and fails
where one goes against the table below.
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A folder may include itself and these. server/*.cc builds everything.
MAY_INCLUDE = {
    "kernels": [],
    "kernels/cpu": ["kernels"],
    "kernels/cuda": ["kernels"],
    "proto": [],
    "server/model": ["kernels"],
    "server/tokenizer": ["kernels", "server/model"],
    "server/scheduler": ["kernels", "server/model", "server/tokenizer"],
    "server/sessions": ["kernels", "server/model", "server/tokenizer",
                        "server/scheduler", "proto"],
    "server/service": ["kernels", "server/model", "server/tokenizer",
                       "server/scheduler", "server/sessions", "proto"],
    "server": ["kernels", "kernels/cpu", "kernels/cuda", "server/model",
               "server/tokenizer", "server/scheduler", "server/sessions",
               "server/service", "server/command_line", "proto"],
    # Knows nobody; the clients' flags are read as the server's are.
    "server/command_line": [],
    # Of kernels, the annotated mutex only: a client computes nothing.
    "client": ["kernels", "proto", "server/command_line"],
}
# Found anywhere else than in these folders, these words are a leak.
ONLY_IN = {
    r"#include <cu(da|blas)|__global__|__device__|\bcuda[A-Z]\w*_t\b":
        ["kernels/cuda"],
    r"#include \"(grpcpp|google/protobuf)|#include <(grpcpp|google/protobuf)":
        ["server/service", "server/sessions", "client", "server"],
    # kernels has FLASH_CHECK, which says where it aborts.
    r"fprintf|std::cerr|std::cout":
        ["server", "client", "server/command_line", "kernels"],
    r"#include \"absl/flags/":
        ["server", "client", "server/command_line"],
}
SOURCES = ("*.h", "*.cc", "*.cu", "*.cuh")
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


def is_ours(name):
    """Whether an include is of this tree, in whatever folder."""
    return name.endswith(".pb.h") or (ROOT / name).exists()


def included_folder(name):
    """The layer that an include belongs to; generated headers are proto's."""
    folder = str(pathlib.PurePosixPath(name).parent)
    if name.endswith(".pb.h") or folder.startswith("flash/v1"):
        return "proto"
    return folder


def violations(folder, text):
    """The includes of a file in `folder` that the table does not allow."""
    allowed = [folder] + MAY_INCLUDE[folder]
    found = []
    for name in INCLUDE.findall(text):
        if is_ours(name) and included_folder(name) not in allowed:
            found.append(name)
    return found


def sources():
    for folder in MAY_INCLUDE:
        for pattern in SOURCES:
            for path in sorted((ROOT / folder).glob(pattern)):
                yield folder, path


class LayeringTest(unittest.TestCase):

    def test_no_folder_includes_one_above_it(self):
        for folder, path in sources():
            for name in violations(folder, path.read_text()):
                self.fail(f"{path.relative_to(ROOT)} includes {name}: "
                          f"{folder} may include {MAY_INCLUDE[folder]}")

    def test_every_source_lies_in_a_known_layer(self):
        for top in ("kernels", "server", "client"):
            for pattern in SOURCES:
                for path in (ROOT / top).rglob(pattern):
                    folder = str(path.parent.relative_to(ROOT))
                    self.assertIn(folder, MAY_INCLUDE, path)

    def test_libraries_stay_where_they_belong(self):
        for folder, path in sources():
            for words, folders in ONLY_IN.items():
                if folder not in folders and re.search(words, path.read_text()):
                    self.fail(f"{path.relative_to(ROOT)} uses {words}, which "
                              f"belongs in {folders}")

    def test_a_wrong_include_is_noticed(self):
        self.assertEqual(
            violations("kernels", '#include "server/model/config.h"\n'),
            ["server/model/config.h"])
        self.assertEqual(
            violations("server/model", '#include "flash/v1/inference.pb.h"\n'),
            ["flash/v1/inference.pb.h"])
        self.assertEqual(
            violations("client", '#include "tests/end_to_end/caller.h"\n'),
            ["tests/end_to_end/caller.h"])
        self.assertEqual(
            violations("server/model", '#include "kernels/backend.h"\n'), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
