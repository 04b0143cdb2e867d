#include "src/base/log.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

using Lines = std::vector<std::pair<LogLevel, std::string>>;

// Collects lines while it lives.
class Collected {
 public:
  Collected() {
    SetLogHandler([this](LogLevel level, std::string_view text) {
      lines.emplace_back(level, text);
    });
  }
  ~Collected() {
    SetLogHandler(nullptr);
    SetLogLevel(LogLevel::kWarning);
  }

  Lines lines;
};

TEST(LogTest, WarningsAreSaidAndLessIsNot) {
  const Collected collected;
  Log(LogLevel::kInfo, "info");
  Log(LogLevel::kWarning, "warning {} %s");
  Log(LogLevel::kError, "error");
  EXPECT_THAT(collected.lines,
              ElementsAre(Pair(LogLevel::kWarning, "warning {} %s"),
                          Pair(LogLevel::kError, "error")));
}

TEST(LogTest, ALevelOutlivesAHandler) {
  SetLogLevel(LogLevel::kDebug);
  const Collected collected;
  Log(LogLevel::kDebug, "debug");
  SetLogLevel(LogLevel::kOff);
  Log(LogLevel::kError, "error");
  EXPECT_THAT(collected.lines, ElementsAre(Pair(LogLevel::kDebug, "debug")));
}

TEST(LogTest, WhatAHandlerThrowsIsSwallowed) {
  SetLogHandler(
      [](LogLevel, std::string_view) { throw std::runtime_error("handler"); });
  EXPECT_NO_THROW(Log(LogLevel::kError, "error"));
  SetLogHandler(nullptr);
}

TEST(LogTest, StandardErrorHasOneLineEach) {
  ::testing::internal::CaptureStderr();
  SetLogHandler(nullptr);
  Log(LogLevel::kWarning, "limit met");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "muonstore: warning: limit met\n");
}

}  // namespace
}  // namespace muonstore
