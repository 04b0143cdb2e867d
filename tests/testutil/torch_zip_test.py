#!/usr/bin/env python3
"""torch_zip.py against files that torch wrote: rewriting must give the bytes.

    torch_zip_test.py FILE.pt...
"""
import os
import struct
import sys
import tempfile
import unittest
import zipfile
import zlib

import torch_zip


class ContainerTest(unittest.TestCase):
    files = []

    def test_rewriting_a_file_of_torch_gives_its_bytes(self):
        self.assertTrue(self.files)
        for path in self.files:
            with self.subTest(path), tempfile.TemporaryDirectory() as folder:
                copy = os.path.join(folder, os.path.basename(path))
                rewrite(path, copy)
                with open(path, "rb") as a, open(copy, "rb") as b:
                    self.assertEqual(a.read(), b.read())

    def test_crc_of_zeros_equals_zlib(self):
        for size in [0, 1, 2, 7, 64, 1000, 65537]:
            self.assertEqual(torch_zip.crc32_of_zeros(size),
                             zlib.crc32(bytes(size)), size)

    def test_counted_words_are_distinct_and_their_crc_is_that_of_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "counted.pt")
            size = (1 << 22) + 6  # More than a block, and no whole word.
            payload = torch_zip.Counting(size, 5)
            torch_zip.write_container(path, b"\x80\x02N.", [payload])
            with zipfile.ZipFile(path) as z:
                data = z.read("counted/data/0")  # Compares the CRC.
        words = struct.unpack_from(f"<{size // 4}I", data)
        self.assertEqual(len(data), size)
        self.assertEqual(words[0], 0x20000005)
        self.assertEqual(len(set(words)), len(words))

    def test_zeros_are_written_as_a_hole_and_read_as_zeros(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "hole.pt")
            payload = torch_zip.Zeros(1 << 33)
            torch_zip.write_container(path, b"\x80\x02N.", [payload, b"abc"])
            self.assertGreater(os.path.getsize(path), 1 << 33)
            self.assertLess(os.stat(path).st_blocks * 512, 1 << 20)
            with zipfile.ZipFile(path) as z:
                self.assertEqual(z.getinfo("hole/data/0").file_size, 1 << 33)
                # Beyond 4 GiB: found by its ZIP64 offset, checked by its CRC.
                self.assertEqual(z.read("hole/data/1"), b"abc")


def rewrite(path, copy):
    with zipfile.ZipFile(path) as z:
        root = z.namelist()[0].split("/")[0]
        keys = [name for name in z.namelist()
                if name.startswith(f"{root}/data/")]
        torch_zip.write_container(
            copy, z.read(f"{root}/data.pkl"), [z.read(key) for key in keys],
            z.read(f"{root}/.data/serialization_id").decode())


if __name__ == "__main__":
    ContainerTest.files = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
