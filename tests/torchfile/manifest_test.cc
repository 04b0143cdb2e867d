// Every file of the torchfiles family gets the treatment of its manifest: the
// exact tensors where it says "load", a typed error where it says "reject".

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/torchfile/tensor_paths.h"
#include "formats/torchfile/torch_file.h"
#include "src/base/str.h"
#include "tests/testutil/fixtures.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/sha256.h"

#include <nlohmann/json.hpp>

namespace muonstore::torchfile {
namespace {

namespace fs = std::filesystem;

struct ManifestRow {
  fs::path file;
  nlohmann::json row;
};

std::vector<fs::path> Folders() {
  std::vector<fs::path> folders;
  for (const fs::path& root : testutil::FixtureRoots()) {
    for (const char* name : {"torchfiles", "torchfiles/extra"}) {
      if (fs::exists(root / name / "EXPECTED.json")) {
        folders.push_back(root / name);
      }
    }
  }
  return folders;
}

std::vector<ManifestRow> Rows() {
  std::vector<ManifestRow> rows;
  for (const fs::path& folder : Folders()) {
    std::ifstream in(folder / "EXPECTED.json");
    const nlohmann::json manifest = nlohmann::json::parse(in);
    for (const auto& [name, row] : manifest.items()) {
      if (fs::exists(folder / name)) {
        rows.push_back({folder / name, row});
      }
    }
  }
  return rows;
}

enum class Treatment { kLoad, kReject, kEither };

// "load", "reject: no data", "reject or load", "load or reject"...
Treatment TreatmentOf(const std::string& expect) {
  const bool starts_with_load = expect.starts_with("load");
  if (starts_with_load) {
    return expect.find("or reject") == std::string::npos ? Treatment::kLoad
                                                         : Treatment::kEither;
  }
  for (const char* choice : {"or load", "or keep", "or unwrap", "or use"}) {
    if (expect.find(choice) != std::string::npos) {
      return Treatment::kEither;
    }
  }
  return Treatment::kReject;
}

// The first fault of a file: opening it, asking for its root, verifying it.
std::optional<Error> FirstFault(const fs::path& path) {
  try {
    const auto file = TorchFile::Open(PosixFileSystem(), path.string());
    if (path.filename() == "module_whole.pt") {
      file->RequireDict();
    }
    const std::vector<Error> faults = file->Verify();
    return faults.empty() ? std::nullopt : std::optional(faults.front());
  } catch (const Error& e) {
    return e;
  }
}

void ExpectTensor(const TorchFile& file, const TensorInfo& tensor,
                  const nlohmann::json& expected) {
  EXPECT_EQ(ParseDType(expected.at("dtype").get<std::string>()), tensor.dtype);
  EXPECT_EQ(tensor.shape.dims(),
            expected.at("shape").get<std::vector<int64_t>>());
  if (expected.contains("note")) {
    return;  // torch itself could not show the bytes.
  }
  EXPECT_EQ(tensor.strides, expected.at("stride").get<std::vector<int64_t>>());
  EXPECT_EQ(tensor.storage_offset, expected.at("offset").get<int64_t>());
  EXPECT_EQ(file.tree().storages[tensor.storage].size_bytes,
            expected.at("storage_nbytes").get<uint64_t>());
  EXPECT_EQ(tensor.requires_grad, expected.at("requires_grad").get<bool>());
  EXPECT_EQ(tensor.is_conj, expected.at("is_conj").get<bool>());
  EXPECT_EQ(tensor.is_neg, expected.at("is_neg").get<bool>());
  const std::string bytes = ReadAll(file, tensor);
  EXPECT_EQ(Sha256Hex(bytes), expected.at("sha256").get<std::string>());
  if (expected.contains("hex")) {
    EXPECT_EQ(Hex(bytes), expected.at("hex").get<std::string>());
  }
}

void ExpectTensors(const fs::path& path, const nlohmann::json& expected) {
  const auto file = TorchFile::Open(PosixFileSystem(), path.string());
  std::map<std::string, TensorInfo> tensors;
  VisitTensors(file->tree(),
               [&](const std::string& name, const TensorInfo& tensor) {
                 EXPECT_TRUE(tensors.emplace(name, tensor).second) << name;
               });
  EXPECT_EQ(tensors.size(), expected.size());
  for (const auto& [name, row] : expected.items()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(tensors.contains(name));
    ExpectTensor(*file, tensors.at(name), row);
  }
}

void ExpectTreatment(const ManifestRow& row) {
  const std::optional<Error> fault = FirstFault(row.file);
  const Treatment treatment =
      TreatmentOf(row.row.at("expect").get<std::string>());
  if (treatment == Treatment::kLoad) {
    ASSERT_FALSE(fault.has_value()) << fault->what();
  } else if (treatment == Treatment::kReject) {
    ASSERT_TRUE(fault.has_value());
  }
  if (fault.has_value()) {
    EXPECT_THAT(fault->code(),
                testing::AnyOf(ErrorCode::kDataLoss, ErrorCode::kUnsupported));
    EXPECT_EQ(fault->place().file, row.file.string());
  } else if (row.row.contains("tensors")) {
    ExpectTensors(row.file, row.row.at("tensors"));
  }
}

TEST(Manifest, EveryFileIsTreatedAsItsRowSays) {
  const std::vector<ManifestRow> rows = Rows();
  ASSERT_GE(rows.size(), 100u);
  for (const ManifestRow& row : rows) {
    SCOPED_TRACE(row.file.string());
    ExpectTreatment(row);
  }
}

// What files that may be rejected or loaded get here, so that a change shows.
TEST(Manifest, ChoicesAreAsDocumented) {
  const std::map<std::string, std::string> choices = {
      {"containers_complex_bytearray.pt", ""},
      {"custom_class.pt", ""},
      {"deep_nest.pt", ""},
      {"deep_nest_100k.pt", ""},
      {"self_recursive.pt", ""},
      {"namedtuple_enum_dataclass.pt", ""},
      {"tensor_subclass.pt", ""},
      {"numpy_in_zip.pt", ""},
      {"conj_neg_views.pt", ""},
      {"dtypes_fp4.pt", ""},
      {"pkl_billion_laughs.pt", "DataLoss"},
      {"numpy_raw.pkl", "Unsupported"},
      {"trailing_garbage.pt", "DataLoss"},
      {"prefixed.pt", "Unsupported"},
      {"crafted_version_99.pt", "Unsupported"},
      {"crafted_deflated.pt", "Unsupported"},
      {"crafted_bomb.pt", "Unsupported"},
      {"crafted_long_storage.pt", "DataLoss"},
      {"crafted_huge_dims.pt", "DataLoss"},
      {"crafted_traversal_member.pt", "DataLoss"},
      {"crafted_two_roots.pt", "DataLoss"},
      {"sparse_coo.pt", "Unsupported"},
      {"module_whole.pt", "Unsupported"},
      {"bitflip_payload.pt", "DataLoss"},
  };
  std::set<std::string> seen;
  for (const ManifestRow& row : Rows()) {
    const auto choice = choices.find(row.file.filename().string());
    if (choice == choices.end()) {
      continue;
    }
    const auto fault = FirstFault(row.file);
    EXPECT_EQ(fault ? std::string(ErrorCodeName(fault->code())) : "",
              choice->second)
        << row.file << (fault ? fault->what() : " loads");
    seen.insert(choice->first);
  }
  EXPECT_EQ(seen.size(), choices.size());
}

// The error is about the thing that is wrong, not about some symptom of it.
TEST(Manifest, ErrorsNameTheirReason) {
  const std::map<std::string, std::string> reasons = {
      {"empty_file.pt", "empty"},
      {"not_a_checkpoint.pt", "neither a zip archive nor a pickle"},
      {"three_bytes.pt", "cut"},
      {"trunc_half.pt", "cut"},
      {"bitflip_pickle.pt", "data.pkl is damaged"},
      {"bitflip_payload.pt", "tensor /w"},
      {"torchscript.pt", "TorchScript"},
      {"numpy_raw.pkl", "plain pickle"},
      {"sparse_coo.pt", "sparse"},
      {"meta_tensor.pt", "meta"},
      {"quantized.pt", "quantized"},
      {"module_whole.pt", "torch.nn.modules.linear.Linear"},
      {"crafted_deflated.pt", "archive/data/0 is compressed"},
      {"crafted_missing_storage.pt", "storage '7'"},
      {"crafted_short_storage.pt", "expected 24 bytes, found 12"},
      {"crafted_traversal_key.pt", "no record"},
      {"crafted_bad_byteorder.pt", "byteorder"},
      {"crafted_no_version.pt", "version"},
      {"crafted_dup_record.pt", "data/0 occurs twice"},
      {"crafted_overflow.pt", "64 bits"},
      {"crafted_oob_offset.pt", "leaves its storage"},
      {"local_name_differs.pt", "another name"},
      {"legacy_truncated_data.pt", "cut"},
      {"mal_os_system.pt", "refused: the pickle calls posix.system"},
      {"mal_eval.pt", "calls __builtin__.eval"},
      {"mal_subprocess.pt", "calls commands.Popen"},
      {"mal_stack_global.pt", "calls posix.system"},
      {"mal_inst.pt", "calls os.system"},
      {"mal_obj.pt", "calls os.system"},
      {"mal_getattr.pt", "calls __builtin__.__import__"},
      {"mal_dotted_stack_global.pt", "calls torch.os.system"},
      {"mal_torch_global.pt", "calls torch.hub.load"},
      {"mal_build_setstate.pt", "sets the attribute __dict__"},
      {"mal_newobj_ex.pt", "calls posix.system"},
      {"mal_copyreg.pt", "calls copyreg._reconstructor"},
      {"mal_pers_id_call.pt", "calls os.system"},
      {"mal_legacy.pt", "calls posix.system"},
      {"mal_raw_magic.pt", "calls posix.system"},
  };
  std::set<std::string> seen;
  for (const ManifestRow& row : Rows()) {
    const auto reason = reasons.find(row.file.filename().string());
    if (reason == reasons.end()) {
      continue;
    }
    const auto fault = FirstFault(row.file);
    ASSERT_TRUE(fault.has_value()) << row.file;
    EXPECT_THAT(fault->what(), testing::HasSubstr(reason->second));
    seen.insert(reason->first);
  }
  EXPECT_EQ(seen.size(), reasons.size());
  EXPECT_FALSE(fs::exists("PWNED_MARKER"));
}

TEST(Manifest, OpeningReadsNoPayload) {
  const fs::path path = testutil::FixturePath("torchfiles/bitflip_payload.pt");
  const auto file = TorchFile::Open(PosixFileSystem(), path.string());
  const TensorInfo& tensor = file->RequireDict().Get("w").AsTensor();
  // A small record is checked by whatever is read of it.
  std::string part(4, '\0');
  EXPECT_THROW(
      file->ReadElements(tensor, 0, std::as_writable_bytes(std::span(part))),
      Error);
  EXPECT_THROW(ReadAll(*file, tensor), Error);
}

}  // namespace
}  // namespace muonstore::torchfile
