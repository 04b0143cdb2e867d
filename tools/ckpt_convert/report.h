// What ckpt-convert says about a run.
#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_REPORT_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_REPORT_H_

#include <string>

#include "tools/ckpt_convert/job.h"
#include "tools/ckpt_convert/options.h"
#include "tools/common/json.h"

namespace muonstore::tools {

std::string ReportText(const Options& options, const Outcome& outcome);
Json ReportJson(const Options& options, const Outcome& outcome);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_REPORT_H_
