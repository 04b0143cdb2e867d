#include <string>
#include <utility>

#include "formats/native/hash.h"
#include "formats/native/json_fields.h"
#include "formats/native/manifest.h"
#include "formats/native/manifest_info_read.h"

namespace muonstore::native {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBlockBytes = 64 << 20;

ZeroRule ToRule(const json& value) {
  Fields fields(value, "rule");
  ZeroRule rule;
  rule.stage = static_cast<int32_t>(fields.Integer("stage", 1, 3));
  rule.num_ranks = fields.Int32("num_ranks", 1);
  rule.muon_order = AsWord(fields.Get("muon_order"), "muon_order", kOrderWords);
  rule.flat_alignment_elements = fields.Integer("flat_alignment_elements", 1);
  rule.round_robin = fields.Bool("round_robin");
  rule.parameter_alignment = fields.Bool("parameter_alignment");
  rule.sub_group_size = fields.Integer("sub_group_size", 1);
  rule.whole_rows = fields.BoolOrFalse("whole_rows");
  fields.Finish();
  return rule;
}

Shape ToShape(const json& value) {
  return Shape(ListOf<int64_t>(value, "shape", [](const json& dim) {
    return AsInteger(dim, "shape", 0);
  }));
}

DType ToDType(const json& value, std::string_view field) {
  const std::string name = AsText(value, field);
  const auto dtype = ParseDType(name);
  if (!dtype || DTypeName(*dtype) != name) {
    FailField(field, "a dtype", value);
  }
  return *dtype;
}

ParameterSpec ToParameter(const json& value) {
  Fields fields(value, "parameters");
  ParameterSpec spec;
  spec.name = fields.Text("name");
  spec.shape = ToShape(fields.Get("shape"));
  spec.group = fields.Int32("group", 0);
  spec.optimizer =
      AsWord(fields.Get("optimizer"), "optimizer", kOptimizerWords);
  spec.weight_dtype = ToDType(fields.Get("weight_dtype"), "weight_dtype");
  fields.Finish();
  return spec;
}

FlatGroup ToFlatGroup(const json& value) {
  Fields fields(value, "flat_groups");
  FlatGroup group;
  group.group = fields.Int32("group", 0);
  group.parameters = ListOf<int32_t>(
      fields.Get("parameters"), "parameters", [](const json& item) {
        return static_cast<int32_t>(AsInteger(
            item, "parameters", 0, std::numeric_limits<int32_t>::max()));
      });
  group.pad_after = ListOf<int64_t>(
      fields.Get("pad_after"), "pad_after",
      [](const json& item) { return AsInteger(item, "pad_after", 0); });
  group.partition_elements = fields.Integer("partition_elements", 0);
  fields.Finish();
  return group;
}

Slot ToSlot(const json& value) {
  Fields fields(value, "slots");
  Slot slot;
  slot.kind = fields.Text("kind");
  slot.dtype = ToDType(fields.Get("dtype"), "dtype");
  slot.num_elements = fields.Integer("num_elements", 1);
  if (const json* group = fields.Find("flat_group")) {
    slot.flat_group = static_cast<int32_t>(AsInteger(
        *group, "flat_group", 0, std::numeric_limits<int32_t>::max()));
  } else {
    slot.rank = fields.Int32("rank", 0);
  }
  fields.Finish();
  return slot;
}

std::vector<ElementRange> ToRanges(const json& value) {
  return ListOf<ElementRange>(value, "missing", [](const json& item) {
    const auto [begin, end] = AsPair(item, "missing");
    return ElementRange{AsInteger(*begin, "missing", 0),
                        AsInteger(*end, "missing", 0)};
  });
}

// [parameter, slot]: these two say all of it.
ManifestTensor ToPlainTensor(const json& value, const Manifest& manifest) {
  const auto [parameter, slot] = AsPair(value, "tensors");
  ManifestTensor entry;
  entry.parameter = static_cast<int32_t>(
      AsInteger(*parameter, "tensors", 0,
                static_cast<int64_t>(manifest.parameters.size()) - 1));
  entry.slot = static_cast<int32_t>(AsInteger(
      *slot, "tensors", 0, static_cast<int64_t>(manifest.slots.size()) - 1));
  const ParameterSpec& spec =
      manifest.parameters[static_cast<size_t>(entry.parameter)];
  const Slot& place = manifest.slots[static_cast<size_t>(entry.slot)];
  entry.tensor = {.key = {spec.name, place.kind},
                  .shape = spec.shape,
                  .dtype = place.dtype,
                  .group = spec.group,
                  .optimizer = spec.optimizer};
  return entry;
}

ManifestTensor ToFullTensor(const json& value, const Manifest& manifest) {
  Fields fields(value, "tensors");
  ManifestTensor entry;
  CheckpointTensor& tensor = entry.tensor;
  if (const json* parameter = fields.Find("parameter")) {
    entry.parameter = static_cast<int32_t>(
        AsInteger(*parameter, "parameter", 0,
                  static_cast<int64_t>(manifest.parameters.size()) - 1));
    tensor.key.parameter =
        manifest.parameters[static_cast<size_t>(entry.parameter)].name;
  } else {
    tensor.key.parameter = fields.Text("name");
  }
  tensor.key.kind = fields.Text("kind");
  tensor.shape = ToShape(fields.Get("shape"));
  tensor.dtype = ToDType(fields.Get("dtype"), "dtype");
  tensor.group = fields.Int32("group", -1);
  tensor.optimizer =
      AsWord(fields.Get("optimizer"), "optimizer", kOptimizerWords);
  entry.slot = fields.Int32("slot", -1);
  if (fields.Find("derived") != nullptr) {
    tensor.derived = true;
  }
  if (const json* missing = fields.Find("missing")) {
    tensor.missing = ToRanges(*missing);
  }
  fields.Finish();
  return entry;
}

ManifestTensor ToTensor(const json& value, const Manifest& manifest) {
  ManifestTensor entry = value.is_array() ? ToPlainTensor(value, manifest)
                                          : ToFullTensor(value, manifest);
  CheckpointTensor& tensor = entry.tensor;
  const int64_t bytes =
      CheckedMultiply(tensor.shape.num_elements(), SizeBytes(tensor.dtype),
                      "the size of a tensor");
  tensor.stored_bytes = tensor.derived ? 0 : static_cast<uint64_t>(bytes);
  return entry;
}

RankFile ToRankFile(const json& value) {
  Fields fields(value, "rank_files");
  RankFile file;
  file.size_bytes = fields.Size("size");
  file.head_digest = fields.Digest("head_xxh3_64");
  file.tail_offset = fields.Size("tail_offset");
  file.tail_digest = fields.Digest("tail_xxh3_64");
  file.segment_offsets = ListOf<uint64_t>(
      fields.Get("segment_offsets"), "segment_offsets", [](const json& item) {
        return static_cast<uint64_t>(AsInteger(item, "segment_offsets", 0));
      });
  fields.Finish();
  return file;
}

FileDigest ToFileDigest(const json& value) {
  Fields fields(value, "a file");
  FileDigest file;
  file.size_bytes = fields.Size("size");
  file.digest = fields.Digest("xxh3_64");
  fields.Finish();
  return file;
}

void ReadView(const json& value, Manifest& manifest) {
  if (value.is_object() && value.contains("omitted")) {
    Fields fields(value, "view");
    manifest.view_omitted = fields.Text("omitted");
    fields.Finish();
  } else {
    manifest.view = ToFileDigest(value);
  }
}

void ReadHead(Fields& root, Manifest& manifest) {
  if (root.Text("format") != kFormatName) {
    FailField("format", kFormatName, root.Get("format"));
  }
  const int64_t version = root.Integer("version", 1);
  if (version > kFormatVersion) {
    throw Error(ErrorCode::kUnsupported,
                "written by a later version of muonstore; update this one",
                {.expected = StrCat("format version ", kFormatVersion),
                 .found = StrCat(version)});
  }
  manifest.save_id = ToHex(root.Digest("save_id"));
  manifest.info.format = kShortName;
  manifest.info.producer = root.Text("producer");
  manifest.source = root.Text("source");
  manifest.compressed =
      AsWord(root.Get("compression"), "compression", kCompressionWords);
  const int64_t block = root.Integer("block_bytes", kPageBytes, kMaxBlockBytes);
  if (block % static_cast<int64_t>(kPageBytes) != 0) {
    FailField("block_bytes", "a multiple of 4096", root.Get("block_bytes"));
  }
  manifest.block_bytes = static_cast<uint64_t>(block);
}

void ReadTables(Fields& root, Manifest& manifest) {
  manifest.rule = ToRule(root.Get("rule"));
  manifest.parameters =
      ListOf<ParameterSpec>(root.Get("parameters"), "parameters", ToParameter);
  manifest.flat_groups =
      ListOf<FlatGroup>(root.Get("flat_groups"), "flat_groups", ToFlatGroup);
  manifest.slots = ListOf<Slot>(root.Get("slots"), "slots", ToSlot);
  manifest.tensors = ListOf<ManifestTensor>(
      root.Get("tensors"), "tensors",
      [&](const json& item) { return ToTensor(item, manifest); });
  manifest.files =
      ListOf<RankFile>(root.Get("rank_files"), "rank_files", ToRankFile);
  manifest.checksums = ToFileDigest(root.Get("checksums"));
  ReadView(root.Get("view"), manifest);
  manifest.carried = ListOf<FileDigest>(root.Get("carried_files"),
                                        "carried_files", ToFileDigest);
}

// Of the text that the digest at its end covers.
void CheckDigest(std::string_view text) {
  const size_t end_bytes =
      kDigestKey.size() + kDigestHexDigits + kDigestEnd.size();
  if (text.size() < end_bytes || !text.ends_with(kDigestEnd)) {
    throw Error(ErrorCode::kDataLoss, "the manifest is cut or damaged",
                {.offset_bytes = text.size()});
  }
  const size_t body_bytes = text.size() - end_bytes;
  const std::string_view end = text.substr(body_bytes);
  const auto digest = ParseHex(end.substr(kDigestKey.size(), kDigestHexDigits));
  const uint64_t found =
      Hash64(std::as_bytes(std::span(text.substr(0, body_bytes))));
  if (!end.starts_with(kDigestKey) || digest != found) {
    throw Error(ErrorCode::kDataLoss, "the manifest is damaged",
                {.expected = StrCat("xxh3_64 ", ToHex(digest.value_or(0))),
                 .found = ToHex(found)});
  }
}

}  // namespace

Manifest ParseManifest(const std::string& text) {
  CheckDigest(text);
  const json value = ParseJson(text);
  Fields root(value, "the manifest");
  Manifest manifest;
  manifest.digest = root.Digest("xxh3_64");
  ReadHead(root, manifest);
  ReadInfo(root, manifest.info);
  ReadTables(root, manifest);
  root.Finish();
  return manifest;
}

}  // namespace muonstore::native
