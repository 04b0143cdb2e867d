// What a run shows and keeps of its steps.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_CURVE_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_CURVE_H_

#include <chrono>
#include <cstdint>
#include <fstream>

#include "examples/train_gpt/flags.h"

namespace train_gpt {

// Prints a line a step, keeps a counter on a terminal, and writes the CSV file.
class Curve {
 public:
  // Of a run that has done `first_step` steps before; a resumed one keeps the
  // file's rows of these.
  Curve(const Flags& flags, int64_t first_step);

  struct Point {
    double loss = 0;  // Of the step's batch, before its update.
    double norm = 0;  // Global norm of the gradients.
  };
  void Add(const Point& point);
  // Checks that the file is whole; says what the run did.
  void Finish();

 private:
  void OpenCsv(const Flags& flags);
  double Seconds() const;

  int64_t num_steps_;
  int64_t step_;
  int64_t num_added_ = 0;
  double first_loss_ = 0;
  double last_loss_ = 0;
  bool on_terminal_;
  std::ofstream csv_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_CURVE_H_
