// No byte of a native checkpoint can change, go or be added unnoticed.
#include <algorithm>
#include <memory>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "formats/native/file_names.h"
#include "formats/native/list.h"
#include "formats/native/verify.h"
#include "src/base/str.h"
#include "tests/native/carried_checkpoint.h"
#include "tests/native/memory_tree.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::Contains;
using testing::HasSubstr;

class NativeDamage : public testing::TestWithParam<int> {
 protected:
  NativeDamage() {
    const auto source = SmallCarriedCheckpoint();
    path_ = Save(PosixFileSystem(), (scratch_ / "root").string(),
                 {.tag = "tag", .zstd_level = GetParam(), .block_bytes = 4096},
                 *source, LayoutOf(*source, {.stage = 2, .num_ranks = 2}));
    tree_ = MemoryTree::Load(path_);
  }

  VerifyReport Verify() const { return VerifyTag(tree_, path_, {}); }
  bool OpensAndReads() const {
    const auto checkpoint = NativeCheckpoint::Open(tree_, path_, {});
    for (size_t i = 0; i < checkpoint->tensors().size(); ++i) {
      ReadTensorF64(*checkpoint, i,
                    {0, checkpoint->tensors()[i].shape.num_elements()});
    }
    return true;
  }
  // A typed error or none; anything else ends the test.
  void OpenAndReadAnyhow() const {
    try {
      OpensAndReads();
    } catch (const Error&) {
    }
  }
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const auto& [path, bytes] : tree_->files) {
      paths.push_back(path);
    }
    return paths;
  }
  std::string RankPath(int rank) const {
    for (const std::string& path : Paths()) {
      if (path.find(StrCat("rank-0000", rank)) != path.npos) {
        return path;
      }
    }
    return "";
  }

  testutil::Scratch scratch_;
  std::string path_;
  std::shared_ptr<MemoryTree> tree_;
};

TEST_P(NativeDamage, WholeWithoutDamage) {
  EXPECT_TRUE(Verify().whole());
  EXPECT_TRUE(OpensAndReads());
  EXPECT_EQ(Paths().size(), 7U);
}

TEST_P(NativeDamage, EveryFlippedByteIsFoundInItsFile) {
  for (const std::string& path : Paths()) {
    std::string& bytes = tree_->files[path];
    // A prime step meets every kind of byte.
    for (size_t at = 0; at < bytes.size(); at += bytes.size() / 400 + 1) {
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
      const VerifyReport report = Verify();
      EXPECT_FALSE(report.whole()) << path << " byte " << at;
      EXPECT_THAT(report.findings.at(0).place.file, path);
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    }
  }
  EXPECT_TRUE(Verify().whole());
}

// Some bytes changed, removed, added or moved, 4000 times in each file.
std::string Mutate(std::string bytes, std::mt19937& random) {
  const auto pick = [&](size_t most) {
    return std::uniform_int_distribution<size_t>(0, most)(random);
  };
  const size_t at = pick(bytes.size() - 1);
  const size_t count = std::min(1 + pick(15), bytes.size() - at);
  switch (pick(5)) {
    case 0:
      bytes[at] = static_cast<char>(pick(255));
      break;
    case 1:
      bytes.erase(at, count);
      break;
    case 2:
      bytes.insert(at, count, static_cast<char>(pick(255)));
      break;
    case 3:
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), count,
                  pick(1) == 0 ? '\0' : '\xFF');
      break;
    case 4:
      bytes.replace(at, count, bytes.substr(pick(bytes.size() - 1), count));
      break;
    default:
      bytes.resize(at);
      break;
  }
  return bytes;
}

TEST_P(NativeDamage, FourThousandMutationsOfEachFile) {
  std::mt19937 random(7);
  for (const std::string& path : Paths()) {
    const std::string whole = tree_->files[path];
    for (int i = 0; i < 4000; ++i) {
      std::string mutated = Mutate(whole, random);
      if (mutated == whole) {
        continue;
      }
      tree_->files[path] = std::move(mutated);
      OpenAndReadAnyhow();
      ASSERT_FALSE(Verify().whole()) << path << " mutation " << i;
    }
    tree_->files[path] = whole;
  }
}

TEST_P(NativeDamage, AFileCutAnywhereIsATypedError) {
  for (const std::string& path : Paths()) {
    const std::string whole = tree_->files[path];
    for (size_t part = 0; part < 64; ++part) {
      tree_->files[path] = whole.substr(0, whole.size() * part / 64);
      EXPECT_FALSE(Verify().whole()) << path << " " << part;
      if (path.find(kViewName) == path.npos) {  // No reader needs the view.
        try {
          NativeCheckpoint::Open(tree_, path_, {});
          ADD_FAILURE() << path << " " << part;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
          EXPECT_EQ(error.place().file, path);
        }
      }
    }
    tree_->files[path] = whole;
  }
}

TEST_P(NativeDamage, AMissingFileIsAnErrorEverywhere) {
  for (const std::string& path : Paths()) {
    const std::string whole = tree_->files[path];
    tree_->files.erase(path);
    const VerifyReport report = Verify();
    EXPECT_FALSE(report.whole());
    EXPECT_EQ(report.findings.at(0).place.file, path);
    if (path.find(kViewName) == path.npos) {
      EXPECT_THROW(NativeCheckpoint::Open(tree_, path_, {}), Error) << path;
      const TagListing listing = ListTag(tree_, path_);
      EXPECT_FALSE(listing.complete);
      EXPECT_THAT(listing.missing, Contains(HasSubstr(path)));
    }
    tree_->files[path] = whole;
  }
}

TEST_P(NativeDamage, VerifyNamesFileTensorAndBlock) {
  // "b" is 2000 elements behind the 63 of "a": rank 1 holds its second half.
  const std::string path = RankPath(1);
  std::string& bytes = tree_->files[path];
  bytes[4096 + 100] = static_cast<char>(bytes[4096 + 100] ^ 1);
  const VerifyReport report = Verify();
  ASSERT_EQ(report.findings.size(), 1U);
  const Finding& finding = report.findings[0];
  EXPECT_EQ(finding.code, "checksum");
  EXPECT_EQ(finding.message, "block 0 of master is damaged");
  EXPECT_EQ(finding.place.file, path);
  EXPECT_THAT(finding.place.tensor, HasSubstr("/master"));
  EXPECT_EQ(finding.place.offset_bytes, 4096U);
}

TEST_P(NativeDamage, EveryFaultIsListed) {
  for (const int rank : {0, 1}) {
    std::string& bytes = tree_->files[RankPath(rank)];
    bytes[4096] = static_cast<char>(~bytes[4096]);
    bytes.back() = static_cast<char>(~bytes.back());
  }
  EXPECT_EQ(Verify().findings.size(), 4U);
}

TEST_P(NativeDamage, QuickLooksAtNamesAndSizesAlone) {
  std::string& bytes = tree_->files[RankPath(0)];
  bytes[5000] = static_cast<char>(~bytes[5000]);
  EXPECT_TRUE(VerifyTag(tree_, path_, {.quick = true}).whole());
  bytes.pop_back();
  EXPECT_FALSE(VerifyTag(tree_, path_, {.quick = true}).whole());
}

TEST_P(NativeDamage, ProgressEndsAtTheBytesOfAllPayloadFiles) {
  uint64_t last = 0;
  uint64_t total = 0;
  VerifyTag(tree_, path_,
            {.progress = [&](uint64_t done_bytes, uint64_t total_bytes) {
              EXPECT_GT(done_bytes, last);
              last = done_bytes;
              total = total_bytes;
            }});
  EXPECT_GT(last, 0U);
  EXPECT_LE(last, total);
}

TEST_P(NativeDamage, AReadOfAWholeDamagedBlockFails) {
  std::string& bytes = tree_->files[RankPath(0)];
  bytes[4096 + 8] = static_cast<char>(~bytes[4096 + 8]);
  const auto checkpoint = NativeCheckpoint::Open(tree_, path_, {});
  const Segment& segment = checkpoint->segments()[0];
  std::vector<std::byte> out(
      static_cast<size_t>(segment.num_elements * SizeBytes(segment.dtype)));
  try {
    checkpoint->ReadSegment(0, 0, out);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error.place().file, RankPath(0));
    EXPECT_EQ(error.place().offset_bytes, 4096U);
  }
}

TEST_P(NativeDamage, ReadingABlockInPartsFindsItsDamage) {
  std::string& bytes = tree_->files[RankPath(0)];
  bytes[4096 + 8] = static_cast<char>(~bytes[4096 + 8]);
  const auto checkpoint = NativeCheckpoint::Open(tree_, path_, {});
  std::vector<std::byte> one(
      static_cast<size_t>(SizeBytes(checkpoint->segments()[0].dtype)));
  EXPECT_THROW(checkpoint->ReadSegment(0, 1, one), Error);
}

INSTANTIATE_TEST_SUITE_P(PlainAndCompressed, NativeDamage,
                         testing::Values(0, 3), [](const auto& param) {
                           return param.param == 0 ? "Plain" : "Compressed";
                         });

TEST(NativePadding, ChangedZerosAreFound) {
  const testutil::Scratch scratch;
  const auto source = SmallCheckpoint();
  const std::string path = Save(PosixFileSystem(), (scratch / "root").string(),
                                {.tag = "tag"}, *source, LayoutOf(*source, {}));
  const auto tree = MemoryTree::Load(path);
  for (auto& [file, bytes] : tree->files) {
    if (file.find("/rank-") != file.npos) {
      // 2068 masters of 4 bytes end at 4096 + 8272; the page at 16384.
      bytes[16383] = 1;
    }
  }
  const VerifyReport report = VerifyTag(tree, path, {});
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_EQ(report.findings[0].code, "padding");
  EXPECT_EQ(report.findings[0].place.offset_bytes, 16383U);
}

}  // namespace
}  // namespace muonstore::native
