#include "src/checkpoint/shared_error.h"

#include <array>
#include <span>
#include <utility>
#include <vector>

#include "src/base/str.h"

namespace muonstore {
namespace {

// Fields one behind the other, each with its length before it.
class Packer {
 public:
  void Add(std::string_view field) {
    text_ += StrCat(field.size(), ":", field);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view text) : text_(text) {}

  std::string Next() {
    const size_t colon = text_.find(':');
    const size_t size = std::stoull(std::string(text_.substr(0, colon)));
    std::string field(text_.substr(colon + 1, size));
    text_.remove_prefix(colon + 1 + size);
    return field;
  }

 private:
  std::string_view text_;
};

std::string Pack(const Error& error) {
  const ErrorPlace& place = error.place();
  Packer packer;
  packer.Add(StrCat(static_cast<int>(error.code())));
  packer.Add(error.message());
  packer.Add(place.file);
  packer.Add(place.tensor);
  packer.Add(place.offset_bytes ? StrCat(*place.offset_bytes) : "");
  packer.Add(place.expected);
  packer.Add(place.found);
  return packer.Take();
}

Error Unpack(const std::string& text, int64_t rank) {
  Unpacker unpacker(text);
  const auto code = static_cast<ErrorCode>(std::stoi(unpacker.Next()));
  const std::string message = unpacker.Next();
  ErrorPlace place;
  place.file = unpacker.Next();
  place.tensor = unpacker.Next();
  if (const std::string offset = unpacker.Next(); !offset.empty()) {
    place.offset_bytes = std::stoull(offset);
  }
  place.expected = unpacker.Next();
  place.found = unpacker.Next();
  return {code, StrCat("on rank ", rank, ": ", message), std::move(place)};
}

}  // namespace

std::string BroadcastText(Communicator& ranks, std::string text, int32_t root) {
  std::array<uint64_t, 1> size = {text.size()};
  ranks.Broadcast(std::as_writable_bytes(std::span(size)), root);
  text.resize(size[0]);
  if (!text.empty()) {
    ranks.Broadcast(std::as_writable_bytes(std::span(text)), root);
  }
  return text;
}

std::optional<Error> SharedError(Communicator& ranks,
                                 const std::optional<Error>& own) {
  std::array<int64_t, 1> first = {own ? ranks.rank() : ranks.size()};
  ranks.AllReduce(first, ReduceOp::kMin);
  if (first[0] == ranks.size()) return std::nullopt;
  const std::string text = BroadcastText(ranks, own ? Pack(*own) : "",
                                         static_cast<int32_t>(first[0]));
  return own ? own : Unpack(text, first[0]);
}

}  // namespace muonstore
