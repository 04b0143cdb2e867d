#include "tools/common/progress.h"

#include "src/base/str.h"
#include "tools/common/output.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// To the start of the line and wipe it; only ever sent to a terminal.
constexpr const char* kWipe = "\r\x1b[K";

}  // namespace

ProgressLine::~ProgressLine() {
  if (!shown_.empty()) WriteStderr(kWipe);
}

std::function<void(uint64_t, uint64_t)> ProgressLine::callback() {
  if (!enabled_) return {};
  return [this](uint64_t done, uint64_t total) { Show(done, total); };
}

std::string ProgressLine::Text(uint64_t done_bytes,
                               uint64_t total_bytes) const {
  const double part = total_bytes == 0 ? 1
                                       : static_cast<double>(done_bytes) /
                                             static_cast<double>(total_bytes);
  return StrCat(verb_, "  ", static_cast<int>(part * 100), " %  ",
                HumanBytes(done_bytes), " of ", HumanBytes(total_bytes));
}

void ProgressLine::Show(uint64_t done_bytes, uint64_t total_bytes) {
  std::string text = Text(done_bytes, total_bytes);
  // The text changes rarely enough to need no clock.
  if (text == shown_) return;
  WriteStderr(kWipe + text);
  shown_ = std::move(text);
}

}  // namespace muonstore::tools
