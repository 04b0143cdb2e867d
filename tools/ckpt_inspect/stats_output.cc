#include "tools/ckpt_inspect/stats_output.h"

#include <map>

#include "src/base/str.h"
#include "tools/common/table.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// "blocks.0.qkv.weight [2/4]": the third of four matrices.
std::string MatrixName(const MatrixReport& report) {
  std::string name = Printable(report.key.parameter);
  if (report.num_matrices > 1) {
    name += StrCat(" [", report.matrix, "/", report.num_matrices, "]");
  }
  return name;
}

std::string SigmaText(const MatrixStats& stats) {
  std::string text;
  for (const double value : stats.singular_values) {
    text += (text.empty() ? "" : " ") + ShortNumber(value);
  }
  if (!stats.singular_values_converged) text += " (at least)";
  return text.empty() ? "-" : text;
}

std::string FlagText(const MatrixReport& report) {
  std::string text;
  for (const MatrixFlag flag : report.flags) {
    text += StrCat(text.empty() ? "" : ",", MatrixFlagName(flag));
  }
  if (report.stats && report.stats->first_nonfinite) {
    const MatrixIndex& first = *report.stats->first_nonfinite;
    text += StrCat(" (", report.stats->num_nonfinite, ", first at [", first.row,
                   ", ", first.col, "])");
  }
  if (!report.note.empty()) {
    text += StrCat(text.empty() ? "" : ": ", report.note);
  }
  return text;
}

std::vector<std::string> Cells(const MatrixReport& report, bool compared) {
  std::vector<std::string> cells = {
      MatrixName(report), StrCat(report.view.rows, "x", report.view.cols)};
  if (report.stats) {
    const MatrixStats& stats = *report.stats;
    cells.insert(cells.end(),
                 {ShortNumber(stats.frobenius), ShortNumber(stats.rms()),
                  ShortNumber(stats.min), ShortNumber(stats.max),
                  Percent(stats.zero_fraction()),
                  ShortNumber(stats.stable_rank), SigmaText(stats)});
  } else {
    cells.insert(cells.end(), 7, "-");
  }
  cells.push_back(ShortNumber(report.ratio_to_master));
  if (compared) {
    cells.push_back(ShortNumber(report.cosine));
    cells.push_back(ShortNumber(report.norm_ratio));
  }
  cells.push_back(FlagText(report));
  return cells;
}

std::map<MatrixFlag, int64_t> CountFlags(
    std::span<const MatrixReport> reports) {
  std::map<MatrixFlag, int64_t> counts;
  for (const MatrixReport& report : reports) {
    for (const MatrixFlag flag : report.flags) ++counts[flag];
  }
  return counts;
}

Json StatsJson(const MatrixStats& stats) {
  Json json;
  json["frobenius"] = ToJson(stats.frobenius);
  json["rms"] = ToJson(stats.rms());
  json["min"] = ToJson(stats.min);
  json["max"] = ToJson(stats.max);
  json["num_nonfinite"] = stats.num_nonfinite;
  json["first_nonfinite"] =
      stats.first_nonfinite
          ? Json{stats.first_nonfinite->row, stats.first_nonfinite->col}
          : Json(nullptr);
  json["zero_fraction"] = stats.zero_fraction();
  json["denormal_fraction"] = stats.denormal_fraction();
  json["stable_rank"] = ToJson(stats.stable_rank);
  json["singular_values"] = Json::array();
  for (const double value : stats.singular_values) {
    json["singular_values"].push_back(ToJson(value));
  }
  json["singular_values_converged"] = stats.singular_values_converged;
  return json;
}

Json ReportJson(const MatrixReport& report) {
  Json json;
  json["parameter"] = report.key.parameter;
  json["state"] = report.key.kind;
  json["dtype"] = DTypeName(report.dtype);
  json["matrix"] = report.matrix;
  json["num_matrices"] = report.num_matrices;
  json["rows"] = report.view.rows;
  json["cols"] = report.view.cols;
  json["stats"] = report.stats ? StatsJson(*report.stats) : Json(nullptr);
  json["ratio_to_master"] = ToJson(report.ratio_to_master);
  json["cosine"] = ToJson(report.cosine);
  json["norm_ratio"] = ToJson(report.norm_ratio);
  json["flags"] = Json::array();
  for (const MatrixFlag flag : report.flags) {
    json["flags"].push_back(MatrixFlagName(flag));
  }
  json["note"] = report.note.empty() ? Json(nullptr) : Json(report.note);
  return json;
}

}  // namespace

std::string StatsText(std::span<const MatrixReport> reports, bool compared) {
  std::vector<Table::Column> columns = {
      {"parameter"},      {"matrix", kRight},      {"norm", kRight},
      {"rms", kRight},    {"min", kRight},         {"max", kRight},
      {"zero", kRight},   {"stable rank", kRight}, {"top singular values"},
      {"/master", kRight}};
  if (compared) {
    columns.push_back({"cosine", kRight});
    columns.push_back({"norm ratio", kRight});
  }
  columns.push_back({""});
  Table table(std::move(columns));
  for (const MatrixReport& report : reports) {
    table.AddRow(Cells(report, compared));
  }
  std::string out = table.ToString();
  out += Counted(static_cast<int64_t>(reports.size()), "matrix", "matrices");
  std::string flagged;
  for (const auto& [flag, count] : CountFlags(reports)) {
    flagged += StrCat(", ", count, " ", MatrixFlagName(flag));
  }
  return out + (flagged.empty() ? ", none flagged" : flagged) + "\n";
}

void AddStatsJson(std::span<const MatrixReport> reports, Json& json) {
  json["matrices"] = Json::array();
  for (const MatrixReport& report : reports) {
    json["matrices"].push_back(ReportJson(report));
  }
  json["flagged"] = Json::object();
  for (const auto& [flag, count] : CountFlags(reports)) {
    json["flagged"][std::string(MatrixFlagName(flag))] = count;
  }
}

}  // namespace muonstore::tools
