// What Muon's step makes of a matrix.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <string>

#include "muonstore/error.h"
#include "muonstore/newton_schulz.h"
#include "muonstore/thread_pool.h"
#include "python/src/bindings.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using Input =
    nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Output = nb::ndarray<float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

NewtonSchulzOptions OptionsOf(const std::string& coefficients,
                              const std::string& precision) {
  NewtonSchulzOptions options;
  if (coefficients == "polar_express5") {
    options.coefficients = NewtonSchulzCoefficients::PolarExpress5();
  } else if (coefficients != "jordan5") {
    throw Error(
        ErrorCode::kInvalidArgument, "no such coefficients",
        {.expected = "jordan5 or polar_express5", .found = coefficients});
  }
  if (precision == "bf16") {
    options.precision = NewtonSchulzPrecision::kBF16;
  } else if (precision != "f32") {
    throw Error(ErrorCode::kInvalidArgument, "no such precision",
                {.expected = "f32 or bf16", .found = precision});
  }
  return options;
}

template <typename T, typename Array>
StridedMatrices<T> MatricesOf(const Array& array) {
  const auto rows = static_cast<int64_t>(array.shape(1));
  const auto cols = static_cast<int64_t>(array.shape(2));
  return {.data = array.data(),
          .batch = static_cast<int64_t>(array.shape(0)),
          .rows = rows,
          .cols = cols,
          .batch_stride = rows * cols,
          .row_stride = cols};
}

void Run(const Input& in, const Output& out, const std::string& coefficients,
         const std::string& precision, int num_threads) {
  const NewtonSchulzOptions options = OptionsOf(coefficients, precision);
  const auto from = MatricesOf<const float>(in);
  const auto to = MatricesOf<float>(out);
  const nb::gil_scoped_release release;
  ThreadPool pool(num_threads);
  Orthogonalize(from, to, options, pool);
}

}  // namespace

void BindOrthogonalize(nb::module_& module) {
  module.def("orthogonalize", &Run, nb::arg("matrices"), nb::arg("out"),
             nb::arg("coefficients"), nb::arg("precision"),
             nb::arg("num_threads"));
  module.def("matrix_product_name", &MatrixProductName);
}

}  // namespace muonstore::python
