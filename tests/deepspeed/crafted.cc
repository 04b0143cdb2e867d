#include "tests/deepspeed/crafted.h"

#include <memory>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/list.h"
#include "formats/deepspeed/verify.h"
#include "muonstore/file_system.h"

namespace muonstore::deepspeed {
namespace {

PythonValue Ones(DType dtype, int64_t count) {
  const auto size = static_cast<size_t>(count * SizeBytes(dtype));
  return PythonValue::Tensor(
      {.dtype = dtype,
       .shape = {count},
       .storage = std::make_shared<std::string>(size, '\x01')});
}

void ExpectWords(const std::string& text,
                 const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_THAT(text, testing::HasSubstr(word));
  }
}

void ExpectOne(const std::vector<Finding>& findings, const Finding& expected,
               const std::vector<std::string>& words) {
  ASSERT_EQ(findings.size(), 1U) << words[0];
  EXPECT_EQ(findings[0].severity, expected.severity);
  EXPECT_EQ(findings[0].code, expected.code);
  ExpectWords(findings[0].ToString(), words);
}

}  // namespace

CheckpointSpec CraftedSpec(int stage) {
  CheckpointSpec spec;
  spec.parameters = {
      {.dims = {4, 6}},
      {.dims = {3, 5}},
      {.dims = {7}, .group = 1, .is_muon = false},
      {.dims = {3, 3}, .is_trained = false},
  };
  spec.rule = {.stage = stage, .num_ranks = 2};
  return spec;
}

PythonValue& Crafted::state(int rank, int64_t flat_group) {
  return zero(rank)
      .Get(spec_.rule.stage == 3 ? "optimizer_state_dict"
                                 : "base_optimizer_state")
      .Get("state")
      .GetInt(flat_group);
}

void Crafted::Open() const {
  files_.Write(tag());
  OpenWritten();
}

void Crafted::Rewrite(const std::string& name) const {
  CheckpointFiles one;
  one.torch_files.emplace(name, files_.torch_files.at(name));
  one.Write(tag());
}

void Crafted::OpenWritten() const {
  DeepSpeedCheckpoint::Open(PosixFileSystem(), tag(), {});
}

void Crafted::ExpectError(ErrorCode code,
                          const std::vector<std::string>& words) const {
  std::optional<Error> error;
  try {
    Open();
  } catch (const Error& thrown) {
    error = thrown;
  }
  ASSERT_TRUE(error.has_value()) << "opened, expected: " << words[0];
  EXPECT_EQ(error->code(), code) << error->what();
  ExpectWords(error->what(), words);
  EXPECT_FALSE(error->place().file.empty()) << error->what();
  EXPECT_FALSE(Faults().empty());
  ListTag(PosixFileSystem(), tag());  // Never throws.
}

void Crafted::ExpectSound() const {
  EXPECT_NO_THROW(Open());
  EXPECT_EQ(Faults(), std::vector<std::string>());
}

void Crafted::ExpectFinding(Finding::Severity severity, const std::string& code,
                            const std::vector<std::string>& words) const {
  files_.Write(tag());
  const Finding expected{.severity = severity, .code = code};
  const auto checkpoint =
      DeepSpeedCheckpoint::Open(PosixFileSystem(), tag(), {});
  ExpectOne(checkpoint->info().findings, expected, words);
  ExpectOne(Verify(), expected, words);
}

std::vector<Finding> Crafted::Verify() const {
  return VerifyTag(PosixFileSystem(), tag(), {}).findings;
}

std::vector<std::string> Crafted::Faults() const {
  std::vector<std::string> faults;
  for (const Finding& finding : Verify()) {
    if (finding.severity == Finding::Severity::kFault) {
      faults.push_back(finding.ToString());
    }
  }
  return faults;
}

PythonValue F32(int64_t count) { return Ones(DType::kF32, count); }
PythonValue BF16(int64_t count) { return Ones(DType::kBF16, count); }

}  // namespace muonstore::deepspeed
