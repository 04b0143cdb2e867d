#include "muonstore/error.h"

#include <utility>

namespace muonstore {
namespace {

std::string Render(const std::string& message, const ErrorPlace& place) {
  std::string text;
  if (!place.file.empty()) {
    text += place.file + ": ";
  }
  if (!place.tensor.empty()) {
    text += "tensor " + place.tensor + ": ";
  }
  if (place.offset_bytes.has_value()) {
    text += "at byte " + std::to_string(*place.offset_bytes) + ": ";
  }
  text += message;
  if (!place.expected.empty() && !place.found.empty()) {
    text += " (expected " + place.expected + ", found " + place.found + ")";
  } else if (!place.expected.empty()) {
    text += " (expected " + place.expected + ")";
  } else if (!place.found.empty()) {
    text += " (found " + place.found + ")";
  }
  return text;
}

}  // namespace

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "InvalidArgument";
    case ErrorCode::kNotFound:
      return "NotFound";
    case ErrorCode::kDataLoss:
      return "DataLoss";
    case ErrorCode::kUnsupported:
      return "Unsupported";
    case ErrorCode::kResourceExhausted:
      return "ResourceExhausted";
    case ErrorCode::kUnavailable:
      return "Unavailable";
    case ErrorCode::kInternal:
      return "Internal";
  }
  return "Unknown";
}

Error::Error(ErrorCode code, std::string message, ErrorPlace place)
    : code_(code),
      message_(std::move(message)),
      place_(std::move(place)),
      text_(Render(message_, place_)) {}

Error Error::WithFile(std::string_view file) const {
  if (!place_.file.empty()) {
    return *this;
  }
  ErrorPlace place = place_;
  place.file = file;
  return Error(code_, message_, std::move(place));
}

Error Error::WithTensor(std::string_view tensor) const {
  if (!place_.tensor.empty()) {
    return *this;
  }
  ErrorPlace place = place_;
  place.tensor = tensor;
  return Error(code_, message_, std::move(place));
}

}  // namespace muonstore
