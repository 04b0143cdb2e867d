#include "tools/ckpt_convert/places.h"

#include <filesystem>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "tools/common/paths.h"

namespace muonstore::tools {
namespace {

namespace stdfs = std::filesystem;

void RefuseOverlap(const Places& places) {
  const stdfs::path source = Canonical(places.source_path);
  const stdfs::path target = Canonical(places.target_path());
  const auto refuse = [&](const char* message) {
    throw Error(ErrorCode::kInvalidArgument, message,
                {.file = places.target_path()});
  };
  if (target == source) {
    refuse("is the source itself; --out-tag gives the target another name");
  }
  if (IsInsideOrEqual(target, source)) refuse("lies inside the source");
  if (IsInsideOrEqual(source, target)) {
    refuse("holds the source, which would be replaced");
  }
  if (places.source_root.empty()) return;
  const stdfs::path root = Canonical(places.source_root);
  const stdfs::path target_root = Canonical(places.target_root);
  if (target_root != root && IsInsideOrEqual(target_root, root)) {
    refuse(
        "lies inside the source's root; write beside it, or into the root "
        "itself under another --out-tag");
  }
}

}  // namespace

Places FindPlaces(const CheckpointInfo& source, const std::string& target,
                  const std::string& out_tag) {
  Places places;
  places.source_path = source.path;
  places.target_root = target;
  while (places.target_root.size() > 1 && places.target_root.back() == '/') {
    places.target_root.pop_back();
  }
  const bool is_file = source.format == "torch file";
  // By its own name, whatever the path to it is called: ".", a link `latest`.
  places.tag = !out_tag.empty() ? out_tag
               : is_file        ? stdfs::path(source.path).stem().string()
                                : Canonical(source.path).filename().string();
  if (!is_file) {
    places.source_root = Canonical(source.path).parent_path().string();
    places.same_root =
        Canonical(places.source_root) == Canonical(places.target_root);
  }
  RefuseOverlap(places);
  return places;
}

}  // namespace muonstore::tools
