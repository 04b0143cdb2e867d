// The one door to oneDNN.
#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <array>
#include <map>
#include <mutex>
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

// A packed product of fixed sizes. Executing it is thread-safe, as its scratch
// memory comes from the caller.
struct PackedProduct {
  dnnl::memory::desc a;
  dnnl::memory::desc b;
  dnnl::memory::desc c;
  dnnl::memory::desc scratch;
  dnnl::matmul primitive;
};

// m, n, k, whether C is added to.
using ProductKey = std::array<int64_t, 4>;

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

  void Multiply(const GemmCall& call) const override {
    const OneThread one_thread;
    const dnnl_status_t status = dnnl_sgemm(
        'N', call.b_transposed ? 'T' : 'N', call.m, call.n, call.k, 1.0F,
        call.a, call.lda, call.b, call.ldb, 0.0F, call.c, call.ldc);
    if (status != dnnl_success) {
      ThrowRefused("f32", dnnl_status2str(status));
    }
  }

  double bf16_rate() const override {
    const auto has = [](dnnl::cpu_isa isa) {
      // The values are sets of bits.
      const auto bits = static_cast<unsigned>(isa);
      return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) ==
             bits;
    };
    if (has(dnnl::cpu_isa::avx512_core_amx)) {
      // The unit does 16; what its operands wait for leaves this.
      return 7;
    }
    return has(dnnl::cpu_isa::avx512_core_bf16) ? 2 : 0;
  }

  void Multiply(const PackedGemmCall& call) const override {
    const OneThread one_thread;
    try {
      Execute(*Product(call), call);
    } catch (const dnnl::error& error) {
      ThrowRefused("bf16", error.what());
    }
  }

 private:
  // More shapes than this are in use only while they change.
  static constexpr size_t kMaxProducts = 256;

  std::shared_ptr<const PackedProduct> Product(
      const PackedGemmCall& call) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const ProductKey key = {call.m, call.n, call.k, int64_t{call.accumulate}};
    const auto found = products_.find(key);
    if (found != products_.end()) {
      return found->second;
    }
    if (products_.size() >= kMaxProducts) {
      products_.clear();
    }
    return products_[key] = MakeProduct(call);
  }

  std::shared_ptr<const PackedProduct> MakeProduct(
      const PackedGemmCall& call) const {
    using Tag = dnnl::memory::format_tag;
    const auto bf16 = dnnl::memory::data_type::bf16;
    auto product = std::make_shared<PackedProduct>();
    product->a = {{call.m, call.k}, bf16, Tag::ab};
    product->b = {{call.k, call.n}, bf16, Tag::BA16a64b2a};
    product->c = {{call.m, call.n}, dnnl::memory::data_type::f32, Tag::ab};
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (call.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(product->a, product->b, product->c), attributes,
        engine_);
    product->scratch = description.scratchpad_desc();
    product->primitive = dnnl::matmul(description);
    return product;
  }

  void Execute(const PackedProduct& product, const PackedGemmCall& call) const {
    // oneDNN's handles are not const; what they point at is only read.
    auto* a = const_cast<BF16*>(call.a);
    auto* b = const_cast<BF16*>(call.packed_b);
    dnnl::stream stream(engine_);
    product.primitive.execute(
        stream,
        {{DNNL_ARG_SRC, dnnl::memory(product.a, engine_, a)},
         {DNNL_ARG_WEIGHTS, dnnl::memory(product.b, engine_, b)},
         {DNNL_ARG_DST, dnnl::memory(product.c, engine_, call.c)},
         {DNNL_ARG_SCRATCHPAD, dnnl::memory(product.scratch, engine_)}});
    stream.wait();
  }

  dnnl::engine engine_;
  mutable std::mutex mutex_;  // Guards products_.
  mutable std::map<ProductKey, std::shared_ptr<const PackedProduct>> products_;
};

}  // namespace

std::unique_ptr<Gemm> MakeGemm() { return std::make_unique<OneDnnGemm>(); }

}  // namespace muonstore
