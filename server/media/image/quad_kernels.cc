#include "server/media/image/quad_kernels.h"

#include <cstring>

#include "proto/image/resample_weights.h"

// The instruction set with byte products (VNNI) is compiled only on request.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/media/image/quad_kernels.cc"
// Vectors of unknown size are no members of a struct.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

// Vectors and exact weighted sums of quads.

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

// The kernels.

QuadFormat Format() { return kQuadFormat; }

#if HWY_TARGET == HWY_SCALAR

void TileStripImpl(const uint8_t* strip, size_t width, uint8_t* tile) {
  const size_t stride = StripStride(width);
  for (size_t x = 0; x < width; x += 4) {
    for (size_t c = 0; c < kChannels; ++c) {
      for (size_t row = 0; row < kStripRows; ++row) {
        const uint8_t* from = strip + row * stride + x * kChannels + c;
        for (size_t i = 0; i < 4; ++i) *tile++ = from[i * kChannels];
      }
    }
  }
}

void ResampleTileImpl(const uint8_t* tile, const QuadTable& table,
                      uint8_t* const (&lines)[4]) {
  for (uint32_t x = 0; x < table.output(); ++x) {
    const QuadTaps& taps = table.taps()[x];
    for (size_t c = 0; c < kChannels; ++c) {
      for (size_t row = 0; row < kStripRows; ++row) {
        const uint32_t* words = table.words(taps);
        int32_t sum = kHalf;
        for (size_t quad = taps.first; quad < taps.first + taps.count; ++quad) {
          sum += DotQuad(tile + ((quad * kChannels + c) * kStripRows + row) * 4,
                         words);
          words += kMaxQuadWords;
        }
        lines[row / 4][(x * kChannels + c) * 4 + row % 4] =
            ClipWeightedSum(sum);
      }
    }
  }
}

void ResampleLinesImpl(const uint8_t* const* lines, const QuadTaps& taps,
                       const uint32_t* words, uint8_t* out, size_t values) {
  for (size_t i = 0; i < values; ++i) {
    int32_t sum = kHalf;
    for (size_t quad = 0; quad < taps.count; ++quad) {
      sum += DotQuad(lines[quad] + i * 4, words + quad * kMaxQuadWords);
    }
    out[i] = ClipWeightedSum(sum);
  }
}

#else

// Transposes four pixels of each of 16 rows at a time. Each 16-byte block holds
// four rows as R0R1R2R3 G0.. B0..; the words are then transposed four by four.
HWY_ATTR void TileStripImpl(const uint8_t* HWY_RESTRICT strip, size_t width,
                            uint8_t* HWY_RESTRICT tile) {
  HWY_ALIGN static constexpr uint8_t kByChannel[16] = {0, 3, 6, 9,  1, 4, 7, 10,
                                                       2, 5, 8, 11, 0, 0, 0, 0};
  const Bytes d8;
  const Words d32;
  const hn::Repartition<uint64_t, Words> d64;
  const auto by_channel = hn::LoadDup128(d8, kByChannel);
  const size_t stride = StripStride(width);
  const auto store = [&](const auto& v, uint8_t* to)
                         HWY_ATTR { hn::Store(hn::BitCast(d8, v), d8, to); };
  for (size_t x = 0; x < width; x += 4) {
    for (size_t row = 0; row < kStripRows; row += kLanes) {
      const uint8_t* from = strip + row * stride + x * kChannels;
      const auto turned = [&](size_t i) HWY_ATTR {
        return hn::BitCast(
            d32, hn::TableLookupBytes(LoadBlocks(from + i * stride, 4 * stride),
                                      by_channel));
      };
      const auto row0 = turned(0);
      const auto row1 = turned(1);
      const auto row2 = turned(2);
      const auto row3 = turned(3);
      const auto rg01 = hn::BitCast(d64, hn::InterleaveLower(d32, row0, row1));
      const auto rg23 = hn::BitCast(d64, hn::InterleaveLower(d32, row2, row3));
      const auto b01 = hn::BitCast(d64, hn::InterleaveUpper(d32, row0, row1));
      const auto b23 = hn::BitCast(d64, hn::InterleaveUpper(d32, row2, row3));
      uint8_t* to = tile + row * 4;
      store(hn::InterleaveLower(d64, rg01, rg23), to);
      store(hn::InterleaveUpper(d64, rg01, rg23), to + kStripRows * 4);
      store(hn::InterleaveLower(d64, b01, b23), to + kStripRows * 8);
    }
    tile += kChannels * kStripRows * 4;
  }
}

constexpr size_t kChannelBytes = kStripRows * 4;
constexpr size_t kQuadBytes = kChannels * kChannelBytes;

// Computes the three channels of one output pixel for kLanes rows, beginning
// with the row that `tile` points to.
HWY_INLINE HWY_ATTR void SumPixel(const uint8_t* HWY_RESTRICT tile,
                                  const QuadTable& table, const QuadTaps& taps,
                                  SignedVector* values) {
  const Bytes d8;
  const uint32_t* words = table.words(taps);
  tile += taps.first * kQuadBytes;
#if BALLAST_BYTE_PRODUCTS
  if (taps.count == 1) {
    const QuadWeights weights(words);
    const auto shift = hn::Set(Signed(), static_cast<int32_t>(taps.shift));
#pragma GCC unroll 3
    for (size_t c = 0; c < kChannels; ++c) {
      const uint8_t* at = tile + c * kChannelBytes;
      values[c] = SumOne(
          ShiftedQuad(hn::Load(d8, at), hn::Load(d8, at + kQuadBytes), shift),
          weights);
    }
    return;
  }
  if (taps.count == 2) {
    const QuadWeights first(words);
    const QuadWeights second(words + kQuadWords);
#pragma GCC unroll 3
    for (size_t c = 0; c < kChannels; ++c) {
      const uint8_t* at = tile + c * kChannelBytes;
      values[c] = SumTwo(hn::Load(d8, at), first, hn::Load(d8, at + kQuadBytes),
                         second);
    }
    return;
  }
#endif
  QuadSums r, g, b;
  for (uint32_t quad = 0; quad < taps.count; ++quad) {
    const QuadWeights weights(words);
    r.Add(hn::Load(d8, tile), weights);
    g.Add(hn::Load(d8, tile + kChannelBytes), weights);
    b.Add(hn::Load(d8, tile + 2 * kChannelBytes), weights);
    tile += kQuadBytes;
    words += kQuadWords;
  }
  values[0] = r.Value();
  values[1] = g.Value();
  values[2] = b.Value();
}

HWY_ATTR void ResampleTileImpl(const uint8_t* HWY_RESTRICT tile,
                               const QuadTable& table,
                               uint8_t* const (&lines)[4]) {
  const uint32_t output = table.output();
  const QuadTaps* taps = table.taps().data();
  for (size_t row = 0; row < kStripRows; row += kLanes) {
    for (uint32_t x = 0; x < output; x += 4) {
      SignedVector values[4 * kChannels];
#pragma GCC unroll 4
      for (uint32_t i = 0; i < 4; ++i) {
        // Repeats the last pixel beyond the end.
        SumPixel(tile + row * 4, table, taps[HWY_MIN(x + i, output - 1)],
                 values + i * kChannels);
      }
      // A block of a pack holds four values of four rows: a piece of a line.
#pragma GCC unroll 3
      for (size_t v = 0; v < 4 * kChannels; v += 4) {
        const ByteVector packed = PackToBytes(values + v);
        StoreBlocks(packed, lines + row / 4, (x * kChannels + v) * 4);
      }
    }
  }
}

// sum(at) returns the sums of kLanes values, from byte `at` of each line.
template <class Sum>
HWY_INLINE HWY_ATTR void ForEachValue(const Sum& sum, uint8_t* HWY_RESTRICT out,
                                      size_t values) {
  const Bytes d8;
  constexpr size_t kStep = 4 * kLanes;
  const auto order = BlockWordOrder();
  for (size_t i = 0; i < values; i += kStep) {
    const size_t at = i * 4;
    const SignedVector sums[4] = {sum(at), sum(at + kStep), sum(at + 2 * kStep),
                                  sum(at + 3 * kStep)};
    const ByteVector packed = OrderWords(PackToBytes(sums), order);
    if (HWY_LIKELY(i + kStep <= values)) {
      hn::StoreU(packed, d8, out + i);
    } else {
      HWY_ALIGN uint8_t last[kStep];
      hn::Store(packed, d8, last);
      std::memcpy(out + i, last, values - i);
    }
  }
}

HWY_ATTR void ResampleLinesImpl(const uint8_t* const* HWY_RESTRICT lines,
                                const QuadTaps& taps,
                                const uint32_t* HWY_RESTRICT words,
                                uint8_t* HWY_RESTRICT out, size_t values) {
  const Bytes d8;
#if BALLAST_BYTE_PRODUCTS
  const uint8_t* HWY_RESTRICT line0 = lines[0];
  const uint8_t* HWY_RESTRICT line1 = lines[1];
  const QuadWeights weights0(words);
  if (taps.count == 1) {
    const auto shift = hn::Set(Signed(), static_cast<int32_t>(taps.shift));
    ForEachValue(
        [&](size_t at) HWY_ATTR {
          return SumOne(ShiftedQuad(hn::Load(d8, line0 + at),
                                    hn::Load(d8, line1 + at), shift),
                        weights0);
        },
        out, values);
    return;
  }
  if (taps.count == 2) {
    const QuadWeights weights1(words + kQuadWords);
    ForEachValue(
        [&](size_t at) HWY_ATTR {
          return SumTwo(hn::Load(d8, line0 + at), weights0,
                        hn::Load(d8, line1 + at), weights1);
        },
        out, values);
    return;
  }
#endif
  const uint32_t count = taps.count;
  ForEachValue(
      [&](size_t at) HWY_ATTR {
        QuadSums sums;
        for (uint32_t quad = 0; quad < count; ++quad) {
          sums.Add(hn::Load(d8, lines[quad] + at),
                   QuadWeights(words + quad * kQuadWords));
        }
        return sums.Value();
      },
      out, values);
}

#endif  // HWY_TARGET

}  // namespace HWY_NAMESPACE
}  // namespace ballast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ballast {

HWY_EXPORT(Format);
HWY_EXPORT(TileStripImpl);
HWY_EXPORT(ResampleTileImpl);
HWY_EXPORT(ResampleLinesImpl);

QuadFormat KernelFormat() { return HWY_DYNAMIC_DISPATCH(Format)(); }

absl::string_view KernelTarget() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return hwy::TargetName(targets & -targets);
}

void TileStrip(const uint8_t* strip, size_t width, uint8_t* tile) {
  HWY_DYNAMIC_DISPATCH(TileStripImpl)(strip, width, tile);
}

void ResampleTile(const uint8_t* tile, const QuadTable& table,
                  uint8_t* const (&lines)[4]) {
  HWY_DYNAMIC_DISPATCH(ResampleTileImpl)(tile, table, lines);
}

void ResampleLines(const uint8_t* const* lines, const QuadTable& table,
                   uint32_t i, absl::Span<uint8_t> out) {
  const QuadTaps& taps = table.taps()[i];
  HWY_DYNAMIC_DISPATCH(ResampleLinesImpl)
  (lines, taps, table.words(taps), out.data(), out.size());
}

}  // namespace ballast
#endif  // HWY_ONCE
