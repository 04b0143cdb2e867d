// Finds the checkpoints that tests read.
//
// What: a fixture root holds families (`deepspeed/`, `torchfiles/`) of files
//   that other programs wrote. tests/data of this repository is always one; a
//   larger set is used where $MUONSTORE_FIXTURES names one or where it lies at
//   ../shared/fixtures beside the repository.
// Ownership: plain values. Fixtures are read-only: copy before you change one.
// Threads: pure functions of the file system.
// Failures: std::runtime_error where a named fixture is in no root.

#ifndef MUONSTORE_TESTS_TESTUTIL_FIXTURES_H_
#define MUONSTORE_TESTS_TESTUTIL_FIXTURES_H_

#include <filesystem>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace muonstore::testutil {

// The roots that exist, the largest first, tests/data last.
std::vector<std::filesystem::path> FixtureRoots();

// <repository>/tests/data, whatever other roots there are.
std::filesystem::path RepositoryData();

// `relative` ("torchfiles/plain.pt") in the first root that has it.
std::filesystem::path FixturePath(std::string_view relative);

// One folder of the `deepspeed` family: ckpt/, perhaps ckpt_resaved/,
// golden.h5.
struct DeepSpeedCase {
  std::string name;  // "s2-ws2-bf16-none-base".
  std::filesystem::path folder;
};

// Every case once, by name; one that is in several roots from the first.
std::vector<DeepSpeedCase> DeepSpeedCases();
// The case of that name.
DeepSpeedCase FindDeepSpeedCase(std::string_view name);

// One tag of a case.
struct DeepSpeedTag {
  std::string case_name;
  std::filesystem::path folder;  // Of the case.
  std::string root_name;         // "ckpt" or "ckpt_resaved".
  std::string tag;               // "step5".

  std::filesystem::path path() const { return folder / root_name / tag; }
  std::filesystem::path golden_path() const { return folder / "golden.h5"; }
  // "s2-ws2-bf16-none-twotags/ckpt/step8", for messages.
  std::string ToString() const;
};

// GoogleTest shows these where a case or tag is a test's parameter.
std::ostream& operator<<(std::ostream& out, const DeepSpeedCase& one);
std::ostream& operator<<(std::ostream& out, const DeepSpeedTag& tag);

// Every tag of every case, resaved ones included.
std::vector<DeepSpeedTag> DeepSpeedTags();

// `text` as a name that GoogleTest takes for a parameterized test. Distinct
// case names stay distinct: "-" and "/" become "_", "+" becomes "_and_".
std::string TestName(std::string_view text);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_FIXTURES_H_
