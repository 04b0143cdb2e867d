// Hostile files must not use more memory than their size plus 64 MiB, nor more
// time than their size warrants.

#include <malloc.h>

#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/counting_allocator.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kAllowanceBytes = uint64_t{64} << 20;

std::string Repeat(const std::string& text, size_t times) {
  std::string out;
  out.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) {
    out += text;
  }
  return out;
}

// Opens an archive and returns by how much the heap grew at most.
uint64_t PeakOf(const std::string& pickle, bool expect_error = false) {
  const auto fs = MemoryFileSystem(TorchZip(pickle, {pickle::Floats(6)}));
  const uint64_t file_bytes = fs->Stat("")->size_bytes;
  const uint64_t before = StartPeak();
  bool failed = false;
  try {
    TorchFile::Open(fs, "memory.pt");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResourceExhausted) << e.what();
    failed = true;
  }
  const uint64_t peak = PeakBytes() - before;
  EXPECT_LE(peak, file_bytes + kAllowanceBytes);
  EXPECT_EQ(failed, expect_error);
  return peak;
}

TEST(Memory, HostilePickles) {
  const size_t n = 4 << 20;
  // A new list, dict or object from one to three bytes each.
  PeakOf("(" + Repeat("]", n) + "l.", true);
  PeakOf("(" + Repeat("}", n) + "l.", true);
  PeakOf(
      "cm\nC\nq\x01"
      "0(" +
          Repeat("h\x01)\x81", n) + "l.",
      true);
  PeakOf("(" + Repeat("U" + std::string(1, '\0'), n) + "l.", true);
  PeakOf("(" +
             Repeat("]N"
                    "a",
                    n) +
             "l.",
         true);
  PeakOf("(" + Repeat("M\xff\xff", n) + "l.", true);
  // Marks, and a stack that is never used.
  PeakOf(Repeat("(", n) + "N.", true);
}

TEST(Memory, CopiesOfSharedValues) {
  const std::string text(1 << 20, 'x');
  // One megabyte as bytes again and again.
  PeakOf(
      "c_codecs\nencode\nq\x01"
      "0" +
          pickle::Str(text) +
          "q\x02"
          "0" +
          pickle::Str("latin1") +
          "q\x03"
          "0(" +
          Repeat("h\x01h\x02h\x03\x86R", 1000) + "l.",
      true);
  // A list of a million items as a set again and again.
  PeakOf(
      "cbuiltins\nset\nq\x01"
      "0](" +
          Repeat("N", 1 << 20) +
          "eq\x02"
          "0(" +
          Repeat("h\x01h\x02\x85R", 1000) + "l.",
      true);
  // A tensor of 64 dimensions again and again.
  const std::vector<int64_t> ones(64, 1);
  PeakOf(
      "ctorch._utils\n_rebuild_tensor\nq\x01"
      "0" +
          pickle::Tuple({pickle::Storage(), pickle::Int(0), pickle::Ints(ones),
                         pickle::Ints(ones)}) +
          "q\x02"
          "0(" +
          Repeat("h\x01h\x02R", 1 << 19) + "l.",
      true);
}

TEST(Memory, LongTextsAreHeldOnce) {
  const std::string text(48 << 20, 'x');
  EXPECT_LE(PeakOf(pickle::Whole(pickle::Str(text))), text.size() + (4 << 20));
}

TEST(Memory, LengthsAreCheckedBeforeAllocation) {
  for (const char* opcode : {"X", "B", "T"}) {
    const auto fs =
        MemoryFileSystem(TorchZip(std::string(opcode) + "\xf0\xff\xff\x7f."));
    const uint64_t before = StartPeak();
    EXPECT_THROW(TorchFile::Open(fs, "x"), Error);
    EXPECT_LE(PeakBytes() - before, uint64_t{2} << 20);
  }
}

TEST(Memory, RealPicklesStayWellBelow) {
  // A thousand tensors as torch.save writes them, each with its own texts.
  std::string body = "}(";
  for (int i = 0; i < 1000; ++i) {
    body += pickle::Str("model.layers." + std::to_string(i) + ".weight") +
            pickle::Tensor();
  }
  EXPECT_LE(PeakOf(pickle::Whole(body + "u")), uint64_t{4} << 20);
}

// Work that grows faster than the file would take minutes here.
TEST(Memory, NoQuadraticWork) {
  const size_t n = 100000;
  // One state with many attributes for many objects.
  std::string state = "}q\x01(";
  for (size_t i = 0; i < n; ++i) {
    state += pickle::Str("k" + std::to_string(i)) + "N";
  }
  PeakOf("(" + state + "u" +
         Repeat("cm\nC\n)\x81h\x01"
                "b",
                n) +
         "t.");
  // Long texts as keys of a large dict.
  const std::string text(1 << 20, 'x');
  PeakOf(pickle::Str(text + "a") +
         "q\x01"
         "0" +
         pickle::Str(text + "b") +
         "q\x02"
         "0}(" +
         Repeat("h\x01Nh\x02N", n) + "u.");
  // Long texts as names and keys.
  EXPECT_ERROR(OpenBytes(TorchZip(pickle::Str(text) +
                                  "q\x01"
                                  "0(" +
                                  Repeat("h\x01h\x01\x93", n) + "t.")),
               ErrorCode::kDataLoss, "too long");
  // Lists that are filled in turn.
  PeakOf("(]q\x01]q\x02" +
         Repeat("h\x01N"
                "a0h\x02N"
                "a0",
                n) +
         "t.");
  // A long line.
  PeakOf("V" + Repeat(text, 20) + "\n.");
}

TEST(MemoryBudget, ChargesThePeakOfGrowth) {
  MemoryBudget budget(0);
  std::vector<uint64_t> values;
  budget.Grow(values, 1000);
  EXPECT_GE(budget.used_bytes(), 8000u);
  const uint64_t used = budget.used_bytes();
  budget.Release(budget.used_bytes() + 1);
  EXPECT_EQ(budget.used_bytes(), 0u);
  budget.Charge(MemoryBudget::kSpareBytes - used);
  EXPECT_ERROR(budget.Charge(used + 1), ErrorCode::kResourceExhausted,
               "58 MiB");
  budget.Charge(used);
}

}  // namespace
}  // namespace muonstore::torchfile
