#include "converters/fingerprinted_sink.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr std::string_view kSuffix = ".fingerprint.json";

class WatchedFile final : public SinkFile {
 public:
  WatchedFile(std::unique_ptr<SinkFile> file, Fingerprint& fingerprint)
      : file_(std::move(file)), fingerprint_(fingerprint) {}

  const std::string& path() const override { return file_->path(); }
  std::span<const SinkSegment> segments() const override {
    return file_->segments();
  }
  void Append(size_t segment, std::span<const std::byte> bytes) override {
    if (!watch_ || segment != segment_) {
      watch_.emplace(fingerprint_, file_->segments()[segment]);
      segment_ = segment;
    }
    watch_->Append(bytes);
    file_->Append(segment, bytes);
  }
  void Close() override { file_->Close(); }

 private:
  std::unique_ptr<SinkFile> file_;
  Fingerprint& fingerprint_;
  std::optional<SegmentFingerprint> watch_;
  size_t segment_ = 0;
};

}  // namespace

std::string FingerprintName(const std::string& tag) {
  return StrCat(tag, kSuffix);
}

bool IsFingerprintName(const std::string& file_name) {
  return file_name.ends_with(kSuffix);
}

FingerprintedSink::FingerprintedSink(std::unique_ptr<CheckpointSink> sink,
                                     const Checkpoint& source,
                                     os::OutputRoot& root,
                                     const std::string& tag, bool overwrite)
    : sink_(std::move(sink)), root_(root), tag_(tag), fingerprint_(source) {
  const std::string path = StrCat(root.path(), "/", FingerprintName(tag));
  if (!overwrite && (root.fs().ReadLink(path) || root.fs().Stat(path))) {
    throw Error(ErrorCode::kInvalidArgument,
                "is there already and would be replaced by the tag's "
                "fingerprint; --overwrite allows that",
                {.file = path});
  }
}

std::unique_ptr<SinkFile> FingerprintedSink::CreateFile(size_t file) {
  return std::make_unique<WatchedFile>(sink_->CreateFile(file), fingerprint_);
}

void FingerprintedSink::Finish() {
  if (file_ != nullptr) return;
  sink_->Finish();
  const std::string json = fingerprint_.ToJson(sink_->losses());
  file_ = std::make_unique<os::StagedFile>(root_, FingerprintName(tag_));
  file_->Write(std::as_bytes(std::span(json)));
  file_->Finish();
}

void FingerprintedSink::Commit() {
  Finish();
  // The old one must not stand beside the new tag.
  os::SetAside before(root_, FingerprintName(tag_));
  sink_->Commit();
  before.Drop();
  file_->Commit();
}

}  // namespace muonstore
