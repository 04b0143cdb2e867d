#include "formats/native/verify.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "formats/native/hash.h"
#include "formats/native/segment_reader.h"
#include "formats/native/tag_files.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;

class Verifier {
 public:
  Verifier(const TagFiles& tag, const VerifyOptions& options,
           VerifyReport& report)
      : tag_(tag), options_(options), report_(report) {}

  void Run() {
    const Manifest& manifest = tag_.manifest;
    for (int32_t rank = 0; rank < tag_.layout->num_ranks(); ++rank) {
      OnFile(tag_.rank_path(rank),
             [&](RandomAccessFile& file) { CheckRankFile(file, rank); });
    }
    for (size_t rank = 0; rank < manifest.carried.size(); ++rank) {
      CheckWhole(tag_.carried_path(static_cast<int32_t>(rank)),
                 manifest.carried[rank].digest);
    }
    if (manifest.view) {
      CheckWhole(tag_.view_path(), manifest.view->digest);
    }
  }

 private:
  // Files that are missing or have another size were reported already.
  template <typename Check>
  void OnFile(const std::string& path, const Check& check) {
    const bool known = std::any_of(
        report_.findings.begin(), report_.findings.end(),
        [&](const Finding& finding) { return finding.place.file == path; });
    if (known) {
      return;
    }
    try {
      check(*tag_.fs->OpenForRead(path));
    } catch (const Error& error) {
      Report(error.WithFile(path), "unreadable");
    }
  }

  void Report(const Error& error, std::string code) {
    report_.findings.push_back(Finding::FromError(error, std::move(code)));
  }

  // Passes bytes [begin, end) to `take` in pieces.
  template <typename Take>
  void ReadRange(RandomAccessFile& file, uint64_t begin, uint64_t end,
                 const Take& take) {
    for (uint64_t at = begin; at < end; at += buffer_.size()) {
      buffer_.resize(std::min(kPieceBytes, end - at));
      file.ReadAt(at, buffer_);
      take(at, std::span<const std::byte>(buffer_));
      done_bytes_ += buffer_.size();
      if (options_.progress) {
        options_.progress(done_bytes_, report_.size_bytes);
      }
    }
  }

  uint64_t DigestOf(RandomAccessFile& file, uint64_t begin, uint64_t end) {
    Hasher64 hasher;
    ReadRange(file, begin, end,
              [&](uint64_t /*at*/, std::span<const std::byte> bytes) {
                hasher.Update(bytes);
              });
    return hasher.Digest();
  }

  void CheckDigest(RandomAccessFile& file, uint64_t begin, uint64_t end,
                   uint64_t expected) {
    const uint64_t found = DigestOf(file, begin, end);
    if (found != expected) {
      Report({ErrorCode::kDataLoss,
              StrCat("bytes ", begin, " to ", end - 1, " are damaged"),
              {.file = file.path(),
               .offset_bytes = begin,
               .expected = StrCat("xxh3_64 ", ToHex(expected)),
               .found = ToHex(found)}},
             "checksum");
    }
  }

  void CheckWhole(const std::string& path, uint64_t digest) {
    OnFile(path, [&](RandomAccessFile& file) {
      CheckDigest(file, 0, file.size_bytes(), digest);
    });
  }

  void CheckRankFile(RandomAccessFile& file, int32_t rank) {
    const RankFile& info = tag_.manifest.files[static_cast<size_t>(rank)];
    CheckDigest(file, 0, kPageBytes, info.head_digest);
    CheckDigest(file, info.tail_offset, info.size_bytes, info.tail_digest);
    if (!tag_.blocks) {
      return;
    }
    for (size_t segment = tag_.layout->first_segment(rank);
         segment < tag_.layout->first_segment(rank + 1); ++segment) {
      CheckSegment(file, segment);
    }
  }

  void CheckSegment(RandomAccessFile& file, size_t segment) {
    const auto blocks = tag_.blocks->blocks(segment);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const Block& block = blocks[b];
      const uint64_t digest = DigestOf(file, block.offset_bytes,
                                       block.offset_bytes + block.stored_bytes);
      if (digest != block.digest) {
        Report(BlockDamage(tag_, segment, b, digest)
                   .WithTensor(TensorsIn(segment, b)),
               "checksum");
      }
    }
    if (!tag_.manifest.compressed) {
      const uint64_t end =
          blocks.back().offset_bytes + blocks.back().stored_bytes;
      CheckPadding(file, end,
                   end + (kPageBytes - end % kPageBytes) % kPageBytes);
    }
  }

  void CheckPadding(RandomAccessFile& file, uint64_t begin, uint64_t end) {
    ReadRange(
        file, begin, end, [&](uint64_t at, std::span<const std::byte> bytes) {
          const auto bad =
              std::find_if(bytes.begin(), bytes.end(),
                           [](std::byte byte) { return byte != std::byte{0}; });
          if (bad != bytes.end()) {
            Report({ErrorCode::kDataLoss,
                    "the padding of a segment is not zero",
                    {.file = file.path(),
                     .offset_bytes =
                         at + static_cast<uint64_t>(bad - bytes.begin())}},
                   "padding");
          }
        });
  }

  // The tensors with elements in a block.
  std::string TensorsIn(size_t segment, size_t block) const {
    const DType dtype = tag_.layout->segments()[segment].dtype;
    const int64_t per_block =
        static_cast<int64_t>(tag_.blocks->block_bytes()) / SizeBytes(dtype);
    const auto begin = static_cast<int64_t>(block) * per_block;
    std::vector<std::string> names;
    for (const ManifestTensor& entry : tag_.manifest.tensors) {
      const auto fragments = tag_.layout->fragments(entry);
      const bool inside = std::any_of(
          fragments.begin(), fragments.end(), [&](const Fragment& fragment) {
            return static_cast<size_t>(fragment.segment) == segment &&
                   fragment.segment_offset < begin + per_block &&
                   fragment.segment_offset + fragment.length > begin;
          });
      if (inside && !entry.tensor.derived) {
        names.push_back(entry.tensor.key.ToString());
      }
    }
    return JoinNames(names, options_.max_names);
  }

  const TagFiles& tag_;
  const VerifyOptions& options_;
  VerifyReport& report_;
  std::vector<std::byte> buffer_;
  uint64_t done_bytes_ = 0;
};

void ReportNames(const TagFiles& tag, size_t max_names, VerifyReport& report) {
  for (const auto* problems : {&tag.problems, &tag.view_problems}) {
    for (const Error& problem : *problems) {
      report.findings.push_back(Finding::FromError(problem, "structure"));
    }
  }
  for (const Finding& finding : tag.manifest.info.findings) {
    report.findings.push_back(finding);
  }
  for (const ManifestTensor& entry : tag.manifest.tensors) {
    if (!entry.tensor.missing.empty()) {
      report.findings.push_back(
          {.severity = Finding::Severity::kFault,
           .code = "missing_elements",
           .message = "elements that the source had lost are missing",
           .place = {.file = report.path,
                     .tensor = entry.tensor.key.ToString()}});
    }
  }
  if (!tag.extra_files.empty()) {
    report.findings.push_back(
        {.severity = Finding::Severity::kNote,
         .code = "extra_files",
         .message = StrCat("files that the manifest does not name: ",
                           JoinNames(tag.extra_files, max_names)),
         .place = {.file = report.path}});
  }
}

}  // namespace

VerifyReport VerifyTag(std::shared_ptr<FileSystem> fs,
                       const std::string& directory,
                       const VerifyOptions& options) {
  VerifyReport report;
  report.path = directory;
  report.tag = std::filesystem::path(directory).filename().string();
  try {
    const TagFiles tag = OpenTagFiles(std::move(fs), directory);
    report.num_files = tag.num_files;
    report.size_bytes = tag.size_bytes;
    ReportNames(tag, options.max_names, report);
    if (!options.quick) {
      Verifier(tag, options, report).Run();
    }
  } catch (const Error& error) {
    report.findings.push_back(Finding::FromError(error, "structure"));
  }
  return report;
}

}  // namespace muonstore::native
