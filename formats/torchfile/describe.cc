// Value::Describe: bounded in depth and in bytes, so cycles end it, too.

#include <algorithm>
#include <string>

#include "formats/torchfile/value.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr int kMaxDepth = 4;

class Renderer {
 public:
  explicit Renderer(size_t limit) : limit_(limit) {}

  void Prefix(std::string_view type_name) { text_ = StrCat(type_name, " "); }
  void Render(const Value& value, int depth);

  // The text, cut at a character boundary.
  std::string Take() && {
    if (text_.size() <= limit_) {
      return std::move(text_);
    }
    const std::string_view dots =
        std::string_view("...").substr(0, std::min<size_t>(3, limit_));
    size_t end = limit_ - dots.size();
    while (end > 0 && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) {
      --end;
    }
    return text_.substr(0, end).append(dots);
  }

 private:
  bool is_full() const { return text_.size() > limit_; }
  void AppendText(std::string_view text, std::string_view quote);
  void RenderScalar(const Value& value);
  void RenderTensor(const TensorInfo& tensor);
  void RenderSequence(const Value& value, int depth);
  void RenderEntries(const Value& dict, int depth);
  void RenderObject(const Value& value, int depth);

  size_t limit_;
  std::string text_;
};

void Renderer::AppendText(std::string_view text, std::string_view quote) {
  // One byte more than fits: Take() then shows that something is missing.
  text_ += StrCat(quote, Printable(text.substr(0, limit_ + 1)), quote);
}

void Renderer::RenderScalar(const Value& value) {
  switch (value.type()) {
    case ValueType::kNone:
      text_ += "None";
      return;
    case ValueType::kBool:
      text_ += value.AsBool() ? "True" : "False";
      return;
    case ValueType::kInt:
      text_ += std::to_string(value.AsInt());
      return;
    case ValueType::kBigInt:
      text_ +=
          StrCat("int of ", 8 * value.tree().Text(value.id()).size(), " bits");
      return;
    case ValueType::kFloat:
      text_ += FormatNumber(value.AsNumber());
      return;
    case ValueType::kString:
      AppendText(value.AsString(), "'");
      return;
    case ValueType::kBytes:
      text_ += StrCat("bytes[", value.AsBytes().size(), "]");
      return;
    default:
      AppendText(value.cls()->ToString(), "");
      return;
  }
}

void Renderer::RenderTensor(const TensorInfo& tensor) {
  text_ += StrCat("tensor ", DTypeName(tensor.dtype), tensor.shape.ToString());
}

void Renderer::RenderEntries(const Value& dict, int depth) {
  text_ += '{';
  for (size_t i = 0; i < dict.size() && !is_full(); ++i) {
    const auto [key, item] = dict.entry(i);
    text_ += i == 0 ? "" : ", ";
    Render(key, depth + 1);
    text_ += ": ";
    Render(item, depth + 1);
  }
  text_ += '}';
}

void Renderer::RenderSequence(const Value& value, int depth) {
  const bool is_tuple = value.is(ValueType::kTuple);
  const bool is_set = value.is(ValueType::kSet);
  text_ += is_tuple ? '(' : is_set ? '{' : '[';
  for (size_t i = 0; i < value.size() && !is_full(); ++i) {
    text_ += i == 0 ? "" : ", ";
    Render(value.at(i), depth + 1);
  }
  text_ += is_tuple && value.size() == 1 ? "," : "";
  text_ += is_tuple ? ')' : is_set ? '}' : ']';
}

void Renderer::RenderObject(const Value& value, int depth) {
  AppendText(value.cls()->ToString(), "");
  const auto state = value.state();
  if (state.has_value() && state->is(ValueType::kDict)) {
    RenderEntries(*state, depth);
    return;
  }
  text_ += '(';
  for (size_t i = 0; value.arg(i).has_value() && !is_full(); ++i) {
    text_ += i == 0 ? "" : ", ";
    Render(*value.arg(i), depth + 1);
  }
  text_ += ')';
}

void Renderer::Render(const Value& value, int depth) {
  const bool holds_items = value.type() >= ValueType::kList &&
                           value.type() != ValueType::kGlobal &&
                           value.type() <= ValueType::kObject;
  if (is_full() || (depth > kMaxDepth && holds_items)) {
    text_ += "...";
    return;
  }
  switch (value.type()) {
    case ValueType::kDict:
      return RenderEntries(value, depth);
    case ValueType::kList:
    case ValueType::kTuple:
    case ValueType::kSet:
      return RenderSequence(value, depth);
    case ValueType::kObject:
      return RenderObject(value, depth);
    case ValueType::kTensor:
      return RenderTensor(value.AsTensor());
    case ValueType::kStorage:
      text_ += StrCat("storage ", Printable(value.AsStorage().key));
      return;
    default:
      return RenderScalar(value);
  }
}

}  // namespace

std::string Value::Describe(size_t limit) const {
  Renderer renderer(limit);
  switch (type()) {
    case ValueType::kBool:
    case ValueType::kInt:
    case ValueType::kFloat:
    case ValueType::kString:
    case ValueType::kDict:
    case ValueType::kList:
    case ValueType::kTuple:
    case ValueType::kSet:
    case ValueType::kGlobal:
      renderer.Prefix(ValueTypeName(type()));
      break;
    default:
      break;
  }
  renderer.Render(*this, 0);
  return std::move(renderer).Take();
}

}  // namespace muonstore::torchfile
