// Storages and tensor views: what is proven before a byte is read.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

using pickle::Call;
using pickle::GlobalName;
using pickle::Int;
using pickle::Str;
using pickle::Tensor;
using pickle::TensorArgs;

constexpr int64_t kHuge = int64_t{1} << 62;

std::shared_ptr<const TorchFile> OpenBody(
    const std::string& body,
    const std::vector<std::string>& payloads = {pickle::Floats(6)}) {
  return OpenBytes(TorchZip(pickle::Whole(body), payloads));
}

void ExpectBadView(const TensorArgs& args, const std::string& text) {
  EXPECT_ERROR(OpenBody(Tensor(args)), ErrorCode::kDataLoss, text);
}

TEST(TensorView, IsChecked) {
  ExpectBadView({.offset = 1}, "leaves its storage '0'");
  ExpectBadView({.offset = -1}, "storage offset");
  ExpectBadView({.offset = kHuge}, "64 bits");
  ExpectBadView({.offset = INT64_MAX}, "64 bits");
  ExpectBadView({.size = {2, 4}}, "leaves its storage");
  ExpectBadView({.size = {-2, 3}}, "bad size");
  ExpectBadView({.size = {kHuge, 8}}, "64 bits");
  ExpectBadView({.size = {3, 1}, .stride = {kHuge, 1}}, "64 bits");
  ExpectBadView({.size = {2, 3}, .stride = {3, -1}}, "bad stride");
  ExpectBadView({.size = {2, 3}, .stride = {100, 1}}, "leaves its storage");
  ExpectBadView({.size = {2, 3}, .stride = {3}}, "differ in length");
  ExpectBadView({.size = std::vector<int64_t>(65, 1),
                 .stride = std::vector<int64_t>(65, 1)},
                "at most 64 ints");
}

TEST(TensorView, LegalExtremes) {
  const auto shape_of = [](const TensorArgs& args) {
    return OpenBody(Tensor(args))->root().AsTensor().shape.ToString();
  };
  // Strides of axes of size 1 and anything of an empty tensor do not matter.
  EXPECT_EQ(shape_of({.size = {1, 6}, .stride = {kHuge, 1}}), "[1, 6]");
  EXPECT_EQ(shape_of({.offset = 99, .size = {0, kHuge}, .stride = {kHuge, 7}}),
            "[0, 4611686018427387904]");
  EXPECT_EQ(shape_of({.size = {1000, 6}, .stride = {0, 1}}), "[1000, 6]");
  EXPECT_EQ(shape_of({.offset = 5, .size = {}, .stride = {}}), "[]");
  EXPECT_EQ(shape_of({.size = std::vector<int64_t>(64, 1),
                      .stride = std::vector<int64_t>(64, 1)})
                .size(),
            3u * 64);
}

TEST(TensorView, ArgumentsOfOtherTypes) {
  const std::string v2 = GlobalName("torch._utils", "_rebuild_tensor_v2");
  const std::string storage = pickle::Storage();
  const std::string od = pickle::OrderedDict();
  const auto expect = [&](const std::vector<std::string>& args,
                          const std::string& text) {
    EXPECT_ERROR(OpenBody(Call(v2, args)), ErrorCode::kDataLoss, text);
  };
  const std::string one = pickle::Ints({1});
  expect({}, "wrong number of arguments");
  expect({storage, Int(0), one, one, "\x89"}, "wrong number of arguments");
  expect({"N", Int(0), one, one, "\x89", od}, "a storage");
  expect({storage, "N", one, one, "\x89", od}, "storage offset");
  expect({storage, "\x88", one, one, "\x89", od}, "storage offset");
  expect({storage, Int(0), "K\x01", one, "\x89", od}, "bad size");
  expect({storage, Int(0), "(G" + std::string(8, '\0') + "t", one, "\x89", od},
         "bad size");
  expect({storage, Int(0), one, one, "N", od}, "int of 64 bits");
  expect({storage, Int(0), one, one, "\x89", od, Str("conj")}, "container");
  expect({storage, Int(0), one, one, "\x89", od, "}K\x01\x88s"}, "a str");
}

TEST(TensorView, FlagsAndKinds) {
  const std::string parameter =
      GlobalName("torch._utils", "_rebuild_parameter");
  const std::string with_state =
      GlobalName("torch._utils", "_rebuild_parameter_with_state");
  const std::string from_type =
      GlobalName("torch._tensor", "_rebuild_from_type_v2");
  const std::string args =
      pickle::Tuple({pickle::Storage(), Int(0), pickle::Ints({6}),
                     pickle::Ints({1}), "\x88", pickle::OrderedDict()});
  const auto file = OpenBody(
      "(" + Tensor({.requires_grad = "\x88"}) +
      Call(parameter, {Tensor(), "\x88", pickle::OrderedDict()}) +
      Call(with_state, {Tensor(), "\x89", pickle::OrderedDict(),
                        pickle::Dict({{"use_muon", "\x88"}})}) +
      Call(from_type, {GlobalName("torch._utils", "_rebuild_tensor_v2"),
                       GlobalName("torch", "Tensor"), args,
                       pickle::Dict({{"ds_id", Str("3_21")}})}) +
      "t");
  const Value root = file->root();
  EXPECT_TRUE(root.at(0).AsTensor().requires_grad);
  EXPECT_FALSE(root.at(0).AsTensor().is_parameter);
  EXPECT_TRUE(root.at(1).AsTensor().is_parameter);
  EXPECT_TRUE(root.at(1).AsTensor().requires_grad);
  EXPECT_FALSE(root.at(2).AsTensor().requires_grad);
  EXPECT_TRUE(root.at(2).Attribute("use_muon")->AsBool());
  EXPECT_EQ(root.at(3).Attribute("ds_id")->AsString(), "3_21");
  EXPECT_FALSE(root.at(3).Attribute("other").has_value());
  EXPECT_TRUE(root.at(3).AsTensor().requires_grad);
  EXPECT_EQ(root.at(3).AsTensor().shape.ToString(), "[6]");
  // The call is kept for a writer.
  EXPECT_EQ(root.at(3).cls()->name, "_rebuild_from_type_v2");
  EXPECT_EQ(root.at(3).arg(1)->cls()->name, "Tensor");
  EXPECT_EQ(root.at(3).AsTensor().rebuild, root.at(3).id());
  // All are views of one storage.
  EXPECT_EQ(file->tree().storages.size(), 1u);
}

TEST(TensorView, SubclassesAreUnwrapped) {
  const std::string args =
      pickle::Tuple({pickle::Storage(), Int(0), pickle::Ints({6}),
                     pickle::Ints({1}), "\x89", pickle::OrderedDict()});
  const auto file =
      OpenBody(Call(GlobalName("torch._tensor", "_rebuild_from_type_v2"),
                    {GlobalName("torch._utils", "_rebuild_tensor_v2"),
                     GlobalName("my.pkg", "SubTensor"), args, "}"}));
  EXPECT_EQ(ReadAll(*file, file->root().AsTensor()), pickle::Floats(6));
  EXPECT_ERROR(
      OpenBody(Call(GlobalName("torch._tensor", "_rebuild_from_type_v2"),
                    {GlobalName("torchao", "rebuild"),
                     GlobalName("my.pkg", "SubTensor"), args, "}"})),
      ErrorCode::kUnsupported, "rebuilt by torchao.rebuild");
}

TEST(TensorView, LazyBits) {
  const std::string payload = pickle::Floats(4, -2);  // -2, -1, 0, 1
  const auto open = [&](const std::string& cls, int64_t count,
                        const std::string& metadata) {
    return OpenBody(
        Tensor({.storage = pickle::Storage({.cls = cls, .num_elements = count}),
                .size = {count},
                .stride = {1},
                .metadata = metadata}),
        {payload});
  };
  const std::string conj = pickle::Dict({{"conj", "\x88"}});
  const std::string neg = pickle::Dict({{"neg", "\x88"}});
  const std::string both = pickle::Dict({{"conj", "\x88"}, {"neg", "\x88"}});
  const auto read = [](const std::shared_ptr<const TorchFile>& file) {
    return ReadAll(*file, file->root().AsTensor());
  };
  EXPECT_EQ(read(open("ComplexFloatStorage", 2, conj)),
            Bytes(-2.f) + Bytes(1.f) + Bytes(0.f) + Bytes(-1.f));
  EXPECT_EQ(read(open("ComplexFloatStorage", 2, neg)),
            Bytes(2.f) + Bytes(1.f) + Bytes(-0.f) + Bytes(-1.f));
  EXPECT_EQ(read(open("ComplexFloatStorage", 2, both)),
            Bytes(2.f) + Bytes(-1.f) + Bytes(-0.f) + Bytes(1.f));
  EXPECT_EQ(read(open("FloatStorage", 4, neg)),
            Bytes(2.f) + Bytes(1.f) + Bytes(-0.f) + Bytes(-1.f));
  EXPECT_EQ(read(open("FloatStorage", 4, pickle::Dict({{"neg", "\x89"}}))),
            payload);
  EXPECT_ERROR(open("FloatStorage", 4, conj), ErrorCode::kDataLoss,
               "not complex");
  EXPECT_ERROR(open("IntStorage", 4, neg), ErrorCode::kUnsupported, "i32");
  EXPECT_ERROR(open("FloatStorage", 4, pickle::Dict({{"new", "\x88"}})),
               ErrorCode::kUnsupported, "metadata str 'new'");
}

TEST(Storage, EveryClassHasItsDType) {
  const std::vector<std::pair<std::string, DType>> classes = {
      {"DoubleStorage", DType::kF64},
      {"FloatStorage", DType::kF32},
      {"HalfStorage", DType::kF16},
      {"BFloat16Storage", DType::kBF16},
      {"LongStorage", DType::kI64},
      {"IntStorage", DType::kI32},
      {"ShortStorage", DType::kI16},
      {"CharStorage", DType::kI8},
      {"ByteStorage", DType::kU8},
      {"BoolStorage", DType::kBool},
      {"ComplexDoubleStorage", DType::kC128},
      {"ComplexFloatStorage", DType::kC64},
  };
  for (const auto& [cls, dtype] : classes) {
    const int64_t count = 48 / SizeBytes(dtype);
    const auto file = OpenBody(
        Tensor({.storage = pickle::Storage({.cls = cls, .num_elements = count}),
                .size = {count},
                .stride = {1}}),
        {pickle::Floats(12)});
    EXPECT_EQ(file->root().AsTensor().dtype, dtype);
    EXPECT_EQ(ReadAll(*file, file->root().AsTensor()), pickle::Floats(12));
  }
}

TEST(Storage, TwoDTypesOverOneUntypedStorage) {
  const std::string storage = pickle::Storage(
      {.cls = "UntypedStorage", .module = "torch.storage", .num_elements = 24});
  const auto file = OpenBody(
      "(" + pickle::TensorV3({.storage = storage}, "float32") +
      pickle::TensorV3(
          {.storage = storage, .offset = 2, .size = {2, 2}, .stride = {4, 1}},
          "uint16") +
      "t");
  EXPECT_EQ(file->tree().storages.size(), 1u);
  EXPECT_TRUE(file->tree().storages[0].untyped);
  EXPECT_EQ(ReadAll(*file, file->root().at(0).AsTensor()), pickle::Floats(6));
  EXPECT_EQ(ReadAll(*file, file->root().at(1).AsTensor()),
            pickle::Floats(6).substr(4, 4) + pickle::Floats(6).substr(12, 4));
  EXPECT_ERROR(
      OpenBody(pickle::TensorV3({.storage = storage, .offset = 1}, "float32")),
      ErrorCode::kDataLoss, "leaves its storage");
  EXPECT_ERROR(OpenBody(pickle::TensorV3({.storage = storage}, "bits8")),
               ErrorCode::kUnsupported, "torch.bits8");
}

TEST(Storage, IsAValueOfItsOwn) {
  const auto file = OpenBody(pickle::Storage());
  EXPECT_EQ(file->root().AsStorage().num_elements, 6);
  EXPECT_EQ(file->root().AsStorage().location, "cpu");
  EXPECT_EQ(file->root().Describe(), "storage 0");
}

TEST(Storage, PersistentIdDefects) {
  const auto expect = [](const pickle::StorageId& id, const std::string& text,
                         ErrorCode code = ErrorCode::kDataLoss) {
    EXPECT_ERROR(OpenBody(pickle::Storage(id)), code, text);
  };
  expect({.key = "7"}, "no record for storage '7'");
  expect({.key = "../0"}, "no record for storage");
  expect({.key = std::string(2000, 'k')}, "long text");
  expect({.num_elements = 5}, "not the size of its storage");
  expect({.num_elements = 7}, "not the size of its storage");
  expect({.num_elements = -1}, "element count");
  expect({.num_elements = kHuge}, "64 bits");
  expect({.cls = "OrderedDict", .module = "collections"}, "no storage class");
  expect({.cls = "FloatStorage", .module = "evil"}, "no storage class");
  expect({.cls = "system", .module = "os"}, "refused: the pickle calls os",
         ErrorCode::kUnsupported);
  expect({.cls = "QInt8Storage"}, "quantized", ErrorCode::kUnsupported);
  expect({.location = "meta"}, "meta device", ErrorCode::kUnsupported);
  EXPECT_ERROR(OpenBody(pickle::Tuple({Str("storage")}) + "Q"),
               ErrorCode::kDataLoss, "malformed");
  EXPECT_ERROR(
      OpenBody(pickle::Tuple({Str("module"), "N", "N", "N", "N"}) + "Q"),
      ErrorCode::kDataLoss, "malformed");
  EXPECT_ERROR(OpenBody(pickle::Tuple({Str("storage"), Str("FloatStorage"),
                                       Str("0"), Str("cpu"), Int(6)}) +
                        "Q"),
               ErrorCode::kDataLoss, "no storage class");
}

TEST(Storage, ContradictingUses) {
  EXPECT_ERROR(OpenBody("(" + pickle::Storage() +
                        pickle::Storage({.cls = "IntStorage"}) + "t"),
               ErrorCode::kDataLoss, "two types or sizes");
  // torch gives all empty storages of a tensor family one key.
  const auto file = OpenBody(
      "(" + pickle::Storage({.num_elements = 0}) +
          pickle::Storage({.cls = "IntStorage", .num_elements = 0}) + "t",
      {""});
  EXPECT_EQ(file->root().at(1).AsStorage().dtype, DType::kI32);
}

TEST(Storage, BigEndian) {
  auto records = TorchRecords(
      pickle::Whole(
          "(" + Tensor() +
          Tensor({.storage = pickle::Storage({.cls = "ComplexFloatStorage",
                                              .key = "1",
                                              .num_elements = 1}),
                  .size = {1},
                  .stride = {1},
                  .metadata = pickle::Dict({{"conj", "\x88"}})}) +
          "t"),
      {std::string("\x3f\x80\0\0\x40\0\0\0\x40\x40\0\0\x40\x80\0\0\x40\xa0\0\0"
                   "\x40\xc0\0\0",
                   24),
       std::string("\x3f\x80\0\0\x40\0\0\0", 8)});
  records[1].data = "big";
  const auto file = OpenBytes(BuildZip(records));
  EXPECT_TRUE(file->is_big_endian());
  EXPECT_EQ(ReadAll(*file, file->root().at(0).AsTensor()), pickle::Floats(6));
  EXPECT_EQ(ReadAll(*file, file->root().at(1).AsTensor()),
            Bytes(1.f) + Bytes(-2.f));
}

}  // namespace
}  // namespace muonstore::torchfile
