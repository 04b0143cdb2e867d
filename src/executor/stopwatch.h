// Adds the time of a scope to a sum of seconds.

#ifndef MUONSTORE_SRC_EXECUTOR_STOPWATCH_H_
#define MUONSTORE_SRC_EXECUTOR_STOPWATCH_H_

#include <chrono>

namespace muonstore {

class Stopwatch {
 public:
  explicit Stopwatch(double& sum_s)
      : sum_s_(sum_s), start_(std::chrono::steady_clock::now()) {}
  ~Stopwatch() {
    sum_s_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
            .count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& sum_s_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_STOPWATCH_H_
