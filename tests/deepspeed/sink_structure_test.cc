// Real files written again with their own layout: the same values, key for key.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/values.h"
#include "muonstore/file_system.h"
#include "tests/deepspeed/convert_in_test.h"
#include "tests/deepspeed/dump_tree.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

namespace fs = std::filesystem;
using testutil::DeepSpeedTag;

std::vector<std::string> DumpOf(const fs::path& path) {
  return DumpTree(
      *torchfile::TorchFile::Open(PosixFileSystem(), path.string()));
}

// Where our files differ on purpose from those that real DeepSpeed wrote.
class Accepted {
 public:
  explicit Accepted(const DeepSpeedCheckpoint& source)
      : stage_(source.info().stage.value_or(0)),
        is_old_(VersionBefore(source.parts().ranks[0].version, {0, 19, 7})),
        is_round_robin_(source.parts().model->config.round_robin),
        leaves_frozen_out_(source.carried_state()
                               ->rank(0)
                               .model_states->value()
                               .Get("frozen_param_shapes")
                               .is_none()) {}

  // What is left to compare of a file's lines.
  std::vector<std::string> Strip(std::vector<std::string> lines) const {
    std::erase_if(lines,
                  [&](const std::string& line) { return IsLeftOut(line); });
    for (std::string& line : lines) {
      if (HasOtherValues(line)) {
        line.erase(line.find(" crc "));
      }
    }
    return lines;
  }

 private:
  static bool Has(const std::string& line, std::string_view part) {
    return line.find(part) != std::string::npos;
  }

  bool IsLeftOut(const std::string& line) const {
    // Older versions do not know it; 0.19.8 reads files with it.
    const bool is_new_key = is_old_ && Has(line, "param_alignment_paddings");
    // DeepSpeed's own are wrong with round_robin_gradients.
    const bool is_wrong_there =
        is_round_robin_ && Has(line, "param_slice_mappings");
    // save_muon_momentum_buffer_in_memory: {'swappable': False}.
    const bool is_mark = Has(line, "momentum_buffer'/attributes");
    // DeepSpeed numbers the frozen parameters, too; these files do not say
    // that there are any. Nothing reads the numbers of resident tensors.
    const bool is_number = leaves_frozen_out_ && Has(line, "'ds_id'");
    return is_new_key || is_wrong_there || is_mark || is_number;
  }

  bool HasOtherValues(const std::string& line) const {
    if (!Has(line, " crc ")) {
      return false;
    }
    // DeepSpeed leaves garbage in the padding of stage 3; ours is zero.
    const bool is_padded = stage_ == 3 && (Has(line, "fp32_flat_groups") ||
                                           Has(line, "optimizer_state_dict"));
    // Old versions keep replicas that differ; ours are those of the owners.
    const bool is_replica = is_old_ && Has(line, "momentum_buffer");
    return is_padded || is_replica;
  }

  int32_t stage_;
  bool is_old_;
  bool is_round_robin_;
  bool leaves_frozen_out_;
};

void ExpectSameLines(const std::vector<std::string>& expected,
                     const std::vector<std::string>& found) {
  for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    const std::string want = i < expected.size() ? expected[i] : "nothing";
    const std::string have = i < found.size() ? found[i] : "nothing";
    ASSERT_EQ(want, have);
  }
}

class SinkStructureTest : public testing::TestWithParam<DeepSpeedTag> {};

TEST_P(SinkStructureTest, OwnLayoutGivesTheSameFiles) {
  const DeepSpeedTag& tag = GetParam();
  const auto source = DeepSpeedCheckpoint::Open(
      PosixFileSystem(), tag.path().string(), {.allow_loss = true});
  if (source->parts().ranks[0].elastic || source->info().offload == "nvme") {
    GTEST_SKIP() << "forms that are read and never written";
  }
  const testutil::Scratch scratch;
  const auto copy = ConvertTo(*source, OwnLayout(*source),
                              (scratch / "out").string(), tag.tag);
  EXPECT_EQ(DifferenceOf(*source, *copy), "");
  const Accepted accepted(*source);
  size_t num_files = 0;
  for (const auto& entry : fs::directory_iterator(tag.path())) {
    if (entry.path().extension() == ".pt") {
      ++num_files;
      SCOPED_TRACE(entry.path().filename().string());
      const fs::path same = scratch / "out" / tag.tag / entry.path().filename();
      ASSERT_TRUE(fs::exists(same));
      ExpectSameLines(accepted.Strip(DumpOf(entry.path())),
                      accepted.Strip(DumpOf(same)));
    }
  }
  EXPECT_GE(num_files, 2u);
}

INSTANTIATE_TEST_SUITE_P(AllTags, SinkStructureTest,
                         testing::ValuesIn(testutil::DeepSpeedTags()),
                         [](const auto& param) {
                           return testutil::TestName(param.param.ToString());
                         });

}  // namespace
}  // namespace muonstore::deepspeed
