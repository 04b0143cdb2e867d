// How the element-wise passes become vector code.
//
// MUONSTORE_SIMD in front of a function compiles it once for each instruction
// set below; the one that suits the processor is picked when the program
// starts. All give the same bits: the files are compiled without contraction
// and every fused multiply-add is written as std::fma, which is one rounding on
// every processor. What such a function calls in its loops must be
// MUONSTORE_INLINE, or it would be compiled for the oldest processor only.

#ifndef MUONSTORE_SRC_KERNEL_SIMD_H_
#define MUONSTORE_SRC_KERNEL_SIMD_H_

#define MUONSTORE_INLINE __attribute__((always_inline)) inline

// In front of a loop whose arrays do not overlap, where there are too many of
// them for the compiler to compare.
#if defined(__clang__)
#define MUONSTORE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define MUONSTORE_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Thread and address sanitizer instrument the code that picks the version,
// which runs before they are ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MUONSTORE_SIMD \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MUONSTORE_SIMD
#endif

#endif  // MUONSTORE_SRC_KERNEL_SIMD_H_
