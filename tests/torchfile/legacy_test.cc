// The legacy stream: pickles, then counts and data of the storages.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

using pickle::Int;
using pickle::Str;
using pickle::Whole;

const std::string kMagic =
    Whole("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19");

struct Stream {
  std::string magic = kMagic;
  std::string version = Whole("M\xe9\x03");
  std::string info = Whole(pickle::Dict({{"little_endian", "\x88"}}));
  std::string object;
  std::string keys = Whole("](" + Str("100") + Str("200") + "e");
  std::string data = Bytes<int64_t>(6) + pickle::Floats(6) + Bytes<int64_t>(2) +
                     pickle::Floats(2, 50);
  std::string suffix;

  std::string ToBytes() const {
    return magic + version + info + object + keys + data + suffix;
  }
};

std::string LegacyStorage(const std::string& key, int64_t count,
                          const std::string& view = "N",
                          const std::string& cls = "FloatStorage") {
  return pickle::Tuple({Str("storage"), pickle::GlobalName("torch", cls),
                        Str(key), Str("cpu"), Int(count), view}) +
         "Q";
}

std::string View(const std::string& storage, std::vector<int64_t> size,
                 std::vector<int64_t> stride) {
  return pickle::Tensor({.storage = storage,
                         .size = std::move(size),
                         .stride = std::move(stride)});
}

Stream TwoTensorStream() {
  Stream stream;
  stream.object = Whole(
      pickle::Dict({{"b", View(LegacyStorage("200", 2), {2}, {1})},
                    {"a", View(LegacyStorage("100", 6), {3, 2}, {1, 3})}}));
  return stream;
}

TEST(Legacy, ReadsTensors) {
  const auto file = OpenBytes(TwoTensorStream().ToBytes());
  EXPECT_FALSE(file->is_zip());
  EXPECT_EQ(ReadAll(*file, file->root().Get("b").AsTensor()),
            pickle::Floats(2, 50));
  std::string transposed;
  for (const float value : {1.f, 4.f, 2.f, 5.f, 3.f, 6.f}) {
    transposed += Bytes(value);
  }
  EXPECT_EQ(ReadAll(*file, file->root().Get("a").AsTensor()), transposed);
  EXPECT_TRUE(file->Verify().empty());
  EXPECT_EQ(file->records().size(), 2u);
}

TEST(Legacy, StorageViews) {
  Stream stream;
  const auto piece = [](int64_t first, int64_t size) {
    return pickle::Tuple(
        {Str("v" + std::to_string(first)), Int(first), Int(size)});
  };
  stream.object =
      Whole("(" + View(LegacyStorage("100", 6, piece(2, 3)), {3}, {1}) +
            View(LegacyStorage("100", 6), {6}, {1}) +
            View(LegacyStorage("100", 6, piece(5, 1)), {1}, {1}) +
            View(LegacyStorage("200", 2), {2}, {1}) + "t");
  const auto file = OpenBytes(stream.ToBytes());
  EXPECT_EQ(ReadAll(*file, file->root().at(0).AsTensor()),
            pickle::Floats(3, 3));
  EXPECT_EQ(ReadAll(*file, file->root().at(1).AsTensor()), pickle::Floats(6));
  EXPECT_EQ(ReadAll(*file, file->root().at(2).AsTensor()),
            pickle::Floats(1, 6));
  for (const auto& bad : {piece(4, 3), piece(7, 0), piece(-1, 1), Str("x"),
                          pickle::Tuple({"N"})}) {
    stream.object = Whole(LegacyStorage("100", 6, bad));
    EXPECT_ERROR(OpenBytes(stream.ToBytes()), ErrorCode::kDataLoss, "view");
  }
  stream.object = Whole(View(LegacyStorage("100", 6, piece(2, 3)), {4}, {1}));
  EXPECT_ERROR(OpenBytes(stream.ToBytes()), ErrorCode::kDataLoss,
               "leaves its storage");
}

TEST(Legacy, WholeModulesKeepTheirClass) {
  Stream stream;
  stream.object =
      Whole(pickle::Tuple({Str("module"),
                           pickle::GlobalName("torch.nn.modules", "Linear"),
                           Str("file.py"), Str("source")}) +
            "Q)\x81");
  stream.keys = Whole("]");
  stream.data = "";
  const auto file = OpenBytes(stream.ToBytes());
  EXPECT_EQ(file->root().cls()->name, "Linear");
  EXPECT_ERROR(file->RequireDict(), ErrorCode::kUnsupported,
               "torch.nn.modules.Linear");
}

TEST(Legacy, Protocol0) {
  Stream stream;
  stream.magic = "L119547037146038801333356L\n.";
  stream.version = "I1001\n.";
  stream.info = "(dS'little_endian'\nI01\ns.";
  stream.object = "(dS'a'\nI7\ns.";
  stream.keys = "(l.";
  stream.data = "";
  EXPECT_EQ(OpenBytes(stream.ToBytes())->root().Get("a").AsInt(), 7);
}

TEST(Legacy, HeaderDefects) {
  const auto expect = [](void (*change)(Stream&), ErrorCode code,
                         const std::string& text) {
    Stream stream = TwoTensorStream();
    change(stream);
    EXPECT_ERROR(OpenBytes(stream.ToBytes()), code, text);
  };
  const auto unsupported = ErrorCode::kUnsupported;
  expect([](Stream& s) { s.magic = Whole("K\x05"); }, unsupported,
         "plain pickle");
  expect([](Stream& s) { s.magic = Whole(pickle::Int(5)); }, unsupported,
         "plain pickle");
  expect([](Stream& s) { s.version = Whole("M\xea\x03"); }, unsupported,
         "unknown version");
  expect(
      [](Stream& s) {
        s.info = Whole(pickle::Dict({{"little_endian", "\x89"}}));
      },
      unsupported, "big-endian machine");
  expect([](Stream& s) { s.info = Whole("}"); }, ErrorCode::kDataLoss,
         "little_endian");
  expect([](Stream& s) { s.info = Whole(pickle::Storage()); },
         ErrorCode::kDataLoss, "persistent id");
}

TEST(Legacy, StorageDefects) {
  const auto expect = [](void (*change)(Stream&), const std::string& text) {
    Stream stream = TwoTensorStream();
    change(stream);
    EXPECT_ERROR(OpenBytes(stream.ToBytes()), ErrorCode::kDataLoss, text);
  };
  expect([](Stream& s) { s.suffix = "x"; }, "bytes follow the last storage");
  expect([](Stream& s) { s.data.pop_back(); }, "storage '200' is cut");
  expect([](Stream& s) { s.data = "1234567"; }, "storage '100' is cut");
  expect([](Stream& s) { s.data[0] = 5; }, "another size");
  expect([](Stream& s) { s.data[7] = '\x80'; }, "another size");
  expect([](Stream& s) { s.keys = Whole("](" + Str("100") + "e"); },
         "bytes follow the last storage");
  expect(
      [](Stream& s) {
        s.keys = Whole("](" + Str("100") + "e");
        s.data.resize(8 + 24);
      },
      "storage '200' is missing");
  expect(
      [](Stream& s) { s.keys = Whole("](" + Str("100") + Str("100") + "e"); },
      "twice");
  expect([](Stream& s) { s.keys = Whole("](" + Str("300") + "e"); },
         "occurs in no tensor");
  expect(
      [](Stream& s) {
        s.keys = Whole(
            "](K\x01"
            "e");
      },
      "a str");
}

TEST(Legacy, CutAnywhere) {
  const std::string bytes = TwoTensorStream().ToBytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(OpenBytes(bytes.substr(0, size)), Error) << size;
  }
}

}  // namespace
}  // namespace muonstore::torchfile
