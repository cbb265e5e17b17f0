#include "server/image/quad_kernels.h"

// The instruction set with byte products (VNNI) is compiled only on request.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/image/quad_kernels.cc"
// Vectors of unknown size are no members of a struct.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "server/image/quad_kernels-inl.h"

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
