// EXPECT_ERROR(statement, code, substring of what()).
#ifndef MUONSTORE_TESTS_TORCHFILE_EXPECT_ERROR_H_
#define MUONSTORE_TESTS_TORCHFILE_EXPECT_ERROR_H_

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"

#define EXPECT_ERROR(statement, expected_code, text)                  \
  try {                                                               \
    statement;                                                        \
    ADD_FAILURE() << "no error; expected: " << (text);                \
  } catch (const ::muonstore::Error& error) {                         \
    EXPECT_EQ(::muonstore::ErrorCodeName(error.code()),               \
              ::muonstore::ErrorCodeName(expected_code))              \
        << error.what();                                              \
    EXPECT_THAT(std::string(error.what()), testing::HasSubstr(text)); \
  }

#endif  // MUONSTORE_TESTS_TORCHFILE_EXPECT_ERROR_H_
