// ckpt-inspect on checkpoints of DeepSpeed that were damaged or cut, and what
// must be left as it was.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/torchfile/crc32.h"
#include "formats/torchfile/torch_file.h"
#include "muonstore/file_system.h"
#include "tests/inspect/matrices.h"
#include "tests/testutil/golden.h"
#include "tests/tools/cli.h"
#include "tests/tools/spoilt_copy.h"

namespace muonstore::testutil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSound = "s2-ws2-bf16-none-base";
constexpr const char* kRank1 = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";

TEST(Damage, DumpDoesNotWriteIntoTheCheckpoint) {
  const SpoiltCopy copy(kSound);
  const fs::path path = copy.file(kRank1);
  const auto before = fs::file_size(path);
  const ProcessResult result =
      Inspect({"dump", path.parent_path().string(), "--param", "odd.weight",
               "--state", "momentum", "-o", path.string()});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("in the checkpoint itself"));
  EXPECT_EQ(fs::file_size(path), before);
}

TEST(Damage, AChangedBitIsFoundByVerifyAndNamed) {
  const SpoiltCopy copy(kSound);
  const fs::path path = copy.file(kRank1);
  // The middle of the file is payload.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(fs::file_size(path) / 2);
  file.seekg(middle);
  const auto byte = static_cast<char>(file.get() ^ 1);
  file.seekp(middle);
  file.put(byte);
  file.close();
  const ProcessResult result = Inspect({"verify", copy.root()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, AllOf(HasSubstr(kRank1), HasSubstr("fault")));
  const json report = InspectJson({"verify", copy.root()}, 1);
  EXPECT_EQ(report["whole"], false);
  EXPECT_GE(report["num_faults"], 1);
  // Each of a flat buffer's tensors by its own name.
  const std::string tensors = report["findings"][0]["tensor"];
  EXPECT_THAT(tensors, Not(HasSubstr(" more")));
  const auto num_names = std::count(tensors.begin(), tensors.end(), '/');
  EXPECT_EQ(num_names, std::count(tensors.begin(), tensors.end(), ',') + 1);
}

// The record of a torch file in which a byte lies.
class RecordBytes {
 public:
  RecordBytes(const std::string& path, size_t at) {
    const auto file = torchfile::TorchFile::Open(PosixFileSystem(), path);
    for (const torchfile::RecordInfo& record : file->records()) {
      if (record.offset_bytes <= at &&
          at < record.offset_bytes + record.size_bytes) {
        record_ = record;
      }
    }
  }
  // As it stands in the file's directory.
  std::string Crc(const std::string& file) const {
    const uint32_t crc = torchfile::Crc32(
        0, std::as_bytes(std::span(file))
               .subspan(record_.offset_bytes, record_.size_bytes));
    std::string bytes(sizeof(crc), '\0');
    std::memcpy(bytes.data(), &crc, sizeof(crc));
    return bytes;
  }
  // Behind the data and in the directory.
  void Replace(const std::string& before, const std::string& after,
               std::string& file) const {
    size_t from = record_.offset_bytes + record_.size_bytes;
    while ((from = file.find(before, from)) != std::string::npos) {
      file.replace(from, after.size(), after);
    }
  }

 private:
  torchfile::RecordInfo record_;
};

// A matrix as a file holds it in bf16: the upper halves of the floats.
std::string AsBf16(std::span<const float> values) {
  std::string stored;
  for (const float value : values) {
    std::array<char, 4> bytes{};
    std::memcpy(bytes.data(), &value, 4);
    stored.append(bytes.data() + 2, 2);
  }
  return stored;
}

// As if the run itself had saved the new values: the checksum knows them.
void ReplaceValues(const std::string& path, const std::string& old_values,
                   const std::string& new_values) {
  std::ifstream in(path, std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(in)), {});
  const size_t at = file.find(old_values);
  ASSERT_NE(at, std::string::npos);
  const RecordBytes record(path, at);
  const std::string before = record.Crc(file);
  file.replace(at, new_values.size(), new_values);
  record.Replace(before, record.Crc(file), file);
  std::ofstream(path, std::ios::binary) << file;
}

// Whose stable rank hides it.
TEST(Damage, ALayerThatIsTenThousandTimesLargerIsFirst) {
  const std::string twotags = "s2-ws2-bf16-none-twotags";
  const SpoiltCopy copy(twotags);
  const auto golden = ReadGolden(TagOf(twotags, "ckpt", "step5"));
  const std::string name = "odd.weight";
  std::vector<float> values = golden.at("momentum_buffer/" + name).floats;
  const std::string stored = AsBf16(values);
  for (float& value : values) value *= 16384;  // Exact in bf16.
  ReplaceValues(copy.file(kRank1), stored, AsBf16(values));
  const json alone = InspectJson({"momentum", copy.root(), "--tag", "step5"});
  EXPECT_EQ(alone["matrices"][0]["parameter"], name);
  EXPECT_EQ(alone["matrices"][0]["norm_ratio"], nullptr);
  const json compared = InspectJson({"momentum", copy.root(), "--tag", "step5",
                                     "--vs", copy.root(), "--vs-tag", "step8"});
  EXPECT_EQ(compared["matrices"][0]["parameter"], name);
  EXPECT_GT(compared["matrices"][0]["norm_ratio"], 1000);
  // The other way round only the comparison shows it.
  const json shrunk = InspectJson(
      {"momentum", copy.root(), "--vs", copy.root(), "--vs-tag", "step5"});
  EXPECT_EQ(shrunk["matrices"][0]["parameter"], name);
  EXPECT_LT(shrunk["matrices"][0]["norm_ratio"], 0.001);
}

TEST(Damage, AnInfinityInTheMomentumIsNamedWithItsPlace) {
  const SpoiltCopy copy(kSound);
  const auto golden = ReadGolden(TagOf(kSound, "ckpt", "step5"));
  const std::string stored =
      AsBf16(golden.at("momentum_buffer/odd.weight").floats);
  std::string broken = stored;
  broken.replace((3 * 13 + 4) * 2, 2, "\x80\x7F");
  ReplaceValues(copy.file(kRank1), stored, broken);
  const json momentum = InspectJson({"momentum", copy.root()}, 1);
  EXPECT_EQ(momentum["flagged"]["nonfinite"], 1);
  const json& worst = momentum["matrices"][0];
  EXPECT_EQ(worst["parameter"], "odd.weight");
  EXPECT_EQ(worst["stats"]["num_nonfinite"], 1);
  EXPECT_EQ(worst["stats"]["first_nonfinite"], (json{3, 4}));
  EXPECT_EQ(worst["stats"]["max"].is_number(), true);
  EXPECT_THAT(Inspect({"momentum", copy.root()}).out,
              HasSubstr("nonfinite (1, first at [3, 4])"));
  EXPECT_EQ(Inspect({"stats", copy.root()}).exit_code, 0);
}

TEST(Damage, ACutFileIsUnreadableAndVerifyNamesIt) {
  const SpoiltCopy copy(kSound);
  fs::resize_file(copy.file(kRank1), fs::file_size(copy.file(kRank1)) / 2);
  const ProcessResult momentum = Inspect({"momentum", copy.root()});
  EXPECT_EQ(momentum.exit_code, 4);
  EXPECT_THAT(momentum.err, HasSubstr(kRank1));
  const ProcessResult verify = Inspect({"verify", copy.root()});
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.out, HasSubstr(kRank1));
}

TEST(Damage, AMissingRankIsListedNotFatal) {
  const SpoiltCopy copy(kSound);
  fs::remove(copy.file(kRank1));
  const json list = InspectJson({"list", copy.root()});
  EXPECT_EQ(list["tags"][0]["complete"], false);
  EXPECT_FALSE(list["tags"][0]["missing"].empty());
  EXPECT_THAT(Inspect({"list", copy.root()}).out, HasSubstr("INCOMPLETE"));
  // What is there is not judged by the ranks that are not.
  EXPECT_EQ(list["tags"][0]["missing"].size(), 1U);
  EXPECT_EQ(Inspect({"verify", copy.root()}).exit_code, 1);
  EXPECT_EQ(Inspect({"verify", copy.root(), "--quick"}).exit_code, 1);
}

TEST(Damage, InputsAreOnlyRead) {
  const SpoiltCopy copy(kSound);
  const auto snapshot = [&] {
    std::vector<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(copy.root())) {
      out.push_back(
          entry.path().string() + " " +
          std::to_string(
              fs::last_write_time(entry.path()).time_since_epoch().count()));
    }
    return out;
  };
  const auto before = snapshot();
  for (const char* command :
       {"summary", "list", "tensors", "momentum", "verify"}) {
    EXPECT_EQ(Inspect({command, copy.root()}).exit_code, 0);
  }
  EXPECT_EQ(Inspect({"diff", copy.root(), copy.root()}).exit_code, 0);
  EXPECT_EQ(snapshot(), before);
}

}  // namespace
}  // namespace muonstore::testutil
