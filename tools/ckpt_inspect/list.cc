// `list`: the tags of a checkpoint root.
#include <chrono>

#include "src/base/str.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/common/json.h"
#include "tools/common/table.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// What is missing is shown up to this many names; --json has them all.
constexpr size_t kMaxMissing = 3;

std::string OrDash(const std::optional<int64_t>& value) {
  return value ? StrCat(*value) : "-";
}

std::string Age(int64_t modified_ns) {
  if (modified_ns == 0) return "-";
  using std::chrono::seconds;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t now_s = std::chrono::duration_cast<seconds>(now).count();
  return HumanAge(now_s - modified_ns / 1'000'000'000);
}

std::string AsText(const RootListing& listing) {
  Table table({{"tag"},
               {"step", kRight},
               {"stage", kRight},
               {"ranks", kRight},
               {"bytes", kRight},
               {"age", kRight},
               {"state"}});
  for (const TagListing& tag : listing.tags) {
    std::string state = !tag.complete      ? "INCOMPLETE"
                        : tag.sizes_proven ? "complete"
                                           : "files present";
    if (!tag.missing.empty()) {
      state += ": " + Printable(JoinNames(tag.missing, kMaxMissing));
    }
    if (tag.is_latest) state += "  <- latest";
    table.AddRow({Printable(tag.tag), OrDash(tag.step), OrDash(tag.stage),
                  StrCat(tag.num_ranks), HumanBytes(tag.size_bytes),
                  Age(tag.modified_ns), state});
  }
  std::string out = table.ToString();
  for (const Finding& finding : listing.findings) {
    out += StrCat(SeverityName(finding.severity), ": ",
                  Printable(finding.ToString()), "\n");
  }
  return out;
}

Json AsJson(const RootListing& listing) {
  Json json = JsonEnvelope("list");
  json["root"] = listing.root;
  json["latest"] =
      listing.latest.empty() ? Json(nullptr) : Json(listing.latest);
  json["tags"] = Json::array();
  for (const TagListing& tag : listing.tags) {
    Json entry;
    entry["tag"] = tag.tag;
    entry["step"] = ToJson(tag.step);
    entry["stage"] = ToJson(tag.stage);
    entry["num_ranks"] = tag.num_ranks;
    entry["size_bytes"] = tag.size_bytes;
    entry["modified_ns"] =
        tag.modified_ns == 0 ? Json(nullptr) : Json(tag.modified_ns);
    entry["complete"] = tag.complete;
    entry["sizes_proven"] = tag.sizes_proven;
    entry["missing"] = tag.missing;
    entry["is_latest"] = tag.is_latest;
    json["tags"].push_back(std::move(entry));
  }
  json["findings"] = Json::array();
  for (const Finding& finding : listing.findings) {
    json["findings"].push_back(ToJson(finding));
  }
  return json;
}

}  // namespace

Command AddList(CLI::App& root) {
  auto flags = std::make_shared<SourceFlags>();
  CLI::App* app = AddCommand(
      root, "list",
      {.brief = "The tags of a checkpoint root",
       .details = "Step, ZeRO stage, ranks, bytes, age, whether all files are "
                  "there, and which\n"
                  "tag 'latest' names, by names, sizes and the headers of rank "
                  "0. 'complete': each\n"
                  "file is as long as the tag itself says; 'files present': "
                  "the format does not\n"
                  "say, and none is too short. An INCOMPLETE tag is shown and "
                  "is no error:\n"
                  "'verify' judges.\n",
       .examples = "  ckpt-inspect list runs/7\n"
                   "  ckpt-inspect list runs/7 --json | jq '.tags[] | "
                   "select(.complete | not)'\n"});
  flags->AddPath(*app);
  flags->AddJson(*app);
  return {app, [flags](Session& session) {
            const RootListing listing = ListTags(session.fs, flags->path);
            session.out.Write(flags->json ? Render(AsJson(listing))
                                          : AsText(listing));
            return ExitCode::kOk;
          }};
}

}  // namespace muonstore::tools
