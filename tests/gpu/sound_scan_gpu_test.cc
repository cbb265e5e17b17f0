// The promise of server/media/image/sound_scan.h: of a file that passes,
// whatever happened to it, JPEG engines make libjpeg's planes.
#include "server/media/image/sound_scan.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/gpu/device_testing.h"
#include "tests/gpu/engine_files.h"
#include "trainer_shim/cuda/device_image_decoder.h"
#include "trainer_shim/host/host_image_decoder.h"

namespace ballast {
namespace {

// Whether the planes' samples are equal; rows have padding.
bool SamePlanes(const PlaneForm& form, const uint8_t* a, const uint8_t* b) {
  const PlaneLayout layout = LayOutPlanes(form);
  for (int plane = 0; plane < form.planes(); ++plane) {
    for (uint32_t y = 0; y < form.plane_height(plane); ++y) {
      const uint64_t row =
          layout.offset[plane] + uint64_t{y} * layout.pitch[plane];
      if (!std::equal(a + row, a + row + form.plane_width(plane), b + row)) {
        return false;
      }
    }
  }
  return true;
}

TEST(SoundScanGpuTest, DamagedFilesThatPassHaveLibjpegsPlanes) {
  const auto engine =
      OrDie(DeviceJpegEngine::Create(DeviceJpegEngine::Hardware::kIfThere));
  ASSERT_TRUE(engine->hardware().ok()) << engine->hardware();
  // Those that pass, and the kind of damage.
  std::vector<EngineFile> passed;
  int failed = 0;
  for (const ChromaSampling sampling :
       {ChromaSampling::kGrey, ChromaSampling::k444, ChromaSampling::k422,
        ChromaSampling::k420}) {
    for (const int interval : {0, 7}) {
      for (const int quality : {30, 75, 95}) {
        const MadeJpeg made = {.width = 203,
                               .height = 150,
                               .sampling = sampling,
                               .quality = quality,
                               .restart_interval = interval,
                               .optimised = quality == 75,
                               .seed = static_cast<uint32_t>(quality)};
        const std::string bytes = MakeJpeg(made);
        for (uint32_t seed = 0; seed < 60 * kDamageKinds; ++seed) {
          const int kind = static_cast<int>(seed % kDamageKinds);
          std::string copy = DamagedCopy(bytes, kind, seed);
          if (!CheckScan(copy).ok()) {
            ++failed;
            continue;
          }
          const PlaneForm form = JudgeForEngines(copy)->form;
          passed.push_back({GetName(made) + " kind " + std::to_string(kind) +
                                " seed " + std::to_string(seed),
                            std::move(copy), form});
        }
      }
    }
  }
  std::printf("%zu damaged files pass, %d do not\n", passed.size(), failed);
  EXPECT_GT(passed.size(), 1000u);
  constexpr size_t kBatch = 32;
  int different = 0;
  for (size_t begin = 0; begin < passed.size(); begin += kBatch) {
    const size_t end = std::min(passed.size(), begin + kBatch);
    uint64_t bytes = 0;
    for (size_t i = begin; i < end; ++i) {
      bytes += LayOutPlanes(passed[i].form).bytes;
    }
    const DeviceBuffer device = Filled<uint8_t>(bytes, 0);
    std::vector<uint8_t> want(bytes);
    std::vector<EncodedJpeg> on_device, on_host;
    std::vector<uint64_t> offsets;
    uint64_t at = 0;
    for (size_t i = begin; i < end; ++i) {
      const EngineFile& file = passed[i];
      on_device.push_back({file.bytes, file.form, device.data() + at});
      on_host.push_back({file.bytes, file.form, want.data() + at});
      offsets.push_back(at);
      at += LayOutPlanes(file.form).bytes;
    }
    OrDie(CpuJpegEngine().Decode(on_host));
    OrDie(engine->Decode(on_device));
    const std::vector<uint8_t> got = ToHost<uint8_t>(device, 0, bytes);
    for (size_t i = begin; i < end; ++i) {
      const uint64_t offset = offsets[i - begin];
      if (SamePlanes(passed[i].form, got.data() + offset,
                     want.data() + offset)) {
        continue;
      }
      ++different;
      ADD_FAILURE() << passed[i].name;
    }
  }
  EXPECT_EQ(different, 0);
  EXPECT_EQ(engine->counts().by_hardware, passed.size());
}

}  // namespace
}  // namespace ballast
