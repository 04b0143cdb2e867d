#include "tests/native/check_manifest.h"

#include <cstdlib>
#include <span>

#include "formats/native/block_table.h"
#include "formats/native/check_blocks.h"
#include "formats/native/hash.h"
#include "formats/native/layout.h"
#include "formats/native/manifest.h"
#include "formats/native/manifest_names.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// A run of the fuzzer must end soon.
constexpr uint64_t kMaxTableBytes = 1 << 20;

// An empty table fits no file that has segments: an error, or none.
void WalkBlocks(const Manifest& manifest, const Layout& layout) {
  try {
    CheckBlocks(manifest, layout, BlockTable(layout, manifest.block_bytes));
  } catch (const Error&) {
    return;
  }
}

void WalkLayout(const Manifest& manifest) {
  const Layout layout(manifest);
  for (const ManifestTensor& entry : manifest.tensors) {
    for (const Fragment& fragment : layout.present_fragments(entry)) {
      const auto segment = static_cast<size_t>(fragment.segment);
      if (fragment.segment_offset + fragment.length >
          layout.segments()[segment].num_elements) {
        std::abort();  // A read beyond its segment.
      }
    }
  }
  if (BlockTable::FileBytes(layout, manifest.block_bytes) < kMaxTableBytes) {
    WalkBlocks(manifest, layout);
  }
}

}  // namespace

std::string Sign(const std::string& text) {
  const size_t end_bytes =
      kDigestKey.size() + kDigestHexDigits + kDigestEnd.size();
  const size_t end = text.rfind(kDigestKey);
  const bool has_end = end != text.npos && end + end_bytes == text.size();
  const std::string body = has_end ? text.substr(0, end) : text;
  const uint64_t digest = Hash64(std::as_bytes(std::span(body)));
  return StrCat(body, kDigestKey, ToHex(digest), kDigestEnd);
}

bool CheckManifest(const std::string& text) {
  try {
    const Manifest manifest = ParseManifest(Sign(text));
    const std::string again = WriteManifest(manifest);
    if (WriteManifest(ParseManifest(again)) != again) {
      std::abort();  // Not the same after a round trip.
    }
    WalkLayout(manifest);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace muonstore::native
