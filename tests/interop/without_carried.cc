// Writes a native tag that carries nothing beside its tensors, as a program
// that never saw DeepSpeed's files would.
//
//   without_carried SOURCE TAG ROOT
#include <exception>
#include <iostream>
#include <memory>
#include <string>

#include "converters/make_sink.h"
#include "converters/target_layout.h"
#include "muonstore/convert.h"
#include "muonstore/open.h"
#include "src/os/output_root.h"

namespace muonstore {
namespace {

class WithoutCarried final : public Checkpoint {
 public:
  explicit WithoutCarried(const Checkpoint& source) : source_(source) {}

  const CheckpointInfo& info() const override { return source_.info(); }
  std::span<const CheckpointTensor> tensors() const override {
    return source_.tensors();
  }
  std::vector<Fragment> fragments(size_t tensor) const override {
    return source_.fragments(tensor);
  }
  std::span<const Segment> segments() const override {
    return source_.segments();
  }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override {
    source_.ReadSegment(segment, first_element, out);
  }

 private:
  const Checkpoint& source_;
};

void Write(const std::string& path, const std::string& tag,
           const std::string& target) {
  const auto source = OpenCheckpoint(PosixFileSystem(), path, {.tag = tag});
  const WithoutCarried bare(*source);
  const TargetLayout layout = ChooseLayout(bare, {}).layout;
  os::OutputRoot root(PosixFileSystem(), target);
  const auto sink = MakeSink(bare, layout, root, {.tag = tag});
  Convert(bare, *sink, PlanConversion(bare, *sink), {});
}

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    muonstore::Write(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
