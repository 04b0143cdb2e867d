// The one door to oneDNN.
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <array>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/kernel/gemm.h"

#include <oneapi/dnnl/dnnl.hpp>

// oneDNN asks OpenMP's runtime how many threads to use. Declared here because
// the compiler at hand may bring another runtime's omp.h, or none.
extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int num_threads);
}

namespace muonstore {
namespace {

// Keeps what the current thread calls on the current thread. The setting is the
// thread's own and is put back.
class OneThread {
 public:
  OneThread() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(previous_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int previous_;
};

[[noreturn]] void ThrowRefused(const char* product, const char* why) {
  throw Error(ErrorCode::kInternal,
              StrCat("oneDNN refused a matrix product in ", product, ": ", why,
                     "; please report the processor and this message"));
}

// A product of bf16 matrices for fixed sizes. Executing it is thread-safe, as
// its scratch memory comes from the caller.
struct BF16Product {
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
};

// m, n, k, leading dimensions of A, B and C, whether B is transposed.
using ProductKey = std::array<int64_t, 7>;

ProductKey KeyOf(const GemmCall<BF16>& call) {
  return {call.m,
          call.n,
          call.k,
          call.lda,
          call.ldb,
          call.ldc,
          int64_t{call.b_transposed}};
}

std::string IsaName() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "before avx2";
  }
}

class OneDnnGemm : public Gemm {
 public:
  OneDnnGemm() : engine_(dnnl::engine::kind::cpu, 0) {}

  std::string name() const override {
    const dnnl_version_t& version = *dnnl_version();
    return StrCat("oneDNN ", version.major, ".", version.minor, ".",
                  version.patch, " ", IsaName());
  }

  void Multiply(const GemmCall<float>& call) const override {
    const OneThread one_thread;
    const dnnl_status_t status = dnnl_sgemm(
        'N', call.b_transposed ? 'T' : 'N', call.m, call.n, call.k, 1.0F,
        call.a, call.lda, call.b, call.ldb, 0.0F, call.c, call.ldc);
    if (status != dnnl_success) {
      ThrowRefused("f32", dnnl_status2str(status));
    }
  }

  void Multiply(const GemmCall<BF16>& call) const override {
    const OneThread one_thread;
    try {
      Execute(Product(call), call);
    } catch (const dnnl::error& error) {
      ThrowRefused("bf16", error.what());
    }
  }

 private:
  // More shapes than this are in use only while they change.
  static constexpr size_t kMaxProducts = 256;

  std::shared_ptr<const BF16Product> Product(const GemmCall<BF16>& call) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const ProductKey key = KeyOf(call);
    const auto found = products_.find(key);
    if (found != products_.end()) {
      return found->second;
    }
    if (products_.size() >= kMaxProducts) {
      products_.clear();
    }
    return products_[key] = MakeProduct(call);
  }

  std::shared_ptr<const BF16Product> MakeProduct(
      const GemmCall<BF16>& call) const {
    using Dims = dnnl::memory::dims;
    const auto bf16 = dnnl::memory::data_type::bf16;
    const dnnl::memory::desc a({call.m, call.k}, bf16, Dims{call.lda, 1});
    const dnnl::memory::desc b(
        {call.k, call.n}, bf16,
        call.b_transposed ? Dims{1, call.ldb} : Dims{call.ldb, 1});
    const dnnl::memory::desc c({call.m, call.n}, dnnl::memory::data_type::f32,
                               Dims{call.ldc, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    auto product = std::make_shared<BF16Product>();
    product->description = dnnl::matmul::primitive_desc(
        dnnl::matmul::desc(a, b, c), attributes, engine_);
    product->primitive = dnnl::matmul(product->description);
    return product;
  }

  void Execute(const std::shared_ptr<const BF16Product>& product,
               const GemmCall<BF16>& call) const {
    const dnnl::matmul::primitive_desc& description = product->description;
    // oneDNN's handles are not const; what they point at is only read.
    auto* a = const_cast<BF16*>(call.a);
    auto* b = const_cast<BF16*>(call.b);
    dnnl::stream stream(engine_);
    product->primitive.execute(
        stream,
        {{DNNL_ARG_SRC, dnnl::memory(description.src_desc(), engine_, a)},
         {DNNL_ARG_WEIGHTS,
          dnnl::memory(description.weights_desc(), engine_, b)},
         {DNNL_ARG_DST, dnnl::memory(description.dst_desc(), engine_, call.c)},
         {DNNL_ARG_SCRATCHPAD,
          dnnl::memory(description.scratchpad_desc(), engine_)}});
    stream.wait();
  }

  dnnl::engine engine_;
  mutable std::mutex mutex_;  // Guards products_.
  mutable std::map<ProductKey, std::shared_ptr<const BF16Product>> products_;
};

}  // namespace

std::unique_ptr<Gemm> MakeGemm() {
  auto gemm = std::make_unique<OneDnnGemm>();
  // The values are sets of bits.
  const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  if ((has & bf16) == bf16) {
    return gemm;
  }
  return MakeWideningGemm(std::move(gemm));
}

}  // namespace muonstore
