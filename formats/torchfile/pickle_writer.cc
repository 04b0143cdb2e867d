#include "formats/torchfile/pickle_writer.h"

#include <bit>
#include <limits>
#include <span>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr char kProto = '\x80';
constexpr char kProtocol = 2;
constexpr char kBinInt1 = 'K';
constexpr char kBinInt2 = 'M';
constexpr char kBinInt = 'J';
constexpr char kLong1 = '\x8a';
constexpr char kLong4 = '\x8b';
constexpr char kBinFloat = 'G';
constexpr char kBinUnicode = 'X';
constexpr char kGlobal = 'c';
constexpr char kBinPut = 'q';
constexpr char kLongBinPut = 'r';
constexpr char kBinGet = 'h';
constexpr char kLongBinGet = 'j';

// Bytes of the shortest two's complement form.
size_t ShortestBytes(int64_t value) {
  size_t size = sizeof(value);
  while (size > 1) {
    const int64_t shift = 64 - 8 * static_cast<int64_t>(size - 1);
    const auto cut =
        static_cast<int64_t>(static_cast<uint64_t>(value) << shift);
    if ((cut >> shift) != value) {
      break;
    }
    --size;
  }
  return size;
}

}  // namespace

PickleWriter::PickleWriter() {
  Op(kProto);
  Op(kProtocol);
}

template <typename T>
void PickleWriter::Number(T value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max()) {
    Op(kBinInt1);
    Number(static_cast<uint8_t>(value));
  } else if (value >= 0 && value <= std::numeric_limits<uint16_t>::max()) {
    Op(kBinInt2);
    Number(static_cast<uint16_t>(value));
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    Op(kBinInt);
    Number(static_cast<int32_t>(value));
  } else {
    BigInt({reinterpret_cast<const char*>(&value), ShortestBytes(value)});
  }
}

void PickleWriter::BigInt(std::string_view bytes) {
  if (bytes.size() <= std::numeric_limits<uint8_t>::max()) {
    Op(kLong1);
    Number(static_cast<uint8_t>(bytes.size()));
  } else if (bytes.size() <= std::numeric_limits<int32_t>::max()) {
    Op(kLong4);
    Number(static_cast<int32_t>(bytes.size()));
  } else {
    throw Error(ErrorCode::kUnsupported, "an int of 2 GiB");
  }
  bytes_ += bytes;
}

void PickleWriter::Float(double value) {
  Op(kBinFloat);
  Number(__builtin_bswap64(std::bit_cast<uint64_t>(value)));
}

void PickleWriter::Str(std::string_view utf8) {
  if (utf8.size() > std::numeric_limits<uint32_t>::max()) {
    throw Error(ErrorCode::kUnsupported,
                "protocol 2 of pickle has no str of 4 GiB or more");
  }
  Op(kBinUnicode);
  Number(static_cast<uint32_t>(utf8.size()));
  bytes_ += utf8;
}

void PickleWriter::CommonStr(std::string_view utf8) {
  const auto [known, is_new] =
      common_strings_.try_emplace(std::string(utf8), next_number_);
  if (!is_new) {
    Get(known->second);
    return;
  }
  Str(utf8);
  Put();
}

void PickleWriter::Global(std::string_view module, std::string_view name) {
  const std::string line = StrCat(module, "\n", name, "\n");
  const auto [known, is_new] = globals_.try_emplace(line, next_number_);
  if (!is_new) {
    Get(known->second);
    return;
  }
  if (module.find('\n') != std::string_view::npos ||
      name.find('\n') != std::string_view::npos) {
    throw Error(ErrorCode::kUnsupported,
                "protocol 2 of pickle has no global with a line break in its "
                "name",
                {.found = Printable(line)});
  }
  Op(kGlobal);
  bytes_ += line;
  Put();
}

uint32_t PickleWriter::Put() {
  const uint32_t number = next_number_++;
  if (number <= std::numeric_limits<uint8_t>::max()) {
    Op(kBinPut);
    Number(static_cast<uint8_t>(number));
  } else {
    Op(kLongBinPut);
    Number(number);
  }
  return number;
}

void PickleWriter::Get(uint32_t number) {
  if (number <= std::numeric_limits<uint8_t>::max()) {
    Op(kBinGet);
    Number(static_cast<uint8_t>(number));
  } else {
    Op(kLongBinGet);
    Number(number);
  }
}

}  // namespace muonstore::torchfile
