#include <algorithm>
#include <string>
#include <utility>

#include "muonstore/checkpoint.h"
#include "muonstore/error.h"
#include "muonstore/open.h"

namespace muonstore {

Finding Finding::FromError(const Error& error, std::string code) {
  return {.severity = Severity::kFault,
          .code = std::move(code),
          .message = error.message(),
          .place = error.place()};
}

std::string Finding::ToString() const {
  // Error renders a place and a message in the one way that users know.
  return Error(ErrorCode::kDataLoss, message, place).what();
}

bool VerifyReport::whole() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) {
                        return finding.severity == Finding::Severity::kFault;
                      });
}

}  // namespace muonstore
