// What `verify` says.
#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_VERIFY_OUTPUT_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_VERIFY_OUTPUT_H_

#include "muonstore/open.h"
#include "tools/common/json.h"

namespace muonstore::tools {

Json VerifyJson(const VerifyReport& report, bool quick);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_VERIFY_OUTPUT_H_
