// Precompiled for all tests: large, and used by nearly every one. Each test
// includes what it uses all the same.
#ifndef MUONSTORE_TESTS_TEST_HEADERS_H_
#define MUONSTORE_TESTS_TEST_HEADERS_H_

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#endif  // MUONSTORE_TESTS_TEST_HEADERS_H_
