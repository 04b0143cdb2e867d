#include <algorithm>
#include <filesystem>
#include <memory>
#include <tuple>
#include <utility>

#include "converters/locate.h"
#include "converters/torch_file_source.h"
#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/list.h"
#include "formats/deepspeed/verify.h"
#include "formats/native/checkpoint.h"
#include "formats/native/list.h"
#include "formats/native/verify.h"
#include "formats/torchfile/torch_file.h"
#include "muonstore/open.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// A message about the torch container helps nobody whose file is no torch file.
void RequireTorchFile(FileSystem& fs, const std::string& path) {
  if (path.ends_with(".safetensors")) {
    throw Error(ErrorCode::kUnsupported, "safetensors files are not supported",
                {.file = path});
  }
  const auto file = fs.OpenForRead(path);
  if (file->size_bytes() == 0) {
    throw Error(ErrorCode::kDataLoss, "the file is empty", {.file = path});
  }
  if (!torchfile::LooksLikeTorchFile(*file)) {
    throw Error(ErrorCode::kDataLoss,
                "neither a torch.save file nor any other known format",
                {.file = path});
  }
}

VerifyReport VerifyTorchFile(std::shared_ptr<FileSystem> fs,
                             const std::string& path,
                             const VerifyOptions& options) {
  RequireTorchFile(*fs, path);
  VerifyReport report;
  report.path = path;
  report.tag = std::filesystem::path(path).filename().string();
  report.num_files = 1;
  report.size_bytes = fs->Stat(path).value_or(FileStatus()).size_bytes;
  try {
    const auto file = torchfile::TorchFile::Open(std::move(fs), path);
    if (options.quick) {
      return report;
    }
    const auto faults = file->Verify([&](uint64_t bytes) {
      if (options.progress) {
        options.progress(bytes, report.size_bytes);
      }
    });
    for (const Error& fault : faults) {
      report.findings.push_back(Finding::FromError(fault, "checksum"));
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) {
      throw;
    }
    report.findings.push_back(Finding::FromError(error, "structure"));
  }
  return report;
}

void CheckLatest(RootListing& listing) {
  for (TagListing& tag : listing.tags) {
    tag.is_latest = tag.tag == listing.latest;
  }
  const bool found =
      std::any_of(listing.tags.begin(), listing.tags.end(),
                  [](const TagListing& tag) { return tag.is_latest; });
  if (!listing.latest.empty() && !found) {
    listing.findings.push_back(
        {.severity = Finding::Severity::kWarning,
         .code = "latest_names_no_tag",
         .message = StrCat("latest names ", Printable(listing.latest),
                           ", which is not a tag here"),
         .place = {.file = listing.root + "/latest"}});
  }
}

}  // namespace

std::unique_ptr<Checkpoint> OpenCheckpoint(std::shared_ptr<FileSystem> fs,
                                           const std::string& path,
                                           const OpenOptions& options) {
  const Location location = Locate(*fs, path, options.tag);
  if (location.kind == Location::Kind::kTorchFile) {
    RequireTorchFile(*fs, location.path);
    return TorchFileSource::Open(std::move(fs), location.path);
  }
  if (location.kind == Location::Kind::kNativeTag) {
    return native::NativeCheckpoint::Open(std::move(fs), location.path,
                                          {.allow_loss = options.allow_loss});
  }
  return deepspeed::DeepSpeedCheckpoint::Open(
      std::move(fs), location.path,
      {.allow_loss = options.allow_loss,
       .rank_zero_only = options.headers_of_rank_zero_only});
}

RootListing ListTags(const std::shared_ptr<FileSystem>& fs,
                     const std::string& path) {
  RootListing listing;
  listing.root = LocateRoot(*fs, path);
  try {
    listing.latest = LatestOf(*fs, listing.root);
  } catch (const Error& error) {
    listing.findings.push_back(Finding::FromError(error, "latest_unusable"));
    listing.findings.back().severity = Finding::Severity::kWarning;
  }
  for (const std::string& tag : TagsOf(*fs, listing.root)) {
    const std::string folder = listing.root + "/" + tag;
    listing.tags.push_back(KindOfTag(*fs, folder) == Location::Kind::kNativeTag
                               ? native::ListTag(fs, folder)
                               : deepspeed::ListTag(fs, folder));
  }
  std::sort(listing.tags.begin(), listing.tags.end(),
            [](const TagListing& a, const TagListing& b) {
              return std::tie(a.step, a.tag) < std::tie(b.step, b.tag);
            });
  for (const std::string& name : UncommittedTagsOf(*fs, listing.root)) {
    listing.findings.push_back(
        {.severity = Finding::Severity::kWarning,
         .code = "never_committed",
         .message = "no tag: a native save that never committed, or is still "
                    "under way (no manifest.json); the next save into this "
                    "root removes it",
         .place = {.file = listing.root + "/" + name}});
  }
  CheckLatest(listing);
  return listing;
}

VerifyReport VerifyCheckpoint(std::shared_ptr<FileSystem> fs,
                              const std::string& path,
                              const VerifyOptions& options) {
  const Location location = Locate(*fs, path, options.tag);
  if (location.kind == Location::Kind::kTorchFile) {
    return VerifyTorchFile(std::move(fs), location.path, options);
  }
  if (location.kind == Location::Kind::kNativeTag) {
    return native::VerifyTag(std::move(fs), location.path, options);
  }
  return deepspeed::VerifyTag(std::move(fs), location.path, options);
}

}  // namespace muonstore
