// Checkpoints of the fixtures, and copies of them that a test may spoil.
#ifndef MUONSTORE_TESTS_TOOLS_SPOILT_COPY_H_
#define MUONSTORE_TESTS_TOOLS_SPOILT_COPY_H_

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/testutil/fixtures.h"
#include "tests/tools/cli.h"

namespace muonstore::testutil {

inline DeepSpeedTag TagOf(const std::string& case_name,
                          const std::string& root_name,
                          const std::string& tag) {
  return {.case_name = case_name,
          .folder = FindDeepSpeedCase(case_name).folder,
          .root_name = root_name,
          .tag = tag};
}

// A copy of a checkpoint that a test may spoil.
class SpoiltCopy {
 public:
  explicit SpoiltCopy(const std::string& case_name) {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(testing::TempDir()) / "cli_test" /
            (std::string(info->test_suite_name()) + info->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_.parent_path());
    std::filesystem::copy(CheckpointRoot(case_name), root_,
                          std::filesystem::copy_options::recursive);
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root_)) {
      std::filesystem::permissions(entry.path(),
                                   std::filesystem::perms::owner_all,
                                   std::filesystem::perm_options::add);
    }
  }
  ~SpoiltCopy() { std::filesystem::remove_all(root_); }
  SpoiltCopy(const SpoiltCopy&) = delete;
  SpoiltCopy& operator=(const SpoiltCopy&) = delete;

  std::string root() const { return root_.string(); }
  std::filesystem::path file(const std::string& name) const {
    return root_ / "step5" / name;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TOOLS_SPOILT_COPY_H_
