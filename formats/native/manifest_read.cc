#include <string>
#include <utility>

#include "formats/native/hash.h"
#include "formats/native/json_fields.h"
#include "formats/native/manifest.h"

namespace muonstore::native {
namespace {

using nlohmann::json;

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxBlockBytes = 64 << 20;

int32_t Index(Fields& fields, std::string_view key, int32_t least) {
  return static_cast<int32_t>(fields.Integer(key, least, kMaxInt32));
}

uint64_t Size(Fields& fields, std::string_view key) {
  return static_cast<uint64_t>(fields.Integer(key, 0));
}

template <typename T, typename Parse>
std::vector<T> ListOf(const json& value, std::string_view field,
                      const Parse& parse) {
  std::vector<T> list;
  for (const json& item : AsArray(value, field)) {
    list.push_back(parse(item));
  }
  return list;
}

std::vector<std::string> ToTexts(const json& value, std::string_view field) {
  return ListOf<std::string>(
      value, field, [&](const json& item) { return AsText(item, field); });
}

// An array of exactly two.
std::pair<const json*, const json*> AsPair(const json& value,
                                           std::string_view field) {
  if (!value.is_array() || value.size() != 2) {
    FailField(field, "an array of two", value);
  }
  return {&value[0], &value[1]};
}

double ToDouble(const json& value, std::string_view field) {
  if (value.is_number_float()) {
    return value.get<double>();
  }
  Fields fields(value, field);
  const std::string word = fields.Text("float");
  fields.Finish();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == "nan") {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (word != "inf" && word != "-inf") {
    FailField(field, "nan, inf or -inf", value);
  }
  return word == "inf" ? kInfinity : -kInfinity;
}

std::optional<double> ToOptionalDouble(const json& value,
                                       std::string_view field) {
  return value.is_null() ? std::nullopt : std::optional(ToDouble(value, field));
}

std::optional<int64_t> ToOptionalInteger(const json& value,
                                         std::string_view field) {
  return value.is_null()
             ? std::nullopt
             : std::optional(AsInteger(value, field,
                                       std::numeric_limits<int64_t>::min()));
}

Scalar ToScalar(const json& value, std::string_view field) {
  if (value.is_null()) {
    return std::monostate();
  }
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  if (value.is_number_integer()) {
    return AsInteger(value, field, std::numeric_limits<int64_t>::min());
  }
  if (value.is_string()) {
    return AsText(value, field);
  }
  if (value.is_array()) {
    return ListOf<double>(
        value, field, [&](const json& item) { return ToDouble(item, field); });
  }
  return ToDouble(value, field);
}

ScalarMap ToScalarMap(const json& value, std::string_view field) {
  ScalarMap map;
  for (const json& item : AsArray(value, field)) {
    const auto [name, scalar] = AsPair(item, field);
    map.emplace_back(AsText(*name, field), ToScalar(*scalar, field));
  }
  return map;
}

ParamGroup ToGroup(const json& value) {
  Fields fields(value, "groups");
  ParamGroup group;
  group.name = fields.Text("name");
  group.optimizer =
      AsWord(fields.Get("optimizer"), "optimizer", kOptimizerWords);
  group.step = ToOptionalInteger(fields.Get("step"), "step");
  group.num_parameters = fields.Integer("num_parameters", 0);
  group.num_elements = fields.Integer("num_elements", 0);
  group.hyper_parameters =
      ToScalarMap(fields.Get("hyper_parameters"), "hyper_parameters");
  fields.Finish();
  return group;
}

std::optional<MomentumRecord> ToMomentum(const json& value) {
  if (value.is_null()) {
    return std::nullopt;
  }
  Fields fields(value, "momentum");
  MomentumRecord record;
  record.convention =
      AsWord(fields.Get("convention"), "convention", kConventionWords);
  record.unit = AsWord(fields.Get("unit"), "unit", kUnitWords);
  record.unit_scale = ToOptionalDouble(fields.Get("unit_scale"), "unit_scale");
  record.scale_in_file =
      ToOptionalDouble(fields.Get("scale_in_file"), "scale_in_file");
  record.stored_form = fields.Text("stored_form");
  fields.Finish();
  return record;
}

Finding ToFinding(const json& value) {
  Fields fields(value, "findings");
  Finding finding;
  finding.severity = AsWord(fields.Get("severity"), "severity", kSeverityWords);
  finding.code = fields.Text("code");
  finding.message = fields.Text("message");
  finding.place.tensor = fields.Text("tensor");
  fields.Finish();
  return finding;
}

void ReadRun(const json& value, CheckpointInfo& info) {
  Fields fields(value, "run");
  info.step = ToOptionalInteger(fields.Get("step"), "step");
  if (const json& stage = fields.Get("stage"); !stage.is_null()) {
    info.stage = static_cast<int32_t>(AsInteger(stage, "stage", 1, 3));
  }
  info.num_ranks = Index(fields, "num_ranks", 1);
  info.optimizer_class = fields.Text("optimizer_class");
  info.precision = fields.Text("precision");
  info.offload = fields.Text("offload");
  info.order = fields.Text("order");
  fields.Finish();
}

ZeroRule ToRule(const json& value) {
  Fields fields(value, "rule");
  ZeroRule rule;
  rule.stage = static_cast<int32_t>(fields.Integer("stage", 1, 3));
  rule.num_ranks = Index(fields, "num_ranks", 1);
  rule.muon_order = AsWord(fields.Get("muon_order"), "muon_order", kOrderWords);
  rule.flat_alignment_elements = fields.Integer("flat_alignment_elements", 1);
  rule.round_robin = fields.Bool("round_robin");
  rule.parameter_alignment = fields.Bool("parameter_alignment");
  rule.sub_group_size = fields.Integer("sub_group_size", 1);
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
  spec.group = Index(fields, "group", 0);
  spec.optimizer =
      AsWord(fields.Get("optimizer"), "optimizer", kOptimizerWords);
  spec.weight_dtype = ToDType(fields.Get("weight_dtype"), "weight_dtype");
  fields.Finish();
  return spec;
}

FlatGroup ToFlatGroup(const json& value) {
  Fields fields(value, "flat_groups");
  FlatGroup group;
  group.group = Index(fields, "group", 0);
  group.parameters = ListOf<int32_t>(
      fields.Get("parameters"), "parameters", [](const json& item) {
        return static_cast<int32_t>(
            AsInteger(item, "parameters", 0, kMaxInt32));
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
    slot.flat_group =
        static_cast<int32_t>(AsInteger(*group, "flat_group", 0, kMaxInt32));
  } else {
    slot.rank = Index(fields, "rank", 0);
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

ManifestTensor ToTensor(const json& value,
                        const std::vector<ParameterSpec>& parameters) {
  Fields fields(value, "tensors");
  ManifestTensor entry;
  CheckpointTensor& tensor = entry.tensor;
  if (const json* parameter = fields.Find("parameter")) {
    entry.parameter = static_cast<int32_t>(
        AsInteger(*parameter, "parameter", 0,
                  static_cast<int64_t>(parameters.size()) - 1));
    tensor.key.parameter =
        parameters[static_cast<size_t>(entry.parameter)].name;
  } else {
    tensor.key.parameter = fields.Text("name");
  }
  tensor.key.kind = fields.Text("kind");
  tensor.shape = ToShape(fields.Get("shape"));
  tensor.dtype = ToDType(fields.Get("dtype"), "dtype");
  tensor.group = Index(fields, "group", -1);
  tensor.optimizer =
      AsWord(fields.Get("optimizer"), "optimizer", kOptimizerWords);
  entry.slot = Index(fields, "slot", -1);
  if (fields.Find("derived") != nullptr) {
    tensor.derived = true;
  }
  if (const json* missing = fields.Find("missing")) {
    tensor.missing = ToRanges(*missing);
  }
  fields.Finish();
  const int64_t bytes =
      CheckedMultiply(tensor.shape.num_elements(), SizeBytes(tensor.dtype),
                      "the size of a tensor");
  tensor.stored_bytes = tensor.derived ? 0 : static_cast<uint64_t>(bytes);
  return entry;
}

RankFile ToRankFile(const json& value) {
  Fields fields(value, "rank_files");
  RankFile file;
  file.size_bytes = Size(fields, "size");
  file.head_digest = fields.Digest("head_xxh3_64");
  file.tail_offset = Size(fields, "tail_offset");
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
  file.size_bytes = Size(fields, "size");
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

void ReadInfo(Fields& root, CheckpointInfo& info) {
  ReadRun(root.Get("run"), info);
  info.groups = ListOf<ParamGroup>(root.Get("groups"), "groups", ToGroup);
  info.momentum = ToMomentum(root.Get("momentum"));
  info.counters = ToScalarMap(root.Get("counters"), "counters");
  info.module_order = ToTexts(root.Get("module_order"), "module_order");
  for (const json& item : AsArray(root.Get("aliases"), "aliases")) {
    const auto [dropped, kept] = AsPair(item, "aliases");
    info.aliases[AsText(*dropped, "aliases")] = AsText(*kept, "aliases");
  }
  info.frozen = ToTexts(root.Get("frozen"), "frozen");
  for (const json& item :
       AsArray(root.Get("carried_values"), "carried_values")) {
    const auto [path, summary] = AsPair(item, "carried_values");
    info.carried.push_back(
        {AsText(*path, "carried_values"), AsText(*summary, "carried_values")});
  }
  info.findings = ListOf<Finding>(root.Get("findings"), "findings", ToFinding);
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
      [&](const json& item) { return ToTensor(item, manifest.parameters); });
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
  root.Digest("xxh3_64");
  ReadHead(root, manifest);
  ReadInfo(root, manifest.info);
  ReadTables(root, manifest);
  root.Finish();
  return manifest;
}

}  // namespace muonstore::native
