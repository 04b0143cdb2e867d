#include "examples/train_gpt/curve.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <stdexcept>
#include <string>
#include <system_error>

namespace train_gpt {
namespace {

constexpr const char* kHeader = "step,loss,norm,seconds";

// The header and the rows of steps up to `last_step` of an earlier run's file.
std::string RowsUpTo(const std::string& path, int64_t last_step) {
  std::error_code error;
  // Reading a device or a pipe may never end.
  if (!std::filesystem::is_regular_file(path, error)) {
    return std::string(kHeader) + "\n";
  }
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::string(kHeader) + "\n";
  if (line != kHeader) {
    throw std::runtime_error(path +
                             " is no curve to go on with: its first "
                             "line is not " +
                             kHeader);
  }
  std::string rows = line + "\n";
  // A last line without an end was cut, whatever its step.
  while (std::getline(file, line) && !file.eof()) {
    char* end = nullptr;
    const int64_t step = std::strtoll(line.c_str(), &end, 10);
    // What a killed run did after its checkpoint is done again.
    if (*end == ',' && step <= last_step) rows += line + "\n";
  }
  return rows;
}

}  // namespace

Curve::Curve(const Flags& flags, int64_t first_step)
    : num_steps_(flags.num_steps),
      step_(first_step),
      on_terminal_(isatty(STDOUT_FILENO) != 0),
      start_(std::chrono::steady_clock::now()) {
  if (!flags.csv.empty()) OpenCsv(flags);
}

void Curve::OpenCsv(const Flags& flags) {
  const std::string rows = flags.checkpoints.resume.empty()
                               ? std::string(kHeader) + "\n"
                               : RowsUpTo(flags.csv, step_);
  csv_.open(flags.csv);
  csv_ << rows << std::setprecision(17) << std::flush;
  if (!csv_) throw std::runtime_error("cannot write " + flags.csv);
}

void Curve::Add(const Point& point) {
  ++step_;
  if (++num_added_ == 1) first_loss_ = point.loss;
  last_loss_ = point.loss;
  const double seconds = Seconds();
  // On a terminal one line that is written over; every step otherwise.
  std::printf("%sstep %lld/%lld  loss %.6f  gradient norm %.4f  %.3f s/step%s",
              on_terminal_ ? "\r" : "", static_cast<long long>(step_),
              static_cast<long long>(num_steps_), point.loss, point.norm,
              seconds / static_cast<double>(num_added_),
              on_terminal_ ? "" : "\n");
  std::fflush(stdout);
  if (csv_.is_open()) {
    // A run that is killed keeps its curve so far.
    csv_ << step_ << ',' << point.loss << ',' << point.norm << ',' << seconds
         << std::endl;
  }
}

void Curve::Finish() {
  if (num_added_ == 0) {
    std::printf("no step to do: the run is at step %lld of %lld\n",
                static_cast<long long>(step_),
                static_cast<long long>(num_steps_));
  } else {
    std::printf("%s%lld steps in %.1f s: loss %.4f -> %.4f\n",
                on_terminal_ ? "\n" : "", static_cast<long long>(num_added_),
                Seconds(), first_loss_, last_loss_);
  }
  if (!csv_.is_open()) return;
  csv_.close();
  if (!csv_) throw std::runtime_error("the CSV file could not be written");
}

double Curve::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                       start_)
      .count();
}

}  // namespace train_gpt
