// One suite for every communicator: what include/muonstore/communicator.h
// promises.
//
// What: each check is a function that all ranks call at the same time, as
//   threads, as processes, under GoogleTest or from Python. A check throws
//   where a promise is broken.
#ifndef MUONSTORE_TESTS_CONFORMANCE_COMMUNICATOR_CHECKS_H_
#define MUONSTORE_TESTS_CONFORMANCE_COMMUNICATOR_CHECKS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/communicator.h"

namespace muonstore::conformance {

// Connects this rank. The timeout of a check is for peers that are gone.
using Connect = std::function<std::unique_ptr<Communicator>(
    std::chrono::milliseconds timeout)>;

// What becomes of the last rank while the others look on.
enum class LastRank {
  kLives,
  kDies,   // By SIGKILL, by its own hand.
  kHangs,  // Never returns: somebody must kill it.
};

struct CommunicatorCheck {
  std::string name;
  void (*run)(const Connect& connect);
  // Whether one rank alone can run it.
  int32_t min_ranks = 1;
  LastRank last_rank = LastRank::kLives;
};

// Everybody behaves.
std::vector<CommunicatorCheck> WorkingChecks();
// Somebody does not: all others get an Error(kUnavailable).
std::vector<CommunicatorCheck> FaultChecks();

}  // namespace muonstore::conformance

#endif  // MUONSTORE_TESTS_CONFORMANCE_COMMUNICATOR_CHECKS_H_
