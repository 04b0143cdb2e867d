// How the store behind muonstore.OffloadMuon is laid out and steps.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/tier.h"
#include "python/src/bindings.h"
#include "python/src/named.h"
#include "python/src/offload_optimizer.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;

void SetNewtonSchulz(OffloadOptions& options, const std::string& coefficients,
                     const std::string& form, const std::string& precision) {
  NewtonSchulzOptions& to = options.executor.newton_schulz;
  to.coefficients = Named<NewtonSchulzCoefficients>(
      {{"jordan5", NewtonSchulzCoefficients::Jordan5()},
       {"polar_express5", NewtonSchulzCoefficients::PolarExpress5()}},
      "no such coefficients; jordan5 and polar_express5 are", coefficients);
  to.form =
      Named<NewtonSchulzForm>({{"auto", NewtonSchulzForm::kAuto},
                               {"standard", NewtonSchulzForm::kStandard},
                               {"gram", NewtonSchulzForm::kGram}},
                              "no such form; auto, standard, gram are", form);
  to.precision = Named<NewtonSchulzPrecision>(
      {{"f32", NewtonSchulzPrecision::kF32},
       {"bf16", NewtonSchulzPrecision::kBF16}},
      "no such precision; f32 and bf16 are", precision);
}

void SetNvme(OffloadOptions& options, const std::string& directory,
             const std::vector<std::string>& kinds,
             uint64_t resident_below_bytes) {
  const std::shared_ptr<Tier> nvme = MakeNvmeTier({.directory = directory});
  for (const std::string& kind : kinds) {
    options.tiers.kinds[CanonicalStateKind(kind)] = {
        .tier = nvme, .resident_below_bytes = resident_below_bytes};
  }
}

}  // namespace

void BindOffloadOptions(nb::module_& module) {
  nb::class_<OffloadOptions>(module, "OffloadOptions")
      .def("__init__",
           [](OffloadOptions* options, std::shared_ptr<Communicator> ranks,
              bool row_shards, int32_t num_groups) {
             new (options) OffloadOptions{
                 .placement = row_shards ? Placement::kRowShards
                                         : Placement::kReplicated,
                 .communicator = std::move(ranks)};
             options->executor.groups.resize(static_cast<size_t>(num_groups));
             // As torch adds gradients up.
             options->executor.average_micro_batches = false;
           })
      .def_prop_rw(
          "accumulates",
          [](const OffloadOptions& options) {
            return options.convention == MomentumConvention::kAccumulate;
          },
          [](OffloadOptions& options, bool accumulates) {
            options.convention = accumulates ? MomentumConvention::kAccumulate
                                             : MomentumConvention::kLerp;
          })
      .def_prop_rw(
          "num_threads",
          [](const OffloadOptions& options) {
            return options.executor.num_threads;
          },
          [](OffloadOptions& options, int num_threads) {
            options.executor.num_threads = num_threads;
          })
      .def_rw("max_snapshot_bytes", &OffloadOptions::max_snapshot_bytes)
      .def("set_newton_schulz", &SetNewtonSchulz)
      .def("set_nvme", &SetNvme, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace muonstore::python
