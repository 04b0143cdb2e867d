// The passes over elements between the products of Newton-Schulz.
//
// Compiled by nvcc where the build has one, else by NVRTC on the machine that
// runs it, so: no header, plain C types, C names. No thread waits for another
// and no sum depends on which one comes first, so that results are the same in
// every run, and a loop over the threads of a grid computes the same on a CPU.
// blockIdx.y is the matrix of a batch.

typedef unsigned short Bf16;

__device__ static long long FirstElement() {
  return (long long)blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ static long long NumThreads() {
  return (long long)gridDim.x * blockDim.x;
}

// To nearest even; NaN stays NaN.
__device__ static Bf16 Rounded(float value) {
  union {
    float number;
    unsigned bits;
  } in;
  in.number = value;
  if (value != value) return (Bf16)((in.bits >> 16) | 64u);
  return (Bf16)((in.bits + 0x7fffu + ((in.bits >> 16) & 1u)) >> 16);
}

__device__ static float Widened(Bf16 value) {
  union {
    float number;
    unsigned bits;
  } out;
  out.bits = (unsigned)value << 16;
  return out.number;
}

// parts[matrix][p]: the squares of elements p, p + num_parts, ...
extern "C" __global__ void SumSquares(const float* x, long long elements,
                                      double* parts, long long num_parts) {
  const float* matrix = x + blockIdx.y * elements;
  for (long long p = FirstElement(); p < num_parts; p += NumThreads()) {
    double sum = 0;
    for (long long i = p; i < elements; i += num_parts) {
      sum += (double)matrix[i] * (double)matrix[i];
    }
    parts[blockIdx.y * num_parts + p] = sum;
  }
}

// sums[i]: of parts[i * each ... i * each + each - 1], in their order.
extern "C" __global__ void SumParts(const double* parts, long long each,
                                    double* sums, long long num_sums) {
  for (long long i = FirstElement(); i < num_sums; i += NumThreads()) {
    double sum = 0;
    for (long long j = 0; j < each; ++j) sum += parts[i * each + j];
    sums[i] = sum;
  }
}

// x = x / (norm * norm_factor + eps); a matrix of zeros stays as it is.
extern "C" __global__ void Normalize(float* x, long long elements,
                                     const double* sums, double norm_factor,
                                     double eps) {
  const double sum = sums[blockIdx.y];
  if (sum == 0) return;
  const double scale = 1 / (sqrt(sum) * norm_factor + eps);
  float* matrix = x + blockIdx.y * elements;
  for (long long i = FirstElement(); i < elements; i += NumThreads()) {
    matrix[i] = (float)((double)matrix[i] * scale);
  }
}

// out = in rounded to bf16.
extern "C" __global__ void Round(const float* in, Bf16* out, long long count) {
  for (long long i = FirstElement(); i < count; i += NumThreads()) {
    out[i] = Rounded(in[i]);
  }
}

extern "C" __global__ void Widen(const Bf16* in, float* out, long long count) {
  for (long long i = FirstElement(); i < count; i += NumThreads()) {
    out[i] = Widened(in[i]);
  }
}

// Adds `value` to the diagonals of square matrices.
extern "C" __global__ void AddToDiagonal(float* x, long long side,
                                         float value) {
  float* matrix = x + blockIdx.y * side * side;
  for (long long i = FirstElement(); i < side; i += NumThreads()) {
    matrix[i * side + i] += value;
  }
}
