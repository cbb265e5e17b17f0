// Vectors and exact weighted sums of quads for one instruction set.
#if defined(BALLAST_SERVER_IMAGE_QUAD_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_SERVER_IMAGE_QUAD_SUM_INL_H_
#undef BALLAST_SERVER_IMAGE_QUAD_SUM_INL_H_
#else
#define BALLAST_SERVER_IMAGE_QUAD_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include "proto/image/resample_weights.h"
#include "server/image/quad_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

// 1 if one instruction computes four byte products (VNNI).
#undef BALLAST_BYTE_PRODUCTS
#if HWY_TARGET == HWY_AVX3_DL
#define BALLAST_BYTE_PRODUCTS 1
#else
#define BALLAST_BYTE_PRODUCTS 0
#endif

constexpr QuadFormat kQuadFormat =
    BALLAST_BYTE_PRODUCTS ? QuadFormat::kDigits : QuadFormat::kHalves;
constexpr size_t kQuadWords = QuadWords(kQuadFormat);

#if HWY_TARGET == HWY_SCALAR

// The weighted sum of four pixels; wraps, as the total does.
inline int32_t DotQuad(const uint8_t* pixels, const uint32_t* words) {
  const auto half = [words](int word, int shift) {
    return int32_t{static_cast<int16_t>(words[word] >> shift)};
  };
  const int32_t high = pixels[0] * half(0, 0) + pixels[2] * half(0, 16) +
                       pixels[1] * half(1, 0) + pixels[3] * half(1, 16);
  const int32_t low = pixels[0] * half(2, 0) + pixels[2] * half(2, 16) +
                      pixels[1] * half(3, 0) + pixels[3] * half(3, 16);
  return high * (1 << kLowBits) + low;
}

#else

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, the rows of a strip.
using Signed = hn::CappedTag<int32_t, kStripRows>;
using Words = hn::RebindToUnsigned<Signed>;
using Bytes = hn::Repartition<uint8_t, Signed>;
using Shorts = hn::Repartition<int16_t, Signed>;
using SignedVector = hn::Vec<Signed>;
using ByteVector = hn::Vec<Bytes>;
constexpr size_t kLanes = HWY_MIN(hn::MaxLanes(Signed()), kStripRows);
constexpr size_t kBlocks = kLanes / 4;
static_assert(kLanes % 4 == 0 && kStripRows % kLanes == 0);

#if BALLAST_BYTE_PRODUCTS

HWY_INLINE HWY_ATTR SignedVector Dot(SignedVector sum, ByteVector pixels,
                                     SignedVector digits) {
  // Highway 1.0.3 has no function for this, and enables AVX-VNNI instead of
  // AVX512-VNNI in the compiler, which therefore refuses the intrinsic.
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(pixels.raw), "v"(digits.raw));
  return sum;
}

struct QuadWeights {
  HWY_INLINE HWY_ATTR explicit QuadWeights(const uint32_t* words)
      : high(Digits(words[0])),
        middle(Digits(words[1])),
        low(Digits(words[2])) {}
  HWY_INLINE HWY_ATTR static SignedVector Digits(uint32_t word) {
    return hn::Set(Signed(), static_cast<int32_t>(word));
  }
  SignedVector high, middle, low;
};

HWY_INLINE HWY_ATTR SignedVector FirstSum() {
  return hn::Set(Signed(), kHalf >> 16);
}

// One weighted sum per lane.
class QuadSums {
 public:
  HWY_INLINE HWY_ATTR QuadSums()
      : high_(FirstSum()),
        middle_(hn::Zero(Signed())),
        low_(hn::Zero(Signed())) {}

  HWY_INLINE HWY_ATTR void Add(ByteVector pixels, const QuadWeights& weights) {
    high_ = Dot(high_, pixels, weights.high);
    middle_ = Dot(middle_, pixels, weights.middle);
    low_ = Dot(low_, pixels, weights.low);
  }

  // Rounded, not yet clipped.
  HWY_INLINE HWY_ATTR SignedVector Value() const {
    const auto upper = hn::Add(hn::ShiftLeft<8>(high_), middle_);
    return hn::ShiftRight<kWeightBits>(hn::Add(hn::ShiftLeft<8>(upper), low_));
  }

 private:
  SignedVector high_, middle_, low_;
};

// The sums over one quad and over two, digit by digit: fewer instructions.
HWY_INLINE HWY_ATTR SignedVector SumOne(ByteVector a, const QuadWeights& wa) {
  auto sum = Dot(FirstSum(), a, wa.high);
  sum = Dot(hn::ShiftLeft<8>(sum), a, wa.middle);
  sum = Dot(hn::ShiftLeft<8>(sum), a, wa.low);
  return hn::ShiftRight<kWeightBits>(sum);
}

HWY_INLINE HWY_ATTR SignedVector SumTwo(ByteVector a, const QuadWeights& wa,
                                        ByteVector b, const QuadWeights& wb) {
  auto sum = Dot(Dot(FirstSum(), a, wa.high), b, wb.high);
  sum = Dot(Dot(hn::ShiftLeft<8>(sum), a, wa.middle), b, wb.middle);
  sum = Dot(Dot(hn::ShiftLeft<8>(sum), a, wa.low), b, wb.low);
  return hn::ShiftRight<kWeightBits>(sum);
}

// In each lane, the quad that begins `shift` bits after the start of quad `a`,
// which `b` follows.
HWY_INLINE HWY_ATTR ByteVector ShiftedQuad(ByteVector a, ByteVector b,
                                           SignedVector shift) {
  return ByteVector{_mm512_shrdv_epi32(a.raw, b.raw, shift.raw)};
}

#else

struct QuadWeights {
  HWY_INLINE HWY_ATTR explicit QuadWeights(const uint32_t* words)
      : high_even(Two(words[0])),
        high_odd(Two(words[1])),
        low_even(Two(words[2])),
        low_odd(Two(words[3])) {}
  HWY_INLINE HWY_ATTR static hn::Vec<Shorts> Two(uint32_t word) {
    return hn::BitCast(Shorts(), hn::Set(Words(), word));
  }
  hn::Vec<Shorts> high_even, high_odd, low_even, low_odd;
};

// One weighted sum per lane. Highway spreads the products of pairs over two
// vectors; some instruction sets leave the second at 0.
class QuadSums {
 public:
  HWY_INLINE HWY_ATTR QuadSums()
      : high0_(hn::Zero(Signed())),
        high1_(hn::Zero(Signed())),
        low0_(hn::Set(Signed(), 0)),
        low1_(hn::Zero(Signed())) {}

  HWY_INLINE HWY_ATTR void Add(ByteVector pixels, const QuadWeights& weights) {
    const Signed d32;
    const hn::RebindToUnsigned<Shorts> du16;
    const auto pairs = hn::BitCast(du16, pixels);
    const auto even =
        hn::BitCast(Shorts(), hn::And(pairs, hn::Set(du16, uint16_t{0xff})));
    const auto odd = hn::BitCast(Shorts(), hn::ShiftRight<8>(pairs));
    high0_ = hn::ReorderWidenMulAccumulate(d32, even, weights.high_even, high0_,
                                           high1_);
    high0_ = hn::ReorderWidenMulAccumulate(d32, odd, weights.high_odd, high0_,
                                           high1_);
    low0_ = hn::ReorderWidenMulAccumulate(d32, even, weights.low_even, low0_,
                                          low1_);
    low0_ =
        hn::ReorderWidenMulAccumulate(d32, odd, weights.low_odd, low0_, low1_);
  }

  // Rounded, not yet clipped.
  HWY_INLINE HWY_ATTR SignedVector Value() const {
    const auto high = hn::RearrangeToOddPlusEven(high0_, high1_);
    const auto low = hn::RearrangeToOddPlusEven(low0_, low1_);
    const auto rounded = hn::Add(low, hn::Set(Signed(), kHalf));
    return hn::ShiftRight<kWeightBits>(
        hn::Add(hn::ShiftLeft<kLowBits>(high), rounded));
  }

 private:
  SignedVector high0_, high1_, low0_, low1_;
};

#endif  // BALLAST_BYTE_PRODUCTS

// Loads blocks of 16 bytes, `step` apart.
HWY_INLINE HWY_ATTR ByteVector LoadBlocks(const uint8_t* from, size_t step) {
  const hn::FixedTag<uint8_t, 16> block;
#if HWY_MAX_BYTES >= 64
  const hn::FixedTag<uint8_t, 32> two;
  return hn::Combine(
      Bytes(),
      hn::Combine(two, hn::LoadU(block, from + 3 * step),
                  hn::LoadU(block, from + 2 * step)),
      hn::Combine(two, hn::LoadU(block, from + step), hn::LoadU(block, from)));
#elif HWY_MAX_BYTES >= 32
  return hn::Combine(Bytes(), hn::LoadU(block, from + step),
                     hn::LoadU(block, from));
#else
  (void)step;
  return hn::LoadU(block, from);
#endif
}

// Stores block i at to[i] + offset.
HWY_INLINE HWY_ATTR void StoreBlocks(ByteVector v, uint8_t* const* to,
                                     size_t offset) {
#if HWY_MAX_BYTES >= 64
  const hn::FixedTag<uint8_t, 32> two;
  const hn::FixedTag<uint8_t, 16> block;
  const auto lower = hn::LowerHalf(two, v);
  const auto upper = hn::UpperHalf(two, v);
  hn::Store(hn::LowerHalf(block, lower), block, to[0] + offset);
  hn::Store(hn::UpperHalf(block, lower), block, to[1] + offset);
  hn::Store(hn::LowerHalf(block, upper), block, to[2] + offset);
  hn::Store(hn::UpperHalf(block, upper), block, to[3] + offset);
#elif HWY_MAX_BYTES >= 32
  const hn::FixedTag<uint8_t, 16> block;
  hn::Store(hn::LowerHalf(block, v), block, to[0] + offset);
  hn::Store(hn::UpperHalf(block, v), block, to[1] + offset);
#else
  hn::Store(v, Bytes(), to[0] + offset);
#endif
}

// Clips four vectors to bytes: block i of the result holds block i of each.
HWY_INLINE HWY_ATTR ByteVector PackToBytes(const SignedVector* v) {
  const auto a = hn::ReorderDemote2To(Shorts(), v[0], v[1]);
  const auto b = hn::ReorderDemote2To(Shorts(), v[2], v[3]);
#if HWY_MAX_BYTES >= 64
  return ByteVector{_mm512_packus_epi16(a.raw, b.raw)};
#elif HWY_MAX_BYTES >= 32
  return ByteVector{_mm256_packus_epi16(a.raw, b.raw)};
#else
  const hn::Half<Bytes> half;
  return hn::Combine(Bytes(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

// Permutes the words of PackToBytes into the order of its arguments.
HWY_INLINE HWY_ATTR auto BlockWordOrder() {
  HWY_ALIGN int32_t order[kLanes];
  for (size_t vector = 0; vector < 4; ++vector) {
    for (size_t block = 0; block < kBlocks; ++block) {
      order[vector * kBlocks + block] =
          static_cast<int32_t>(4 * block + vector);
    }
  }
  return hn::SetTableIndices(Words(), order);
}

template <class Order>
HWY_INLINE HWY_ATTR ByteVector OrderWords(ByteVector v, Order order) {
  if (kBlocks == 1) return v;
  return hn::BitCast(Bytes(),
                     hn::TableLookupLanes(hn::BitCast(Words(), v), order));
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#endif  // BALLAST_SERVER_IMAGE_QUAD_SUM_INL_H_
