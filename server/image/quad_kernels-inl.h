// The kernels of quad_kernels.h, compiled once for each instruction set.
#if defined(BALLAST_SERVER_IMAGE_QUAD_KERNELS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef BALLAST_SERVER_IMAGE_QUAD_KERNELS_INL_H_
#undef BALLAST_SERVER_IMAGE_QUAD_KERNELS_INL_H_
#else
#define BALLAST_SERVER_IMAGE_QUAD_KERNELS_INL_H_
#endif

#include <cstring>

#include <hwy/highway.h>

#include "server/image/quad_kernels.h"
#include "server/image/quad_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ballast {
namespace HWY_NAMESPACE {

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

#endif  // BALLAST_SERVER_IMAGE_QUAD_KERNELS_INL_H_
