// The runtime of the generated C++: vectors of LANES numbers, elementwise functions, random keys, products, threads.
//
// Everything is written with the compiler's own vector types, so that one source serves every processor. Only square
// roots, fused multiplication and the bfloat16 product name an instruction. No fast-math: NaN and infinity stay.
//
// For ARM they are written in assembler. To g++ 12, an intrinsic that may raise a floating-point exception may also change
// memory: around vfmaq_f32, every sum of a product's tile was loaded and stored again.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#if THREADS > 1
#include <atomic>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#define INLINE inline __attribute__((always_inline))
// g++ 12.2 -O1 left out the call of a function that only copies, as if it wrote nothing; not with -fno-ivopts. So every
// function that the generator writes is excluded from interprocedural analysis.
#if defined(__clang__)
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noipa))
#endif
#define UNROLL _Pragma("GCC unroll 32")

namespace {  // libraries for different processors must not share functions of the same name

constexpr int L = LANES;
typedef float vf __attribute__((vector_size(4 * LANES), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * LANES), may_alias));  // also a mask: 0 or -1 in each lane
typedef uint32_t vu __attribute__((vector_size(4 * LANES), may_alias));
typedef vf vf_anywhere __attribute__((aligned(4)));
typedef vi vi_anywhere __attribute__((aligned(4)));
typedef vu vu_anywhere __attribute__((aligned(4)));
typedef uint32_t word __attribute__((may_alias));
typedef int32_t number __attribute__((may_alias));

// ---- Lanes

#if LANES == 16
INLINE vi lanes() { return vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; }
#elif LANES == 8
INLINE vi lanes() { return vi{0, 1, 2, 3, 4, 5, 6, 7}; }
#else
INLINE vi lanes() { return vi{0, 1, 2, 3}; }
#endif

// The same number in every lane.
INLINE vf all(float x) { return x - vf{}; }
INLINE vi all(int x) { return x + vi{}; }
INLINE vu all(uint32_t x) { return x + vu{}; }
INLINE vi all(bool x) { return all(x ? -1 : 0); }
INLINE vi lanes_below(int n) { return lanes() < all(n); }

INLINE vf load_f(const float* p) { return *(const vf_anywhere*)p; }
INLINE vi load_i(const float* p) { return *(const vi_anywhere*)p; }
INLINE vu load_u(const float* p) { return *(const vu_anywhere*)p; }
INLINE vi load_b(const float* p) { return load_i(p) != 0; }
INLINE float scalar_f(const float* p) { return *p; }
INLINE int scalar_i(const float* p) { return *(const number*)p; }
INLINE uint32_t scalar_u(const float* p) { return *(const word*)p; }
INLINE int scalar_b(const float* p) { return *(const number*)p ? -1 : 0; }
INLINE void store(float* p, vf x) { *(vf_anywhere*)p = x; }
INLINE void store(float* p, vi x) { *(vi_anywhere*)p = x; }
INLINE void store(float* p, vu x) { *(vu_anywhere*)p = x; }
template <class V> INLINE void store_lane(float* p, V x, int lane) { memcpy(p, (const char*)&x + 4 * lane, 4); }
template <class V, class F> INLINE V each(F f) {
  V x;
  for (int lane = 0; lane < L; lane++) x[lane] = f(lane);
  return x;
}

// Element (r, c) of a matrix with R rows in panels of W columns.
template <int W, int R> INLINE constexpr int panel(int r, int c) {
  return (int)((unsigned)c / W) * (R * W) + r * W + (int)((unsigned)c % W);
}
// A vector from element (r, c) on, of a matrix with C columns: it may begin in one panel and end in the next.
template <class V, int W, int R> INLINE V load_across(const float* m, int r, int c, int C) {
  typedef V anywhere __attribute__((aligned(4)));
  const int here = W - (int)((unsigned)c % W);  // lanes in the first panel
  const V first = *(const anywhere*)(m + panel<W, R>(r, c));
  if (here >= L || c + here >= C) return first;
  const V second = *(const anywhere*)(m + panel<W, R>(r, c + here) - here);
  return lanes_below(here) ? first : second;
}
// The first n lanes, likewise.
template <int W, int R, class V> INLINE void store_across(float* m, int r, int c, V x, int n) {
  if (n >= L && (unsigned)c % W <= W - L) store(m + panel<W, R>(r, c), x);
  else for (int lane = 0; lane < L && lane < n; lane++) store_lane(m + panel<W, R>(r, c + lane), x, lane);
}
INLINE int clip(int i, int size) { return i < 0 ? 0 : i >= size ? size - 1 : i; }

// ---- Elementwise functions

INLINE vf select(vi mask, vf no, vf yes) { return mask ? yes : no; }
INLINE vi select(vi mask, vi no, vi yes) { return mask ? yes : no; }
INLINE vu select(vi mask, vu no, vu yes) { return mask ? yes : no; }
// NaN on either side gives NaN. x86's instruction gives its second operand if they are equal, or if either is NaN; so a
// constant b costs nothing more.
#if LANES == 16
INLINE vf max_(vf a, vf b) { return b != b ? b : (vf)_mm512_max_ps((__m512)b, (__m512)a); }
INLINE vf min_(vf a, vf b) { return b != b ? b : (vf)_mm512_min_ps((__m512)b, (__m512)a); }
#elif LANES == 8
INLINE vf max_(vf a, vf b) { return b != b ? b : (vf)_mm256_max_ps((__m256)b, (__m256)a); }
INLINE vf min_(vf a, vf b) { return b != b ? b : (vf)_mm256_min_ps((__m256)b, (__m256)a); }
#else
INLINE vf max_(vf a, vf b) { return ((a < b) | (b != b)) ? b : a; }
INLINE vf min_(vf a, vf b) { return ((a > b) | (b != b)) ? b : a; }
#endif
INLINE vi max_(vi a, vi b) { return a < b ? b : a; }
INLINE vi min_(vi a, vi b) { return a > b ? b : a; }
INLINE vu max_(vu a, vu b) { return a < b ? b : a; }
INLINE vu min_(vu a, vu b) { return a > b ? b : a; }
INLINE vf abs_(vf a) { return (vf)((vu)a & 0x7fffffffu); }
INLINE vi abs_(vi a) { return a < 0 ? -a : a; }
INLINE vf sign_(vf a) { return a > 0 ? all(1.f) : a < 0 ? all(-1.f) : a; }
INLINE vi sign_(vi a) { return (a < 0) - (a > 0); }
INLINE vu sign_(vu a) { return a != 0u ? all(1u) : a; }

INLINE vf fma_(vf a, vf b, vf c) {
#if LANES == 16
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8 && defined(__FMA__)
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(c) : "w"(a), "w"(b));
  return c;
#else
  return a * b + c;
#endif
}

INLINE vf sqrt_(vf a) {
#if LANES == 16
  return (vf)_mm512_sqrt_ps((__m512)a);
#elif LANES == 8
  return (vf)_mm256_sqrt_ps((__m256)a);
#elif defined(__x86_64__)
  return (vf)_mm_sqrt_ps((__m128)a);
#elif defined(__aarch64__)
  asm("fsqrt %0.4s, %0.4s" : "+w"(a));
  return a;
#else
  return each<vf>([&](int lane) { return sqrtf(a[lane]); });
#endif
}
INLINE vf rsqrt_(vf a) { return 1.f / sqrt_(a); }
#define FROM_LIBRARY(name, f) INLINE vf name##_(vf a) { return each<vf>([&](int lane) { return f(a[lane]); }); }
FROM_LIBRARY(acos, acosf) FROM_LIBRARY(acosh, acoshf) FROM_LIBRARY(asin, asinf) FROM_LIBRARY(asinh, asinhf)
FROM_LIBRARY(atan, atanf) FROM_LIBRARY(atanh, atanhf) FROM_LIBRARY(cbrt, cbrtf) FROM_LIBRARY(ceil, ceilf)
FROM_LIBRARY(cos, cosf) FROM_LIBRARY(cosh, coshf) FROM_LIBRARY(erf, erff) FROM_LIBRARY(erfc, erfcf)
FROM_LIBRARY(exp2, exp2f) FROM_LIBRARY(expm1, expm1f) FROM_LIBRARY(rint, rintf) FROM_LIBRARY(round_away, roundf)
FROM_LIBRARY(sin, sinf) FROM_LIBRARY(sinh, sinhf) FROM_LIBRARY(tan, tanf)
INLINE vf atan2_(vf a, vf b) { return each<vf>([&](int lane) { return atan2f(a[lane], b[lane]); }); }
INLINE vf nextafter_(vf a, vf b) { return each<vf>([&](int lane) { return nextafterf(a[lane], b[lane]); }); }
template <class V> INLINE V population_count_(V a) { return each<V>([&](int lane) { return __builtin_popcount(a[lane]); }); }
template <class V> INLINE V clz_(V a) { return each<V>([&](int lane) { return a[lane] ? __builtin_clz(a[lane]) : 32; }); }
INLINE vf floor_(vf a) { return each<vf>([&](int lane) { return floorf(a[lane]); }); }

// By zero as XLA has it: all bits set for a quotient, the dividend for a remainder.
INLINE vi div_(vi a, vi b) { return each<vi>([&](int l) { return b[l] == 0 ? -1 : b[l] == -1 ? (int)(0u - a[l]) : a[l] / b[l]; }); }
INLINE vu div_(vu a, vu b) { return each<vu>([&](int l) { return b[l] == 0 ? 0xffffffffu : a[l] / b[l]; }); }
INLINE vi rem_(vi a, vi b) { return each<vi>([&](int l) { return b[l] == 0 ? a[l] : b[l] == -1 ? 0 : a[l] % b[l]; }); }
INLINE vu rem_(vu a, vu b) { return each<vu>([&](int l) { return b[l] == 0 ? a[l] : a[l] % b[l]; }); }
INLINE vf div_(vf a, vf b) { return a / b; }
INLINE vf rem_(vf a, vf b) { return each<vf>([&](int l) { return fmodf(a[l], b[l]); }); }
INLINE vu shift_left_(vu a, vu b) { return b < 32u ? a << (b & 31u) : a ^ a; }
INLINE vu shift_right_logical_(vu a, vu b) { return b < 32u ? a >> (b & 31u) : a ^ a; }
INLINE vi shift_left_(vi a, vi b) { return (vi)shift_left_((vu)a, (vu)b); }
INLINE vi shift_right_logical_(vi a, vi b) { return (vi)shift_right_logical_((vu)a, (vu)b); }
INLINE vi shift_right_arithmetic_(vi a, vi b) { return a >> ((vu)b < 32u ? b : all(31)); }  // the sign comes in from above
INLINE vu shift_right_arithmetic_(vu a, vu b) { return (vu)shift_right_arithmetic_((vi)a, (vi)b); }

// The nearest bfloat16, of two equally near ones the even one.
INLINE vf round_(vf x) {
  const vu bits = (vu)x;
  return x != x ? x : (vf)((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

template <int N> INLINE vf polynomial(vf x, const float (&coefficients)[N]) {
  vf sum = all(coefficients[0]);
  UNROLL for (int i = 1; i < N; i++) sum = fma_(sum, x, all(coefficients[i]));
  return sum;
}
INLINE vf clamp_(vf x, float low, float high) { return x < low ? all(low) : x > high ? all(high) : x; }
INLINE vf power_of_two(vi n) { return (vf)((n + 127) << 23); }

INLINE vf exp_(vf x) {  // Cephes; in two steps, so that it ends in zero and infinity
  x = clamp_(x, -105.f, 105.f);
  const vf shifted = fma_(x, all(1.44269504f), all(12582912.f)), n = shifted - 12582912.f;
  const vi whole = (vi)shifted - 0x4b400000, half = whole >> 1;
  vf f = fma_(n, all(-0.693359375f), x);
  f = fma_(n, all(2.12194440e-4f), f);
  constexpr float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f};
  return fma_(f * f, polynomial(f, c), f + 1.f) * power_of_two(half) * power_of_two(whole - half);
}
INLINE vf log_(vf x) {  // Cephes
  const vi bits = (vi)x;
  vi exponent = (bits >> 23) - 127;
  vf m = (vf)((bits & 0x7fffff) | 0x3f800000);
  const vi large = m > 1.41421356f;
  m = large ? m * .5f : m;
  exponent -= large;
  const vf e = __builtin_convertvector(exponent, vf), f = m - 1.f, z = f * f;
  constexpr float c[] = {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                         -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  vf y = polynomial(f, c) * f * z;
  y = fma_(e, all(-2.12194440e-4f), y);
  y = fma_(z, all(-.5f), y);
  y = fma_(e, all(0.693359375f), f + y);
  y = x == 0.f ? all(-INFINITY) : y;
  return x < 0.f ? all(NAN) : ((x == INFINITY) | (x != x)) ? x : y;
}
INLINE vf log1p_(vf x) {  // Kahan
  const vf u = x + 1.f, d = u - 1.f, y = log_(u) * x / d;
  return d == 0.f ? x : ((u == 0.f) | (u == INFINITY) | (u != u)) ? log_(u) : y;
}
INLINE vf tanh_(vf given) {  // the rational function that XLA and Eigen use
  const vf x = clamp_(given, -7.99881172f, 7.99881172f), z = x * x;
  constexpr float a[] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                         1.48572235717979e-05f, 6.37261928875436e-04f, 4.89352455891786e-03f};
  constexpr float b[] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f};
  return abs_(given) < 0.0004f ? given : x * polynomial(z, a) / polynomial(z, b);
}
INLINE vf erf_inv_(vf x) {  // Giles, as XLA has it
  const vf w = -log1p_(-(x * x)), a = w - 2.5f, b = sqrt_(w) - 3.f;
  constexpr float p[] = {2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f,
                         -0.00125372503f, -0.00417768164f, 0.246640727f, 1.50140941f};
  constexpr float q[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f,
                         -0.0076224613f, 0.00943887047f, 1.00167406f, 2.83297682f};
  return abs_(x) == 1.f ? x * INFINITY : (w < 5.f ? polynomial(a, p) : polynomial(b, q)) * x;
}
INLINE vf pow_(vf a, vf b) { return each<vf>([&](int lane) { return powf(a[lane], b[lane]); }); }
INLINE vf pow_scalar(vf a, vf b) { return all(powf(a[0], b[0])); }

template <class V> INLINE V convert(vf a) { return __builtin_convertvector(a, V); }
template <class V> INLINE V convert(vi a) { return __builtin_convertvector(a, V); }
template <class V> INLINE V convert(vu a) { return __builtin_convertvector(a, V); }
template <class V> INLINE V from_mask(vi mask) { return convert<V>(-mask); }  // 0 or 1

// Sums go by halves, the same way for every length of a vector.
template <class V, class F> INLINE auto across(V x, F f) {
  for (int n = L / 2; n; n /= 2)
    for (int lane = 0; lane < n; lane++) x[lane] = f(x[lane], x[lane + n]);
  return x[0];
}
template <class V> INLINE auto sum_across(V x) { return across(x, [](auto a, auto b) { return a + b; }); }
template <class V> INLINE auto prod_across(V x) { return across(x, [](auto a, auto b) { return a * b; }); }
template <class V> INLINE auto max_across(V x) { return across(x, [](auto a, auto b) { return a < b || b != b ? b : a; }); }
template <class V> INLINE auto min_across(V x) { return across(x, [](auto a, auto b) { return a > b || b != b ? b : a; }); }
template <class V> INLINE V sum_(V a, V b) { return a + b; }
template <class V> INLINE V prod_(V a, V b) { return a * b; }

template <int H, int... J> INLINE void exchange(vf& a, vf& b, std::integer_sequence<int, J...>) {
  const vf low = __builtin_shufflevector(a, b, ((J & H) ? L + J - H : J)...);
  const vf high = __builtin_shufflevector(a, b, ((J & H) ? L + J : J + H)...);
  a = low, b = high;
}
// What is across each of L vectors, in the lanes of one: the same halves meet as above.
template <int H = L / 2, class F> INLINE vf across_each(vf (&rows)[L], F f) {
  UNROLL for (int i = 0; i < H; i++) {
    exchange<H>(rows[i], rows[i + H], std::make_integer_sequence<int, L>());
    rows[i] = f(rows[i], rows[i + H]);
  }
  if constexpr (H > 1) return across_each<H / 2>(rows, f);
  else return rows[0];
}
// The same for rows first..last of a reduction of so many, whose vectors are 16 words apart. `to(r)`: where row r's result
// is stored; those of a whole vector of rows are side by side, and after the last of all rows there is room.
template <class F, class To> INLINE void across_rows(const float* partial, int first, int last, int all_rows, F f, To to) {
  for (int r = first; r < last;) {
    if (r % L == 0 && (r + L <= last || last == all_rows)) {
      vf rows[L];
      UNROLL for (int i = 0; i < L; i++) rows[i] = load_f(partial + (r + i) * 16);
      store(to(r), across_each(rows, f));
      r += L;
    } else {
      *to(r) = across(load_f(partial + r * 16), [&](float a, float b) { return f(all(a), all(b))[0]; });
      r++;
    }
  }
}

// ---- Keys: Threefry-2x32 with 20 rounds

// Of N vectors of counters: each depends on itself round after round, and the others fill the gaps.
template <int N> INLINE void threefry(const word* key, vu (&x)[N], vu (&y)[N]) {
  const uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1bd11bdau};
  constexpr int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  UNROLL for (int v = 0; v < N; v++) x[v] += schedule[0], y[v] += schedule[1];
  UNROLL for (int i = 0; i < 5; i++) {
    UNROLL for (int j = 0; j < 4; j++) {
      const int by = rotations[i % 2][j];
      UNROLL for (int v = 0; v < N; v++) {
        x[v] += y[v];
        y[v] = ((y[v] << by) | (y[v] >> (32 - by))) ^ x[v];
      }
    }
    UNROLL for (int v = 0; v < N; v++) {
      x[v] += schedule[(i + 1) % 3];
      y[v] += schedule[(i + 2) % 3] + (uint32_t)(i + 1);
    }
  }
}
constexpr int AT_ONCE = 4;
INLINE void store_some(word* to, vu x, int n) {
  if (n >= L) store((float*)to, x);
  else for (int lane = 0; lane < n; lane++) to[lane] = x[lane];
}
NOINLINE void fold_in_key(const word* key, const word* number, int, word* to) {
  vu x[1] = {all(0u)}, y[1] = {all((uint32_t)*number)};
  threefry(key, x, y);
  to[0] = x[0][0], to[1] = y[0][0];
}
NOINLINE void split_key(const word* key, const word*, int words, word* to) {
  for (int i = 0; i < words / 2; i += L) {
    vu x[1] = {all(0u)}, y[1] = {(vu)(lanes() + i)};
    threefry(key, x, y);
    for (int lane = 0; lane < L && i + lane < words / 2; lane++)
      to[2 * (i + lane)] = x[0][lane], to[2 * (i + lane) + 1] = y[0][lane];
  }
}
// Of several threads, t computes AT_ONCE vectors, leaves those of the others out, and so on.
NOINLINE void bits(const word* key, const word*, int n, word* to, int t = 0, int threads = 1) {
  for (int i = t * AT_ONCE * L; i < n; i += threads * AT_ONCE * L) {
    vu x[AT_ONCE], y[AT_ONCE];
    UNROLL for (int v = 0; v < AT_ONCE; v++) x[v] = all(0u), y[v] = (vu)(lanes() + i + v * L);
    threefry(key, x, y);
    UNROLL for (int v = 0; v < AT_ONCE; v++) store_some(to + i + v * L, x[v] ^ y[v], n - i - v * L);
  }
}
NOINLINE void bits_in_halves(const word* key, const word*, int n, word* to, int t = 0, int threads = 1) {  // JAX's older scheme
  const int half = (n + 1) / 2;
  for (int i = t * AT_ONCE * L; i < half; i += threads * AT_ONCE * L) {
    vu a[AT_ONCE], b[AT_ONCE];
    UNROLL for (int v = 0; v < AT_ONCE; v++) {
      const vi x = lanes() + i + v * L, y = x + half;
      a[v] = (vu)x, b[v] = (vu)(y < n ? y : y ^ y);
    }
    threefry(key, a, b);
    UNROLL for (int v = 0; v < AT_ONCE; v++) {
      store_some(to + i + v * L, a[v], half - i - v * L);
      store_some(to + half + i + v * L, b[v], n - half - i - v * L);
    }
  }
}
NOINLINE void sort(const word* keys, const word* values, int n, word* to_keys, word* to_values) {
  for (int i = 0; i < n; i++) {
    int j = i;
    for (; j > 0 && to_keys[j - 1] > keys[i]; j--) to_keys[j] = to_keys[j - 1], to_values[j] = to_values[j - 1];
    to_keys[j] = keys[i], to_values[j] = values[i];
  }
}
// A stable argsort of each row; NaN is last. The first key decides, then the next. Dtypes: f, i, u or b for each key. The
// result has one row more, to merge in.
INLINE uint32_t sort_key(uint32_t x, char dtype) {
  if (dtype == 'i') return x ^ 0x80000000u;
  if (dtype != 'f') return x;
  if ((x & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  return x == 0x80000000u ? x : x >> 31 ? ~x : x | 0x80000000u;
}
NOINLINE void argsort(const word* const* keys, const char* dtypes, int rows, int n, number* to) {
  for (int r = 0; r < rows; r++) {
    const auto before = [&](int a, int b) {
      for (int k = 0; dtypes[k]; k++) {
        const uint32_t x = sort_key(keys[k][(size_t)r * n + a], dtypes[k]), y = sort_key(keys[k][(size_t)r * n + b], dtypes[k]);
        if (x != y) return x < y;
      }
      return false;
    };
    number *from = to + (size_t)r * n, *other = to + (size_t)rows * n;
    for (int i = 0; i < n; i++) from[i] = i;
    for (int run = 1; run < n; run *= 2) {
      for (int start = 0; start < n; start += 2 * run) {
        const int middle = start + run < n ? start + run : n, end = start + 2 * run < n ? start + 2 * run : n;
        for (int i = start, j = middle, k = start; k < end; k++)
          other[k] = i < middle && (j >= end || !before(from[j], from[i])) ? from[i++] : from[j++];
      }
      std::swap(from, other);
    }
    if (from != to + (size_t)r * n) memcpy(to + (size_t)r * n, from, (size_t)n * 4);
  }
}

// ---- Products: a tile of MR rows and NV vectors, += A (one number at a time) B (whole vectors)

template <int MR, int NV> INLINE void clear(vf (&tile)[MR][NV]) {
  UNROLL for (int r = 0; r < MR; r++) UNROLL for (int v = 0; v < NV; v++) tile[r][v] = vf{};
}
struct Single {
  static INLINE vf step(vf sum, float a, vf b) { return fma_(all(a), b, sum); }
};
#if defined(__AVX512BF16__)
struct Pairs {  // two products of bfloat16 numbers in each lane
  static INLINE vf step(vf sum, float a, vf b) {
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)(vi)all(a), (__m512bh)(vi)b);
  }
};
#endif
// ROW and DEEP: the distance in A of neighbouring rows, and along k; WIDE: in B, along k.
#if defined(__aarch64__)
// Four numbers of A in one load; each multiplies vectors from its lane. They are neighbours along k, or down the rows.
template <int LANE> INLINE vf fma_lane(vf sum, vf left, vf right) {
  asm("fmla %0.4s, %1.4s, %2.s[%c3]" : "+w"(sum) : "w"(right), "w"(left), "n"(LANE));
  return sum;
}
template <int LANE, int NV> INLINE void add_row(vf (&sums)[NV], vf left, const vf (&right)[NV]) {
  UNROLL for (int v = 0; v < NV; v++) sums[v] = fma_lane<LANE>(sums[v], left, right[v]);
}
template <int N> INLINE void load_row(const float* b, vf (&row)[N]) {
  UNROLL for (int v = 0; v < N; v++) row[v] = load_f(b + L * v);
}
template <class P, int ROW, int DEEP, int WIDE, int MR, int NV>
INLINE void product(const float* a, const float* b, int depth, vf (&tile)[MR][NV]) {
  int k = 0;
  vf right[NV];
  if constexpr (DEEP == 1) {
    const auto next = [&]<int LANE>(const vf (&left)[MR]) __attribute__((always_inline)) {
      load_row(b + (k + LANE) * WIDE, right);
      UNROLL for (int r = 0; r < MR; r++) add_row<LANE>(tile[r], left[r], right);
    };
    _Pragma("GCC unroll 1") for (; k + 4 <= depth; k += 4) {
      vf left[MR];
      UNROLL for (int r = 0; r < MR; r++) left[r] = load_f(a + r * ROW + k);
      next.template operator()<0>(left), next.template operator()<1>(left);
      next.template operator()<2>(left), next.template operator()<3>(left);
    }
  }
  _Pragma("GCC unroll 1") for (; k < depth; k++) {
    load_row(b + k * WIDE, right);
    constexpr int by_four = ROW == 1 ? MR / 4 * 4 : 0;
    UNROLL for (int r = 0; r < by_four; r += 4) {
      const vf left = load_f(a + r + k * DEEP);
      add_row<0>(tile[r], left, right), add_row<1>(tile[r + 1], left, right);
      add_row<2>(tile[r + 2], left, right), add_row<3>(tile[r + 3], left, right);
    }
    UNROLL for (int r = by_four; r < MR; r++) add_row<0>(tile[r], all(a[r * ROW + k * DEEP]), right);
  }
}
#else
template <class P, int ROW, int DEEP, int WIDE, int MR, int NV>
INLINE void product(const float* a, const float* b, int depth, vf (&tile)[MR][NV]) {
  _Pragma("GCC unroll 1") for (int k = 0; k < depth; k++) {
    vf right[NV];
    UNROLL for (int v = 0; v < NV; v++) right[v] = load_f(b + k * WIDE + L * v);
    UNROLL for (int r = 0; r < MR; r++) {
      const float left = a[r * ROW + k * DEEP];
      UNROLL for (int v = 0; v < NV; v++) tile[r][v] = P::step(tile[r][v], left, right[v]);
    }
  }
}
#endif

// ---- Packing a matrix that is in panels of W columns with R rows each

template <int H> INLINE void transpose(vf (&rows)[L]) {  // L by L: exchange halves, then quarters, ...
  UNROLL for (int i = 0; i < L; i++) if (!(i & H)) exchange<H>(rows[i], rows[i + H], std::make_integer_sequence<int, L>());
  if constexpr (H > 1) transpose<H / 2>(rows);
}

// Rows from..from+n become columns, in panels of TO: [n / TO][C][TO].
template <int W, int R, int TO> NOINLINE void pack_panels_transposed(const float* m, int from, int n, int C, float* to, int t = 0, int threads = 1) {
  for (int b = t * L; b < (n + TO - 1) / TO * TO; b += threads * L)
    for (int c = 0; c < C; c += L) {
      vf rows[L];
      for (int i = 0; i < L; i++) rows[i] = b + i < n ? load_f(m + panel<W, R>(from + b + i, c)) : vf{};
      transpose<L / 2>(rows);
      for (int i = 0; i < L && c + i < C; i++) store(to + (size_t)(b / TO) * C * TO + (c + i) * TO + b % TO, rows[i]);
    }
}
#if defined(__AVX512BF16__)
// Columns c..c+32 of a row, two in a word; those from C on are zero.
template <int W, int R> INLINE vf row_of_pairs(const float* m, int r, int c, int C) {
  const vf a = load_f(m + panel<W, R>(r, c)), b = W == 32 ? load_f(m + panel<W, R>(r, c) + L) : vf{};
  const vf x = lanes_below(C - c) ? a : vf{}, y = lanes_below(C - c - L) ? b : vf{};
  return (vf)(vi)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x);
}
// Rows as they are, 32 columns in 16 words: [C / 32][n][16].
template <int W, int R> NOINLINE void pack_pairs_in_rows(const float* m, int from, int n, int C, float* to, int t = 0, int threads = 1) {
  for (int c = t * 32; c < C; c += threads * 32)
    for (int r = 0; r < n; r++) store(to + (size_t)(c / 32) * n * 16 + r * 16, row_of_pairs<W, R>(m, from + r, c, C));
}
// Two rows in each row of words, in panels of TO: [C / TO][n / 2][TO].
INLINE vf pair_rows(vf a, vf b) {
  constexpr uint16_t mix[32] = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return (vf)_mm512_permutexvar_epi16(_mm512_loadu_si512(mix), (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
}
template <int W, int R, int TO> NOINLINE void pack_pairs(const float* m, int from, int n, int C, float* to, int t = 0, int threads = 1) {
  const int half = (n + 1) / 2;
  for (int c = t * L; c < C; c += threads * L)
    for (int r = 0; r < n; r += 2) {
      const float* p = m + panel<W, R>(from + r, c);
      store(to + (size_t)(c / TO) * half * TO + (r / 2) * TO + c % TO, pair_rows(load_f(p), r + 1 < n ? load_f(p + W) : vf{}));
    }
}
// Rows become columns, two columns in a word: [n / TO][C / 2][TO].
template <int W, int R, int TO> NOINLINE void pack_pairs_transposed(const float* m, int from, int n, int C, float* to, int t = 0, int threads = 1) {
  const int half = (C + 1) / 2;
  for (int b = t * L; b < (n + TO - 1) / TO * TO; b += threads * L)
    for (int c = 0; c < C; c += 32) {
      vf rows[L];
      for (int i = 0; i < L; i++) rows[i] = b + i < n ? row_of_pairs<W, R>(m, from + b + i, c, C) : vf{};
      transpose<L / 2>(rows);
      for (int i = 0; i < L && c / 2 + i < half; i++) store(to + (size_t)(b / TO) * half * TO + (c / 2 + i) * TO + b % TO, rows[i]);
    }
}
#endif

// ---- To and from row-major arrays

// The whole of an input, or only the rows with these indices.
INLINE void copy_input(const float* from, const int64_t* indices, int rows, int width, float* to) {
  if (!indices) memcpy(to, from, (size_t)rows * width * 4);
  else for (int r = 0; r < rows; r++) memcpy(to + (size_t)r * width, from + (size_t)indices[r] * width, (size_t)width * 4);
}
template <int W> INLINE void copy_output(const float* from, int matrices, int R, int C, float* to) {
  const int across = (C + W - 1) / W * W;
  for (int m = 0; m < matrices; m++)
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) to[((size_t)m * R + r) * C + c] = from[(size_t)m * R * across + (c / W) * R * W + r * W + c % W];
}

// Numbers below 1e-38 are zero, as in XLA's programs.
struct Flush {
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  Flush() { _mm_setcsr(before | 0x8040); }
  ~Flush() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  const uint64_t before = get();
  Flush() { set(before | 1u << 24); }
  ~Flush() { set(before); }
  static INLINE uint64_t get() {
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static INLINE void set(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
#endif
};

// ---- Threads

INLINE int min_(int a, int b) { return a < b ? a : b; }
#if THREADS > 1
INLINE int first_tile(int tiles, int t) { return tiles * t / THREADS; }  // where thread t's tiles begin

INLINE void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Barrier {
  std::atomic<int> arrived{0}, generation{0};
  void wait() {  // nobody goes on before all are here, and then everybody sees what the others have written
    const int before = generation.load(std::memory_order_relaxed);
    if (arrived.fetch_add(1, std::memory_order_acq_rel) == THREADS - 1) {
      arrived.store(0, std::memory_order_relaxed);
      generation.store(before + 1, std::memory_order_release);
      generation.notify_all();
    } else {
      for (int i = 0; i < 4000 && generation.load(std::memory_order_acquire) == before; i++) pause();
      generation.wait(before, std::memory_order_acquire);  // asleep: another process may have taken the other's core
    }
  }
};

// A core for each thread but the caller's, where there are enough: left to itself, a system may keep a thread that lives
// for a millisecond on the core where it began, which is the caller's.
struct Cores {
#if defined(__GLIBC__)
  cpu_set_t one[THREADS];
  int found = 0;
  Cores() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;
    const int here = sched_getcpu();
    for (int core = 0; core < CPU_SETSIZE && found < THREADS - 1; core++)
      if (core != here && CPU_ISSET(core, &allowed)) {
        CPU_ZERO(&one[found]);
        CPU_SET(core, &one[found++]);
      }
  }
  void pin(pthread_attr_t* thread, int i) const {
    if (found == THREADS - 1) pthread_attr_setaffinity_np(thread, sizeof one[i], &one[i]);
  }
#else
  void pin(pthread_attr_t*, int) const {}
#endif
};

// work(t, barrier) in THREADS threads; false if they cannot be had. They begin with the call and end with it: no pool is
// left behind for a fork, a signal or the interpreter's end to find.
template <class Work> bool run_threads(Work work) {
  struct Member {
    Work* work;
    Barrier* barrier;
    std::atomic<int>* go;
    int t;
    pthread_t thread;
    static void* begin(void* given) {
      Member* me = (Member*)given;
      me->go->wait(0, std::memory_order_acquire);
      Flush flush;
      if (me->go->load(std::memory_order_acquire) > 0) (*me->work)(me->t, *me->barrier);
      return nullptr;
    }
  };
  Barrier barrier;
  std::atomic<int> go{0};
  Member members[THREADS - 1];
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);  // signals are for the thread that calls
  const Cores cores;
  int started = 0;
  while (started < THREADS - 1) {
    members[started] = {&work, &barrier, &go, started + 1, {}};
    pthread_attr_t its;
    pthread_attr_init(&its);
    cores.pin(&its, started);
    const int failed = pthread_create(&members[started].thread, &its, Member::begin, &members[started]);
    pthread_attr_destroy(&its);
    if (failed) break;
    started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  const bool complete = started == THREADS - 1;
  go.store(complete ? 1 : -1, std::memory_order_release);
  go.notify_all();
  if (complete) work(0, barrier);
  for (int i = 0; i < started; i++) pthread_join(members[i].thread, nullptr);
  return complete;
}
#endif

}  // namespace
